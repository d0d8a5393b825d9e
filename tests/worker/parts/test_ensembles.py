"""Fed-ET's server part, DS-FL's targets, the ring's ensemble."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from worker.parts import combine, fedet, weigh
from worker.parts.errors import PartError

SEEDS = st.integers(0, 2**32 - 1)


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
        (lambda: fedet.targets([]), "no_participants"),
        (lambda: fedet.targets([[1.0]]), "schema_mismatch"),
        (lambda: fedet.targets([[[np.inf, 0.0]]]), "non_finite"),
        (lambda: fedet.loss(torch.zeros(2, 3), torch.zeros(2).long(), torch.zeros(2, 2)), "schema_mismatch"),
        (lambda: fedet.loss(torch.zeros(2, 3), torch.zeros(2).long(), torch.zeros(2, 3), -1.0), "bad_option"),
        (lambda: fedet.loss(torch.full((1, 3), np.nan), torch.zeros(1).long(), torch.zeros(1, 3)), "non_finite"),
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
