"""Stacked federations: networks, steps and weights are those of networks one by one, and of the product."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from contract.nn.registry import build
from contract.wire.federations import Task
from experiments import carry
from experiments.stacked import __main__ as command
from experiments.stacked import network, odds
from experiments.stacked.federation import Arm, Case, Seen, balanced, by, case_of, dealt_of, run, true_counts
from worker.parts.weigh import normalise

TASK = Task.model_validate({"num_classes": 10, "input": {"shape": [1, 8, 8]}})


def alone(weights: network.Weights) -> torch.nn.Module:
    """Return the product's `cnn-digits` with one network's parameters."""
    module = build("cnn-digits", {}, task=TASK)
    layers: list[Any] = list(module.children())
    first, norm, _, second, other, _, _, last = layers
    with torch.no_grad():
        first.weight.copy_(weights["w1"].T.reshape(16, 1, 3, 3))
        second.weight.copy_(weights["w2"].view(3, 3, 16, 32).permute(3, 2, 0, 1))
        last.weight.copy_(weights["w3"].view(2, 2, 32, 10).permute(3, 2, 0, 1).reshape(10, 128))
        for layer, name in ((first, "b1"), (second, "b2"), (last, "b3"), (norm, "e1"), (other, "e2")):
            layer.bias.copy_(weights[name][0])
    return module


def images(count: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def test_two_stacked_networks_are_two_of_the_product_s() -> None:
    drawn = [network.begin(3), network.begin(4)]
    seen = [images(12, 1), images(12, 2)]
    norms = network.statistics(2)
    inputs = torch.stack([network.patches(each) for each in seen])
    for training in (True, False):
        found = network.forward(network.stack(drawn), inputs, norms, training=training)
        for place, (one, given) in enumerate(zip(drawn, seen, strict=True)):
            module = alone(one)
            expected = module.train()(given)
            torch.testing.assert_close(
                found[place], expected if training else module.eval()(given), atol=1e-4, rtol=1e-4
            )


def test_clients_of_different_sizes_train_as_they_would_alone() -> None:
    """Seven and three samples, batches of four: the first has two steps an epoch, the second one."""
    sizes, drawn = (3, 7), [network.begin(3), network.begin(4)]
    data = [network.patches(images(size, size)) for size in sizes]
    labels = [torch.arange(size) % 10 for size in sizes]
    offsets = torch.stack([torch.zeros(10), torch.linspace(-1, 0, 10)])

    def trained(which: list[int]) -> network.Weights:
        random = [torch.Generator().manual_seed(each) for each in which]
        return network.train(
            network.stack([drawn[each] for each in which]), network.statistics(len(which)),
            [data[each] for each in which], [labels[each] for each in which], offsets[which], random, 3, 4,
        )[0]  # fmt: skip

    both = trained([0, 1])
    for client in (0, 1):
        for name, value in trained([client]).items():
            if name not in (
                "b1",
                "b2",
            ):  # BatchNorm takes these off: their gradients are rounding, which Adam scales up
                torch.testing.assert_close(both[name][client], value[0], atol=1e-4, rtol=1e-3)


def test_a_client_trains_as_by_a_loop_of_pytorch() -> None:
    module, given, labels = alone(network.begin(5)), images(6), torch.arange(6)
    adam, random = torch.optim.Adam(module.train().parameters(), lr=1e-3), torch.Generator().manual_seed(1)
    offset = torch.linspace(-2, 0, 10)
    for _ in range(2):
        for rows in torch.split(torch.randperm(6, generator=random), 4):
            adam.zero_grad()
            functional.cross_entropy(module(given[rows]) + offset, labels[rows]).backward()
            adam.step()
    one = network.stack([network.begin(5)])
    weights, norms = network.train(
        one, network.statistics(1), [network.patches(given)], [labels], offset[None],
        [torch.Generator().manual_seed(1)], 2, 4,
    )  # fmt: skip
    found = network.forward(weights, network.patches(given)[None], norms)[0]
    torch.testing.assert_close(found, module.eval()(given), atol=5e-3, rtol=0)


def case(seed: int = 0) -> Case:
    """Return three clients of two classes each, whose discriminators know their own."""
    random = np.random.default_rng(seed)
    counts = np.zeros((3, 10), int)
    for client in range(3):
        counts[client, [client, client + 3]] = 6 + client
    truth = np.arange(30) % 6
    labels = [torch.as_tensor(np.repeat(np.arange(10), row)) for row in counts]
    shades = torch.linspace(0, 1, 10)
    drawn = [network.patches(shades[each].view(-1, 1, 1, 1) + images(len(each), 9) / 9) for each in labels]
    scores = np.where(counts[:, truth] > 0, 2.0, -2.0) + random.normal(0, 0.1, (3, 30))
    server = network.patches(shades[truth].view(-1, 1, 1, 1) + images(30, 8) / 9)
    return Case(
        seed, counts, drawn, labels, server, truth, server, torch.as_tensor(truth), scores, scores, [[0, 1], [1, 2]]
    )


def test_perfect_weights_are_a_classs_shares() -> None:
    given = case()
    weights = normalise(list(true_counts(given)))
    shares = given.counts[:, given.truth] / given.counts[:, given.truth].sum(axis=0)
    np.testing.assert_allclose(weights, shares, atol=1e-12)


def test_a_bank_labels_by_all_who_were_seen_and_sharper_odds_trust_owners_more() -> None:
    given = case()
    said = {client: np.eye(10)[client][None].repeat(30, 0) * 9 for client in range(3)}
    seen = Seen([1], said, dict.fromkeys(said, 0), np.zeros((30, 10)))
    few = by(balanced())(given, seen)
    assert (few.argmax(axis=1) == 1).all(), "the only client of the round"
    soft, sharp = (by(balanced(scale), bank=True)(given, seen) for scale in (1, 5))
    owners = given.truth % 3
    assert (soft.argmax(axis=1) == owners).all() and (sharp.argmax(axis=1) == owners).all()
    places = np.arange(30)
    assert (sharp[places, owners] > soft[places, owners]).all()


def test_arms_run_side_by_side_and_as_they_would_alone() -> None:
    cases, plain = [case(0), case(1)], by(lambda each: each.plain())
    arms = {"average": Arm(None), "plain": Arm(plain), "loss": Arm(plain, 0.5)}
    together = run(cases, arms)
    assert [len(each.model) for runs in together.values() for each in runs] == [2] * 6
    assert [len(each.labels) for each in together["plain"]] == [2, 2] and together["average"][0].labels == []
    single = run(cases[1:], {"plain": arms["plain"]})["plain"][0]
    np.testing.assert_allclose(single.model, together["plain"][1].model, atol=0.1)
    flipped = run([Case(**{**vars(cases[0]), "flipped": frozenset({0, 1, 2})})], {"average": Arm(None)})
    assert flipped["average"][0].model[-1] <= together["average"][0].model[-1]


def test_a_case_is_what_the_product_deals_and_its_liars_lie() -> None:
    told = {**carry.DIGITS["digits, 4 label shifters, alpha 0.3"], "clients": 6, "liars": 2, "rounds": 2}
    honest = {key: value for key, value in told.items() if key not in ("liars", "lie")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(odds, "generator", lambda images, seed: odds._linear((odds.LATENT, 8, 64), torch.Generator()))
        patch.setattr(odds, "scores", lambda dealt, *rest, **more: torch.zeros(len(dealt.clients), len(dealt.server)))
        one, other = case_of(told, 0), case_of(honest, 0)
    same = [torch.equal(a, b) for a, b in zip(one.labels, other.labels, strict=True)]
    assert same.count(False) == 2 and one.counts.sum() == other.counts.sum()
    assert one.asked == other.asked and len(one.asked) == 2 and len(one.asked[0]) == 4


def test_discriminators_learn_whose_images_they_are() -> None:
    """Clients with dark and bright images, a generator of noise between them."""
    told = {"data": "digits", "clients": 2, "partition": "iid"}
    dealt = dealt_of(told, 0)
    made = [each.detach() for each in odds._linear((odds.LATENT, 8, odds.EDGE**2), torch.Generator().manual_seed(0))]
    found = odds.scores(dealt, made, 0, epochs=3)
    assert found.shape == (2, len(dealt.server)) and found.dtype == torch.float64
    assert found.mean() > 0, "the server's digits look like theirs, not like noise"


def test_the_share_of_the_distance() -> None:
    """From 50 to 80, 65 is a half."""
    found = {carry.PLAIN: [[0.4, 0.6]], command.PERFECT: [[0.8, 0.8]], "mine": [[0.6, 0.7]]}
    assert command.closed(found) == {"mine": pytest.approx(0.5)}


def test_a_table_has_paired_differences_and_a_picture_dots(tmp_path: Path) -> None:
    found = {
        "one": {carry.REFLUX: [[0.6, 0.8], [0.7, 0.7]], carry.PLAIN: [[0.5, 0.5], [0.6, 0.7]]},
        "two": {carry.REFLUX: [[0.5]], carry.PLAIN: [[0.505]], carry.AVG: [[0.4]]},
    }
    lines = carry.table(found)
    assert lines[0] == "| setting | Reflux | minus FedGO plain | minus FedAvg |"
    assert lines[2] == "| one | 70.0 % | **+12.5 ± 10.6** | – |"
    assert lines[3] == "| two | 50.0 % | -0.5 | **+10.0** |"
    carry.draw(tmp_path / "a" / "b.png", found)
    assert (tmp_path / "a" / "b.png").read_bytes().startswith(b"\x89PNG")


def test_what_comes_before_the_rounds_is_given_to_arms_that_lack_it(tmp_path: Path) -> None:
    for name in carry.BEFORE:
        (tmp_path / "FedGO_plain" / name).mkdir(parents=True)
        (tmp_path / "FedGO_plain" / name / "result.json").write_text(name)
    carry._give(tmp_path, carry.REFLUX, carry.ALIKE)
    assert [(tmp_path / "Reflux" / name / "result.json").read_text() for name in carry.BEFORE] == list(carry.BEFORE)
