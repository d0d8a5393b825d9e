"""A round whose teachers were asked by other jobs is, byte for byte, the round whose job asked them all."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.recipes import presets
from contract.tensors import TensorFile
from worker import building
from worker.pipeline import run
from worker.pipeline.shards import part_of
from worker.specs import JobFailure, JobResult, Progress, RoundSpec

SHORT: dict[str, Any] = {"schedule": {"steps": 3, "batch_size": 8}}
HEADS: dict[str, Any] = {
    "prototypes": {"small": {"architecture": "mlp", "options": {"hidden": [4], "common_head": True}}},
    "server": {"architecture": "mlp", "options": {"hidden": [9], "common_head": True}},
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "clients": ("feddf", SHORT),
    "a consensus": ("fedet", SHORT),
    "posterior": ("fedbe", {"members": {"kind": "posterior", "samples": 2}, **SHORT}),
    "bank": ("reflux", SHORT),
    "scores": ("fedgo-small", SHORT),
    "groups": ("fedsdd", {"count": 2, "rounds": 3, **SHORT}),
}


def ignore(_: Progress) -> None:
    """Take progress and do nothing with it."""


def outcome(result: JobResult) -> dict[str, Any]:
    """Return bytes of all files and all figures that must be the same."""
    files = {**result.models, **{f"state {name}": path for name, path in (result.state or {}).items()}}
    told = {name: value for name, value in result.metrics.items() if name not in ("seconds", "labels")}
    return {"figures": told} | {name: path.read_bytes() for name, path in files.items()}


def shards_of(whole: RoundSpec, shares: Sequence[tuple[set[str], int, int]]) -> list[Path]:
    """Do the jobs that ask some teachers of some part each; return what they made."""
    made = []
    for number, (teachers, part, parts) in enumerate(shares):
        folder = whole.output_dir.parent / f"{whole.output_dir.name}-shard-{number}"
        found = run(building.shard(whole, teachers, part, parts, folder), ignore)
        made += list(found.models.values())
    return made


def teachers_of(whole: RoundSpec) -> list[str]:
    past = sorted(name for name in whole.state if name.startswith("past."))
    return past or [each.client for each in whole.updates]


@pytest.mark.parametrize("case", CASES)
def test_whoever_asked_the_teachers_the_round_is_the_same(
    tmp_path: Path, federation: Any, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five clients: two shards of whole teachers, one teacher in two parts, and the last asked by the round's job."""
    monkeypatch.setattr("worker.pipeline.networks.BATCH", 4)
    recipe, options = CASES[case]
    networks = HEADS if recipe == "fedet" else {}
    world = federation(tmp_path, presets.build(recipe, options), **networks)
    for _ in range(2 if case == "groups" else 0):
        world.round()
    whole = world.spec("alone")
    names = teachers_of(whole)
    shares = [(set(names[:2]), 0, 1), ({names[2]}, 0, 2), ({names[2]}, 1, 2), ({names[3]}, 0, 1)]
    files = shards_of(whole, shares)
    assert len(files) == 4
    alone = run(whole, ignore)
    shared = run(whole.model_copy(update={"shards": files, "output_dir": tmp_path / "shared"}), ignore)
    assert outcome(shared) == outcome(alone)
    figures = shared.metrics["labels"]
    assert figures["teachers"] - figures["here"] == 4
    assert "labels" not in alone.metrics


def test_what_belongs_to_other_weights_samples_or_machines_is_not_found(
    tmp_path: Path, federation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = federation(tmp_path, presets.build("feddf", SHORT))
    whole = world.spec("alone")
    files = shards_of(whole, [(set(world.names), 0, 1)])
    asked_here = {
        "the same": whole,
        "another update": whole.model_copy(update={"updates": _with_weights_of(whole, 0, 1)}),
    }
    here = {}
    for number, (title, spec) in enumerate(asked_here.items()):
        told = {"shards": files, "output_dir": tmp_path / f"round-{number}"}
        here[title] = run(spec.model_copy(update=told), ignore).metrics["labels"]["here"]
    monkeypatch.setattr("torch.get_num_threads", lambda: 64)
    told = {"shards": files, "output_dir": tmp_path / "threads"}
    here["more threads"] = run(whole.model_copy(update=told), ignore).metrics["labels"]["here"]
    assert here == {"the same": 0, "another update": 0, "more threads": 5}
    assert world.spec("x").shards == []


def _with_weights_of(whole: RoundSpec, one: int, other: int) -> list[Any]:
    """Return updates of which one has another's weights: its outputs are known, for they are that one's."""
    updates = list(whole.updates)
    updates[one] = updates[one].model_copy(update={"weights": updates[other].weights})
    return updates


def test_a_teacher_that_cannot_be_asked_fails_its_shard_and_the_round_names_it(
    tmp_path: Path, federation: Any, tensors: Any
) -> None:
    from contract.tensors import write_file

    world = federation(tmp_path, presets.build("feddf", SHORT))
    whole = world.spec("alone")
    broken = whole.updates[1].weights
    arrays = tensors(broken)
    first = next(name for name, array in arrays.items() if array.dtype == np.float32)
    arrays[first] = np.full_like(arrays[first], 3e38)
    write_file(broken, arrays)
    with pytest.raises(JobFailure) as shard:
        shards_of(whole, [({"ward-1", "ward-2"}, 0, 1)])
    files = shards_of(whole, [({"ward-3", "ward-4"}, 0, 1)])
    with pytest.raises(JobFailure) as fused:
        run(whole.model_copy(update={"shards": files, "output_dir": tmp_path / "shared"}), ignore)
    assert (shard.value.code, fused.value.code) == ("non_finite", "non_finite")
    assert "ward-2" in fused.value.detail


def test_parts_are_whole_batches_and_cover_a_set_once() -> None:
    """21 samples in batches of 4 are six batches: two and two and two; in parts of eight some are empty."""
    assert [part_of(21, 4, part, 3) for part in range(3)] == [slice(0, 8), slice(8, 16), slice(16, 21)]
    many = [part_of(21, 4, part, 8) for part in range(8)]
    assert [row for rows in many for row in range(rows.start, rows.stop)] == list(range(21))
    assert any(rows.start == rows.stop for rows in many)


def test_a_shard_holds_float32_of_what_it_asked_alone(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, presets.build("feddf", SHORT))
    (file,) = shards_of(world.spec("alone"), [({"ward-1", "ward-4"}, 0, 1)])
    with TensorFile(file) as shard:
        shapes = sorted((info.dtype, info.shape) for info in shard.header.tensors.values())
    assert shapes == [("F32", (12, 3))] * 2 + [("F32", (21, 3))] * 2
