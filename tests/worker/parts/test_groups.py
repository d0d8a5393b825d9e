"""Means in groups, SWA, Fed-ET's and FedTGP's server parts, DS-FL's targets, the ring's ensemble."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from worker.parts import combine, fedet, fedtgp, groups, schedules, swa, weigh
from worker.parts.errors import PartError

SEEDS = st.integers(0, 2**32 - 1)


# ---------------------------------------------------------------------------------------------------------------- means
@given(SEEDS, st.integers(1, 4))
def test_one_group_is_the_weighted_average_and_splitting_is_per_group(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    models, counts, of = rng.normal(size=(6, 3)), rng.integers(0, 5, 6), rng.integers(0, count, 6)
    previous = rng.normal(size=(count, 3))
    made = groups.group_means(list(models), list(counts), list(of), list(previous))
    for index in range(count):
        mine = (of == index) & (counts > 0)
        expected = np.average(models[mine], axis=0, weights=counts[mine]) if mine.any() else previous[index]
        np.testing.assert_allclose(made[index], expected, atol=1e-12)


@given(SEEDS)
def test_duplicate_client_is_a_doubled_weight(seed: int) -> None:
    models = list(np.random.default_rng(seed).normal(size=(3, 4)))
    twice = groups.group_means([*models, models[0]], [2, 1, 3, 2], [0] * 4, [np.zeros(4)])
    once = groups.group_means(models, [4, 1, 3], [0] * 3, [np.zeros(4)])
    np.testing.assert_allclose(twice[0], once[0], atol=1e-14)


def test_absent_architecture_is_a_copy_of_what_it_was() -> None:
    previous = {"a": np.array([1.0, 2.0]), "b": np.array([3.0])}
    made = groups.small_average([[4.0], [6.0]], ["b", "b"], previous)
    assert made["b"].tolist() == [5.0]
    made["a"] += 1
    assert previous["a"].tolist() == [1.0, 2.0]


@given(SEEDS, st.integers(1, 8))
def test_running_mean_of_snapshots_is_their_mean(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    snapshots = [{"w": rng.normal(size=4).astype(np.float32), "t": np.int64([i])} for i in range(count)]
    kept, running = [snapshot["w"].copy() for snapshot in snapshots], swa.RunningMean()
    for snapshot in snapshots:
        running.add(snapshot)
    made = running.result()
    np.testing.assert_allclose(made["w"], swa.swa_average(kept), rtol=1e-6, atol=1e-7)
    assert (made["w"].dtype, made["t"].tolist()) == (np.float32, [count - 1])
    assert all((snapshot["w"] == before).all() for snapshot, before in zip(snapshots, kept, strict=True))


def test_swa_of_fedbe() -> None:
    """10k images in batches of 128 over 20 epochs: 1580 steps, snapshots 275, 300, …, 1575: 53 of them."""
    plan = schedules.swa_schedule(1e-3, 4e-4, 25, 250, 1580)
    assert (plan.collect[0], plan.collect[-1], len(plan.collect)) == (275, 1575, 53)
    assert plan.lr[24] == pytest.approx(4e-4) and plan.lr[25] == pytest.approx(9.76e-4)
    assert schedules.swa_schedule(1e-3, 4e-4, 25, 250, 274).collect == []


# --------------------------------------------------------------------------------------------------------------- Fed-ET
@given(SEEDS, st.integers(1, 5))
def test_fedet_gradient_is_mass_q_minus_target(seed: int, clients: int) -> None:
    """Of the mean loss over B samples: (q - onehot + lambda (mass q - d)) / B."""
    rng = np.random.default_rng(seed)
    targets = fedet.targets(rng.normal(size=(clients, 6, 4)) * 3)
    server = torch.from_numpy(rng.normal(size=(6, 4))).requires_grad_(True)
    label, diverse = torch.from_numpy(targets.label), torch.from_numpy(targets.div_target)
    fedet.loss(server, label, diverse, 0.5).backward()
    q = weigh.softmax(server.detach().numpy())
    expected = (q - np.eye(4)[targets.label] + 0.5 * (targets.div_mass[:, None] * q - targets.div_target)) / 6
    assert server.grad is not None
    np.testing.assert_allclose(server.grad.numpy(), expected, atol=1e-12)


@given(SEEDS, st.randoms())
def test_fedet_targets_do_not_depend_on_order_or_shift(seed: int, random: Any) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(4, 5, 3))
    order = random.sample(range(4), 4)
    one = fedet.targets(logits)
    two = fedet.targets(logits[order] + rng.normal(size=(4, 5, 1)) * 1e3)
    np.testing.assert_allclose(two.alpha, one.alpha[order], atol=1e-9)
    np.testing.assert_allclose(two.consensus, one.consensus, atol=1e-9)
    np.testing.assert_allclose(one.alpha.sum(axis=0), 1)
    assert (two.label == one.label).all()
    assert (two.div_mask == one.div_mask[order]).all()


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=3))
def test_tie_of_mirrored_clients_goes_to_the_lowest_class(logits: list[float]) -> None:
    """Two clients that are each other's mirror in classes 0 and 1: whatever the last bit of the sums says."""
    first, second, _ = logits
    values = np.array([[logits], [[second, first, logits[2]]]])
    targets = fedet.targets(values)
    expected = 0 if targets.consensus[0, 0] > targets.consensus[0, 2] - 1e-9 else 2
    assert targets.label.tolist() == fedet.targets(values[::-1]).label.tolist() == [expected]


