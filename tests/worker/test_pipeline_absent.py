"""Rounds that count absent clients: the bank, the anchor, balanced odds; what they are with every knob off."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contract.recipes import presets
from contract.tensors import TensorFile, write_file
from worker.checkpoints import Checkpoints
from worker.parts.balance import balance
from worker.pipeline import run
from worker.pipeline.networks import build_network
from worker.specs import JobFailure, JobResult, NetworkRef, RegisteredSpec, UpdateSpec

Read = Callable[[Path], dict[str, np.ndarray]]
SHORT: dict[str, Any] = {"schedule": {"epochs": 2, "batch_size": 8}}
ENTROPY = {"kind": "entropy", "tau": 0.3}
BALANCED = {"kind": "product", "factors": [{"kind": "balanced_odds"}, ENTROPY]}


def recipe(**options: Any) -> Any:
    return presets.build("fedgo-small", SHORT | {"weigh": BALANCED} | options)


def registered(world: Any, names: list[str] | None = None) -> dict[str, RegisteredSpec]:
    """Return all of a federation's clients, or some of them."""
    return {
        name: RegisteredSpec(prototype="main", num_samples=world.samples_of(name), scores=world.root / f"scores-{name}")
        for name in names or world.names
    }


def some(world: Any, *numbers: int) -> list[UpdateSpec]:
    """Return the updates of some clients, by their places."""
    return [each for place, each in enumerate(world.updates()) if place in numbers]


def made(result: JobResult, name: str = "main") -> bytes:
    return result.models[name].read_bytes()


def claims(world: Any, read: Read) -> np.ndarray:
    return read(world.state["claims"])["unlabeled"]


