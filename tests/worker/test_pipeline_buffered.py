"""Rounds that do not wait, as a worker fuses them: fresh updates are a round as ever, older ones count by their age."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.recipes import presets
from contract.staleness import StalenessConstant, StalenessPolynomial
from contract.tensors import TensorFile, write_file
from tests.reference import fusing
from worker.pipeline import run
from worker.specs import Begun, JobFailure, JobResult, UpdateSpec

SHORT = {"schedule": {"epochs": 2, "batch_size": 8, "optimizer": {"kind": "adam"}}}
BY_AGE = StalenessPolynomial()
RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "fedavg": ("fedavg", {}),
    "fedavgm": ("fedavgm", {}),
    "fedadam": ("fedadam", {}),
    "median": ("fedavg", {"fuse": {"kind": "median"}}),
    "feddf": ("feddf", SHORT),
    "fedbe": ("fedbe", SHORT),
    "fedgo-small": ("fedgo-small", SHORT),
}


def build(tmp_path: Path, federation: Any, name: str) -> Any:
    preset, options = RECIPES[name]
    return federation(tmp_path, presets.build(preset, options), presets.PRESETS[preset].local)


def ignore(_: object) -> None:
    """Take progress and do nothing with it."""


def bytes_of(result: JobResult) -> dict[str, bytes]:
    files = {**result.models, **{f"state {name}": path for name, path in (result.state or {}).items()}}
    return {name: path.read_bytes() for name, path in files.items()}


def values(path: Path) -> dict[str, np.ndarray]:
    with TensorFile(path) as file:
        return {name: file.read(name) for name in file.names}


@pytest.mark.parametrize("name", RECIPES)
def test_fresh_updates_make_a_synchronous_rounds_bytes(name: str, tmp_path: Path, federation: Any) -> None:
    world = build(tmp_path, federation, name)
    waits = run(world.spec("waits"), ignore)
    goes = run(world.spec("goes", staleness=BY_AGE), ignore)
    assert bytes_of(waits) == bytes_of(goes)
    assert {told["factor"] for told in goes.metrics["staleness"].values()} == {1.0}


def aged(world: Any) -> list[UpdateSpec]:
    """Run a round, and return updates for the next: one of the model before, the others of the one that it made."""
    old, first = world.updates()[0], dict(world.models)
    world.round()
    fresh = world.updates()[1:]
    return [old.model_copy(update={"begun": Begun(base=first[old.prototype], staleness=1)}), *fresh]


@pytest.mark.parametrize("name", RECIPES)
def test_an_older_update_counts_in_any_order(name: str, tmp_path: Path, federation: Any) -> None:
    world = build(tmp_path, federation, name)
    updates = aged(world)
    one = run(world.spec("one", updates, staleness=BY_AGE), ignore)
    other = run(world.spec("other", updates[::-1], staleness=BY_AGE), ignore)
    assert bytes_of(one) == bytes_of(other)
    assert one.metrics["staleness"][updates[0].client] == {"versions": 1, "factor": 2**-0.5}
    without = run(world.spec("without", updates[1:], staleness=BY_AGE), ignore)
    assert bytes_of(one)["main"] != bytes_of(without)["main"]
    kept = run(world.spec("constant", updates, staleness=StalenessConstant()), ignore)
    assert name == "median" or bytes_of(one)["main"] != bytes_of(kept)["main"]
    assert not list((tmp_path / "one").glob("laid-*"))


def test_the_average_is_fedbuffs(tmp_path: Path, federation: Any) -> None:
    world = build(tmp_path, federation, "fedavg")
    updates = aged(world)
    made = values(run(world.spec("made", updates, staleness=BY_AGE), ignore).models["main"])
    current = values(world.models["main"])
    name = next(each for each in current if each.endswith("weight"))
    begun = [world.models["main"] if each.begun is None else each.begun.base for each in updates]
    wanted = fusing.buffered(
        current[name].ravel(),
        [values(path)[name].ravel() for path in begun],
        [values(each.weights)[name].ravel() for each in updates],
        [each.num_samples for each in updates],
        [2**-0.5, 1.0, 1.0, 1.0, 1.0],
    )
    assert made[name].ravel() == pytest.approx(np.array(wanted), abs=1e-6)


def test_an_older_teacher_is_its_own_model_and_counts_by_its_age(tmp_path: Path, federation: Any) -> None:
    """Four fresh teachers and one of age 1, all alike but for that: 1 to 2^-1/2, over 4 + 2^-1/2."""
    world = build(tmp_path, federation, "feddf")
    updates = aged(world)
    found = run(world.spec("made", updates, staleness=BY_AGE), ignore).metrics["teacher_weights"]
    total = 4 + 2**-0.5
    assert found[updates[0].client] == pytest.approx(2**-0.5 / total)
    assert found[updates[1].client] == pytest.approx(1 / total)


def test_a_client_that_sends_nan_is_named_by_its_own_model(tmp_path: Path, federation: Any) -> None:
    world = build(tmp_path, federation, "fedavg")
    old, *fresh = aged(world)
    broken = values(old.weights)
    name = next(each for each in broken if each.endswith("weight"))
    broken[name].ravel()[0] = np.nan
    path = tmp_path / "broken"
    write_file(path, broken)
    with pytest.raises(JobFailure) as failure:
        run(world.spec("made", [old.model_copy(update={"weights": path}), *fresh], staleness=BY_AGE), ignore)
    assert (failure.value.code, failure.value.client) == ("non_finite", old.client)