def test_fedet_edges() -> None:
    flat = fedet.targets(np.zeros((2, 1, 3)))
    assert (flat.alpha.tolist(), flat.label.tolist(), flat.div_mass.tolist()) == ([[0.5], [0.5]], [0], [0.0])
    single = fedet.targets(np.ones((2, 3, 1)))
    server, label = torch.zeros(3, 1, dtype=torch.float64), torch.from_numpy(single.label)
    assert float(fedet.loss(server, label, torch.from_numpy(single.div_target))) == 0
    huge = fedet.targets(np.array([[[1e300, 0.0]], [[0.0, 1e300]]]))
    assert np.isfinite(huge.consensus).all()


# --------------------------------------------------------------------------------------------------------------- FedTGP
@given(SEEDS, st.integers(2, 5))
def test_margin_is_the_slow_one_and_scales_with_the_features(seed: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    clients = [{label: rng.normal(size=3) for label in range(classes)} for _ in range(3)]
    centres = [np.mean([means[label] for means in clients], axis=0) for label in range(classes)]
    gaps = [min(np.linalg.norm(a - b) for j, b in enumerate(centres) if j != i) for i, a in enumerate(centres)]
    made = fedtgp.margin(clients, classes)
    np.testing.assert_allclose(made.gap, gaps)
    assert made.margin == pytest.approx(max(gaps))
    scaled = fedtgp.margin(
        [{label: mean * 1e200 for label, mean in means.items()} for means in clients], classes, 1e300
    )
    np.testing.assert_allclose(scaled.gap, np.multiply(gaps, 1e200))


def test_prototypes_learn_to_lie_at_the_means() -> None:
    torch.manual_seed(0)
    means, labels = torch.tensor([[4.0, 0.0], [0.0, 4.0], [-4.0, 0.0]]), torch.arange(3)
    network = fedtgp.Prototypes(3, 2)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    first = fedtgp.contrast(network(), means, labels, 1.0).item()
    for _ in range(200):
        optimizer.zero_grad()
        fedtgp.contrast(network(), means, labels, 1.0).backward()
        optimizer.step()
    assert fedtgp.contrast(network(), means, labels, 1.0).item() < first / 2
    assert (torch.cdist(means, network().detach()).argmin(dim=1) == labels).all()


def test_contrast_by_hand() -> None:
    """Distances 0 and 5 to the two prototypes, margin 5: the odds are even."""
    prototypes = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    loss = fedtgp.contrast(prototypes, torch.zeros(1, 2), torch.tensor([0]), 5.0)
    assert float(loss) == pytest.approx(np.log(2))


# --------------------------------------------------------------------------------------------------------- combinations
def test_entropy_reduction_sharpens_and_keeps_ties() -> None:
    made = combine.ds_fl_target([[[0.5, 0.3, 0.2]], [[0.3, 0.5, 0.2]]], 1e-308)
    assert made.target.tolist() == [[0.5, 0.5, 0.0]]
    assert weigh.entropy(np.log(combine.ds_fl_target([[[0.6, 0.3, 0.1]]], 0.1).target)) < 0.25


@given(SEEDS)
def test_ring_of_one_round_is_the_average_of_its_groups(seed: int) -> None:
    logits = np.random.default_rng(seed).normal(size=(3, 4, 5))
    made = combine.ring_ensemble([logits], 2.0)
    np.testing.assert_allclose(made.target, combine.average_logits(logits, None, 2.0))
    twice = combine.ring_ensemble([logits, logits[::-1]], 2.0)
    np.testing.assert_allclose(twice.target, made.target)
    assert (made.members, twice.members) == (3, 6)


@pytest.mark.parametrize("temperature", [1e-308, 1e-3, 1e3, 1e300])
def test_extreme_temperatures_and_powers_stay_finite(temperature: float) -> None:
    logits = [[[1e300, -1e300, 0.0]], [[3.0, 2.0, 1.0]]]
    target = combine.average_logits(logits, None, temperature)
    np.testing.assert_allclose(target.sum(axis=1), 1)
    np.testing.assert_allclose(combine.sharpen([[0.5, 0.25, 0.25, 0.0]], temperature).sum(axis=1), 1)
    np.testing.assert_allclose(weigh.entropy_softmax([[[3.0, 0.0]], [[1.0, 0.0]]], temperature).sum(axis=0), 1)


def test_variance_of_huge_and_tiny_logits() -> None:
    made = weigh.variance([[[1e300, 0.0]], [[1e300, 0.0]], [[1.0, 1.0]]], "logits")
    np.testing.assert_allclose(made[:, 0], [0.5, 0.5, 0.0])
    tiny = weigh.variance([[[1e-200, 0.0]], [[3e-200, 0.0]]], "logits")
    np.testing.assert_allclose(tiny[:, 0], [0.1, 0.9])


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: groups.group_means([[1.0]], [1], [1], [[0.0]]), "out_of_range"),
        (lambda: groups.group_means([[1.0]], [1], [0, 0], [[0.0]]), "schema_mismatch"),
        (lambda: groups.group_means([[1.0]], [1], [0], [[0.0, 0.0]]), "schema_mismatch"),
        (lambda: groups.group_means([[1.0]], [-1], [0], [[0.0]]), "bad_weight"),
        (lambda: groups.group_means([[np.nan]], [1], [0], [[0.0]]), "non_finite"),
        (lambda: groups.group_means([], [], [], []), "bad_option"),
        (lambda: groups.plain_mean([]), "no_participants"),
        (lambda: groups.plain_mean([[1.0], [1.0, 2.0]]), "schema_mismatch"),
        (lambda: groups.small_average([[1.0]], ["c"], {"a": [1.0]}), "out_of_range"),
        (lambda: groups.small_average([[1.0]], [], {"a": [1.0]}), "schema_mismatch"),
        (lambda: groups.small_average([[1.0, 2.0]], ["a"], {"a": [1.0]}), "schema_mismatch"),
        (lambda: swa.swa_average([]), "nothing_collected"),
        (lambda: swa.RunningMean().result(), "nothing_collected"),
        (lambda: swa.swa_average([[1.0], [1.0, 2.0]]), "schema_mismatch"),
        (lambda: schedules.swa_schedule(1.0, 0.1, 0, 0, 5), "bad_option"),
        (lambda: schedules.swa_schedule(1.0, 0.1, 5, -1, 5), "bad_option"),
        (lambda: schedules.swa_schedule(1.0, np.nan, 5, 0, 5), "bad_option"),
        (lambda: schedules.swa_schedule(1.0, 0.1, 5, 0, 0), "no_steps"),
        (lambda: schedules.swa_lr(1.0, 0.1, 5, 0), "out_of_range"),
        (lambda: fedet.targets([]), "no_participants"),
        (lambda: fedet.targets([[1.0]]), "schema_mismatch"),
        (lambda: fedet.targets([[[np.inf, 0.0]]]), "non_finite"),
        (lambda: fedet.loss(torch.zeros(2, 3), torch.zeros(2).long(), torch.zeros(2, 2)), "schema_mismatch"),
        (lambda: fedet.loss(torch.zeros(2, 3), torch.zeros(2).long(), torch.zeros(2, 3), -1.0), "bad_option"),
        (lambda: fedet.loss(torch.full((1, 3), np.nan), torch.zeros(1).long(), torch.zeros(1, 3)), "non_finite"),
        (lambda: fedtgp.margin([], 2), "no_participants"),
        (lambda: fedtgp.margin([{0: [1.0]}], 2), "too_few_classes"),
        (lambda: fedtgp.margin([{0: [1.0], 2: [1.0]}], 2), "out_of_range"),
        (lambda: fedtgp.margin([{0: [1.0], 1: [1.0, 2.0]}], 2), "schema_mismatch"),
        (lambda: fedtgp.margin([{0: [1.0], 1: [np.nan]}], 2), "non_finite"),
        (lambda: fedtgp.margin([{0: [1.0], 1: [2.0]}], 2, 0.0), "bad_option"),
        (lambda: fedtgp.contrast(torch.zeros(2, 3), torch.zeros(1, 2), torch.zeros(1).long(), 1.0), "schema_mismatch"),
        (lambda: combine.ds_fl_target([]), "no_participants"),
        (lambda: combine.ds_fl_target([[0.5, 0.5]]), "schema_mismatch"),
        (lambda: combine.ds_fl_target([[[1.5, 0.5]]]), "out_of_range"),
        (lambda: combine.ds_fl_target([[[np.nan, 0.5]]]), "non_finite"),
        (lambda: combine.ds_fl_target([[[0.5, 0.5]]], 0.0), "bad_option"),
        (lambda: combine.ring_ensemble([]), "no_participants"),
        (lambda: combine.ring_ensemble([np.zeros((1, 2, 3)), np.zeros((1, 2, 4))]), "schema_mismatch"),
        (lambda: combine.sharpen([[0.0, 0.0]]), "no_positive_weight"),
    ],
)
def test_refusals(call: Any, code: str) -> None:
    with pytest.raises(PartError) as caught:
        call()
    assert caught.value.code == code