# ------------------------------------------------------------------------------------------------------ every knob off
@pytest.mark.parametrize(
    "weigh",
    [
        {"kind": "balanced_odds", "sweeps": 0},
        {"kind": "product", "factors": [{"kind": "balanced_odds", "sweeps": 0}, {"kind": "uniform"}]},
    ],
    ids=["alone", "product"],
)
def test_without_sweeps_and_memory_it_is_fedgo_with_plain_odds_bit_for_bit(
    tmp_path: Path, federation: Any, weigh: dict[str, Any]
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    plain = federation(tmp_path / "one", presets.build("fedgo-small", SHORT | {"weigh.link": "sigmoid"}))
    off = federation(tmp_path / "two", recipe(weigh=weigh))
    for asked in ((0, 2), (1, 2, 4)):
        expected = plain.round(some(plain, *asked))
        found = off.round(some(off, *asked), registered=registered(off))
        assert made(found) == made(expected)
        for figure in ("accuracy", "ensemble", "teacher_weights", "teacher_forwards", "flops", "distil"):
            assert found.metrics[figure] == expected.metrics[figure]


@pytest.mark.parametrize("members", ["bank", "anchor"])
def test_where_all_take_part_nobody_is_absent(tmp_path: Path, federation: Any, members: str) -> None:
    """Logits are kept in float32, which is what the network gave."""
    worlds = []
    for kind in (members, "clients"):
        (tmp_path / kind).mkdir()
        worlds.append(federation(tmp_path / kind, recipe(members={"kind": kind})))
    one, two = (world.round(registered=registered(world)) for world in worlds)
    assert made(one) == made(two)
    assert one.metrics["teacher_forwards"] == two.metrics["teacher_forwards"]


# -------------------------------------------------------------------------------------------------------- balanced odds
def test_claims_are_of_all_who_are_registered_and_add_up(tmp_path: Path, federation: Any, tensors: Read) -> None:
    world = federation(tmp_path, recipe())
    result = world.round(some(world, 0, 3), registered=registered(world))
    weights = np.exp(claims(world, tensors))
    counts = np.array([world.samples_of(name) for name in world.names])
    assert weights.shape == (5, 21) and weights.dtype == np.float64
    np.testing.assert_allclose(weights.mean(axis=1), counts / counts.sum(), rtol=1e-12)
    np.testing.assert_allclose(weights.sum(axis=0), 1, atol=1e-5)
    assert result.metrics["balance"]["clients"] == 5 and result.metrics["balance"]["sum_error"] < 1e-5


def test_claims_of_sharper_odds_are_those_of_larger_scores(tmp_path: Path, federation: Any, tensors: Read) -> None:
    """beta z balanced is z balanced where all scores are beta times as large; another beta balances anew."""
    world = federation(tmp_path, recipe(weigh={"kind": "balanced_odds", "sharpness": 2.5}))
    world.round(some(world, 0, 3), registered=registered(world))
    counts = np.array([world.samples_of(name) for name in world.names], np.float64)
    scores = [tensors(tmp_path / f"scores-{name}")["unlabeled"].astype(np.float64) for name in world.names]
    logs = np.log(counts)[:, None] + 2.5 * np.stack(scores)
    np.testing.assert_allclose(claims(world, tensors), balance(logs, counts, 50).logs, rtol=1e-12)
    first = world.state["claims"]
    world.recipe = recipe(weigh={"kind": "balanced_odds", "sharpness": 1.0})
    world.round(some(world, 0, 3), registered=registered(world))
    assert not np.allclose(claims(world, tensors), tensors(first)["unlabeled"])


def test_claims_are_kept_until_somebody_joins_leaves_or_has_other_samples(
    tmp_path: Path, federation: Any, tensors: Read
) -> None:
    world = federation(tmp_path, recipe())
    four = registered(world, world.names[:4])
    world.round(some(world, 0, 1), registered=four)
    first = world.state["claims"]
    world.round(some(world, 1, 2), registered=four)
    assert world.state["claims"] == first  # the file itself
    world.round(some(world, 0, 1), registered=registered(world))  # one is late
    assert claims(world, tensors).shape == (5, 21)
    world.round(some(world, 0, 1), registered=four)  # and is gone again
    assert np.array_equal(claims(world, tensors), tensors(first)["unlabeled"])
    more = four | {"ward-1": four["ward-1"].model_copy(update={"num_samples": 99})}
    world.round(some(world, 0, 1), registered=more)
    assert not np.allclose(claims(world, tensors), tensors(first)["unlabeled"])


def test_a_registered_client_without_scores_is_none(tmp_path: Path, federation: Any, tensors: Read) -> None:
    world = federation(tmp_path, recipe())
    late = RegisteredSpec(prototype="main", num_samples=9)
    world.round(some(world, 0, 1), registered=registered(world) | {"late": late})
    assert claims(world, tensors).shape == (5, 21)


def test_scores_without_the_server_set_are_refused(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, recipe())
    write_file(tmp_path / "scores-ward-5", {"test": np.zeros(12, np.float32)})
    with pytest.raises(JobFailure, match=r"'ward-5' has no scores of the unlabeled set"):
        world.round(some(world, 0, 1), registered=registered(world))


# ------------------------------------------------------------------------------------------------------------- the bank
def logits(world: Any, update: UpdateSpec, inputs: np.ndarray) -> np.ndarray:
    ref = NetworkRef(**world.networks[update.prototype], weights=update.weights)
    module = build_network(ref, world.task, "cpu", owner="reference").eval()
    with torch.no_grad():
        found: np.ndarray = module(torch.from_numpy(inputs)).numpy()
    return found


def bank(world: Any) -> list[str]:
    return sorted(name.removeprefix("bank.") for name in world.state if name.startswith("bank."))


def test_the_bank_holds_what_every_client_said_last(tmp_path: Path, federation: Any, tensors: Read) -> None:
    world = federation(tmp_path, recipe(members={"kind": "bank"}))
    sets = {name: tensors(tmp_path / name)["inputs"] for name in ("unlabeled", "test")}
    said: dict[str, UpdateSpec] = {}
    for asked, teachers in (((0, 1), 2), ((1, 4), 3), ((0,), 3)):
        updates = some(world, *asked)
        said |= {each.client: each for each in updates}
        result = world.round(updates, registered=registered(world))
        assert result.metrics["ensemble"]["teachers"] == teachers
        assert result.metrics["bank"] == {"heard": len(asked), "remembered": teachers - len(asked)}
        assert result.metrics["teacher_forwards"] == len(asked) * 21  # who is absent is not run
        assert set(result.metrics["teacher_weights"]) == set(said)
        assert bank(world) == sorted(said)
        for client, update in said.items():
            kept = tensors(world.state[f"bank.{client}"])
            for name, inputs in sets.items():
                assert kept[name].dtype == np.float32
                np.testing.assert_allclose(kept[name], logits(world, update, inputs), atol=1e-6)


def test_who_is_no_longer_registered_is_forgotten(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, recipe(members={"kind": "bank"}))
    world.round(some(world, 0, 1), registered=registered(world))
    world.round(some(world, 2), registered=registered(world, [name for name in world.names if name != "ward-2"]))
    assert bank(world) == ["ward-1", "ward-3"]
    assert set(world.results[-1].metrics["teacher_weights"]) == {"ward-1", "ward-3"}


def test_a_bank_needs_no_discriminators(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, presets.build("feddf", SHORT | {"members": {"kind": "bank"}, "weigh": ENTROPY}))
    for asked in ((0, 1), (2,)):
        world.round(some(world, *asked), registered=registered(world))
    assert set(world.results[-1].metrics["teacher_weights"]) == {"ward-1", "ward-2", "ward-3"}


def test_a_bank_of_another_server_set_is_refused(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, recipe(members={"kind": "bank"}))
    world.round(some(world, 0), registered=registered(world))
    write_file(world.state["bank.ward-1"], {"unlabeled": np.zeros((20, 3), np.float32)})
    with pytest.raises(JobFailure, match=r"'ward-1'.*unlabeled set"):
        world.round(some(world, 1), registered=registered(world))


def test_a_resumed_round_keeps_what_clients_said(tmp_path: Path, federation: Any, tensors: Read) -> None:
    """Labels are there from an earlier attempt, whose files are not: teachers are heard again."""
    world = federation(tmp_path, recipe(members={"kind": "bank"}))
    spec = world.spec("whole", some(world, 0, 1), registered=registered(world))
    one = run(spec, lambda _: None, checkpoints=Checkpoints(tmp_path / "kept", "k", 1, 0.0))
    again = spec.model_copy(update={"output_dir": tmp_path / "again"})
    two = run(again, lambda _: None, checkpoints=Checkpoints(tmp_path / "kept", "k", 2, 0.0))
    assert made(one) == made(two)
    for name in ("bank.ward-1", "bank.ward-2", "claims"):
        assert (one.state or {})[name].read_bytes() == (two.state or {})[name].read_bytes()


# ----------------------------------------------------------------------------------------------------------- the anchor
def test_the_anchor_counts_what_the_absent_clients_would(tmp_path: Path, federation: Any, tensors: Read) -> None:
    """Without entropy all weights are those of the claims: the anchor's are the sum of the absent clients'."""
    world = federation(tmp_path, recipe(members={"kind": "anchor"}, weigh={"kind": "balanced_odds"}))
    first = world.round(some(world, 0, 1), registered=registered(world))
    assert set(first.metrics["teacher_weights"]) == {"ward-1", "ward-2"}  # nobody has trained that model yet
    second = world.round(some(world, 0, 1), registered=registered(world))
    weights = np.exp(claims(world, tensors))
    shares = (weights / weights.sum(axis=0)).mean(axis=1)
    expected = {"ward-1": shares[0], "ward-2": shares[1], "anchor of main": shares[2:].sum()}
    assert second.metrics["teacher_weights"] == pytest.approx(expected, rel=1e-9)
    assert not bank(world)


def test_an_anchor_by_samples(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, presets.build("feddf", SHORT | {"members.kind": "anchor", "weigh.kind": "samples"}))
    for _ in range(2):
        world.round(some(world, 0, 1), registered=registered(world))
    counts = np.array([world.samples_of(name) for name in world.names]) / sum(map(world.samples_of, world.names))
    found = world.results[-1].metrics["teacher_weights"]
    assert found == pytest.approx({"ward-1": counts[0], "ward-2": counts[1], "anchor of main": counts[2:].sum()})


def test_an_anchor_after_a_bank_lets_it_go(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, recipe(members={"kind": "bank"}))
    world.round(some(world, 0, 1), registered=registered(world))
    said = {"kind": "anchor", "instead_of": "bank"}
    result = world.round(
        some(world, 0, 2),
        registered=registered(world),
        recipe=recipe(members={"kind": "anchor"}),
        exchanged=said,
    )
    assert result.metrics["members"] == said and not bank(world)


def test_several_models_have_an_anchor_each(tmp_path: Path, federation: Any) -> None:
    small = {"architecture": "cnn-digits", "options": {"widths": [2, 3]}}
    large = {"architecture": "cnn-digits", "options": {"widths": [3, 4]}}
    world = federation(tmp_path, recipe(members={"kind": "anchor"}), prototypes={"a": small, "b": large})
    everyone = {
        name: each.model_copy(update={"prototype": "a" if place % 2 else "b"})
        for place, (name, each) in enumerate(registered(world).items())
    }
    for _ in range(2):
        world.round(some(world, 0), registered=everyone)
    assert set(world.results[-1].metrics["teacher_weights"]) == {"ward-1", "anchor of a", "anchor of b"}


def test_a_file_that_is_kept_says_whose_it_is(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, recipe())
    world.round(some(world, 0), registered=registered(world))
    with TensorFile(world.state["claims"]) as file:
        assert file.header.metadata["clients"] == '["ward-1", "ward-2", "ward-3", "ward-4", "ward-5"]'
