"""What a round hands over before it ends (FedSDD App. A.6): the averages that its distillation leaves alone."""

import os
from pathlib import Path
from typing import Any

import pytest

from contract.recipes import presets
from worker.ledger import LostLease
from worker.pipeline import run
from worker.runner import Child
from worker.specs import Handover, JobResult, Progress

SHORT = {"schedule": {"steps": 3, "batch_size": 8}}


def fedsdd(**changes: Any) -> Any:
    return presets.build("fedsdd", {"count": 3, "rounds": 2, **SHORT} | changes)


def figures(result: JobResult) -> dict[str, Any]:
    """Return what must be the same: bytes of every file, and every figure but times."""
    files = {**result.models, **{f"state {name}": path for name, path in (result.state or {}).items()}}
    metrics = {key: value for key, value in result.metrics.items() if key != "seconds"}
    return {"metrics": metrics} | {name: path.read_bytes() for name, path in files.items()}


def ignored(_: Any) -> None:
    """Take it and do nothing with it."""


def test_averages_are_given_away_before_the_labels_are_made(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, fedsdd())
    plain = figures(run(world.spec("plain"), ignored))
    order: list[str] = []
    given: list[Handover] = []
    held: dict[str, bytes] = {}

    def hand_over(made: Handover) -> None:
        order.append("handed over")
        given.append(made)
        for name, path in made.models.items():
            held[name] = path.read_bytes()
            path.unlink()  # whoever gets them owns them

    def report(progress: Progress) -> None:
        order.append(progress.phase)

    result = run(world.spec("ahead", hand_over=True), report, hand_over=hand_over)
    assert figures(result) == plain
    assert len(given) == 1
    assert held == {name: result.models[name].read_bytes() for name in ("main~1", "main~2")}
    at = order.index("handed over")
    assert set(order[:at]) == {"average"}
    assert {"label", "distil main"} <= set(order[at:])


def test_a_group_without_participants_has_nothing_to_give(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, fedsdd())
    given: list[Handover] = []
    updates = [update for update in world.updates() if update.prototype != "main~1"]
    run(world.spec("one", updates, hand_over=True), ignored, hand_over=given.append)
    alone = [update for update in updates if update.prototype == "main"]
    run(world.spec("two", alone, hand_over=True), ignored, hand_over=given.append)
    assert [set(each.models) for each in given] == [{"main~2"}, set()]


def test_a_round_that_is_not_told_to_keeps_all_to_the_end(tmp_path: Path, federation: Any) -> None:
    given: list[Handover] = []
    run(federation(tmp_path, fedsdd()).spec("out"), ignored, hand_over=given.append)
    assert given == []


def test_a_child_says_it_and_goes_with_a_job_that_is_lost(tmp_path: Path, federation: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(os.environ, "POTSTILL_DEVICE", "cpu")
    world = federation(tmp_path, fedsdd())
    child = Child("cpu", 1)
    given: list[Handover] = []
    try:
        result = child.ask(world.spec("first", hand_over=True), ignored, hand_over=given.append)
        assert [set(each.models) for each in given] == [{"main~1", "main~2"}]
        assert given[0].models["main~1"].read_bytes() == result.models["main~1"].read_bytes()

        def lost(_: Handover) -> None:
            raise LostLease("job_1")

        with pytest.raises(LostLease):
            child.ask(world.spec("second", hand_over=True), ignored, hand_over=lost)
        assert child.pid is None  # or its further words would be heard by the next job
    finally:
        child.close()
