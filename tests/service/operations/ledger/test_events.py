"""Events: written by the transaction that they tell of, none forgotten, none missed by a reader that follows them."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event as sql_event
from sqlalchemy import inspect, text, update

from contract.wire.events import KINDS
from service.domain import states
from service.operations.ledger import clock, events, row_events
from service.operations.store import workers
from service.operations.upkeep import sweep
from service.persistence.tables import Base, DatasetRow, EventRow, FederationRow, JobRow, RoundRow, WorkerRow
from tests.service.conftest import Both

from ...world import Fed, World


def kinds(world: World, fed: Fed | None = None) -> list[str]:
    with world.store.read() as session:
        return [item.kind for item in events.read(session, 0, 500, fed.id if fed else None).events]


def test_a_federations_life_is_told_in_order(world: World) -> None:
    fed = world.running(["a", "b"], rounds={"total": 1, "min_updates": 2})
    world.push(fed, "a")
    world.push(fed, "b")
    world.finish(world.claim(), {"main": world.forge.arrays(5)}, {"accuracy": 0.5})
    assert kinds(world, fed) == [
        "federation.created",
        "client.enrolled",
        "client.enrolled",
        "federation.started",
        "job.queued",
        "job.claimed",
        "job.done",
        "model.published",
        "federation.stage",
        "round.opened",
        "update.received",
        "update.received",
        "job.queued",
        "round.closed",
        "job.claimed",
        "job.done",
        "model.published",
        "round.published",
        "federation.finished",
    ]


ROWS = {FederationRow: states.FEDERATION, RoundRow: states.ROUND, JobRow: states.JOB}
MOVES = sorted(
    {(row, *move) for row, table in ROWS.items() for moves in table.values() for move in moves.items()}, key=str
)


@pytest.mark.parametrize(("kind", "before", "after"), [move for move in MOVES if move[1] != move[2]])
def test_every_transition_of_every_table_is_told(world: World, kind: type[Base], before: str, after: str) -> None:
    """Whatever operation changes a state, the hook sees it and has a name for it."""
    row = kind(state=before)
    inspect(row)._commit_all(row.__dict__)  # as if it had been read
    row.state = after  # type: ignore[attr-defined]
    with world.store.read() as session:
        [(told, _)] = row_events._ON_CHANGE[kind](session, row)
    assert told in KINDS


def test_what_is_rolled_back_is_not_told(world: World) -> None:
    before = kinds(world)
    fed = world.create()
    with pytest.raises(RuntimeError), world.store.write() as session:
        session.get_one(FederationRow, fed.id).state = "cancelled"
        session.flush()
        raise RuntimeError
    assert kinds(world) == [*before, "federation.created"]


def test_details_hold_the_reason(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """F09: 'got 2 of 3' stands in the event."""
    fed = world.running(["a", "b", "c"], rounds={"total": 2, "min_updates": 3, "deadline_seconds": 30})
    world.push(fed, "a")
    world.push(fed, "b")
    later = clock.now() + timedelta(seconds=31)
    for module in ("progress.lifecycle", "progress.deadlines"):
        monkeypatch.setattr(f"service.operations.{module}.now", lambda: later)
    sweep.sweep(world.store)
    items = world.ok("GET", f"/v1/federations/{fed.id}/events?format=json&limit=500")["items"]
    [skipped] = [item for item in items if item["kind"] == "round.skipped"]
    assert skipped["data"]["reason"] == "got 2 of 3 updates by the deadline"
    assert (skipped["data"]["asked"], skipped["data"]["answered"]) == (3, 2)


def test_a_refused_update_is_told_once_a_minute(world: World) -> None:
    fed = world.running(["a"])
    bad = world.forge.arrays(1)
    bad["fc.bias"][0] = float("nan")
    base = world.round(fed)["base_models"]["main"]
    body = world.forge.pack(bad, {"num_samples": "10", "base_model": base})
    for _ in range(3):
        assert world.push(fed, "a", body).status_code == 422
    items = world.ok("GET", f"/v1/federations/{fed.id}/events?format=json&limit=500")["items"]
    [refused] = [item for item in items if item["kind"] == "update.refused"]
    assert (refused["data"]["client"], refused["data"]["problem"], refused["data"]["round"]) == (
        "a",
        "invalid-values",
        1,
    )
    assert "fc.bias" in refused["data"]["detail"]


def test_workers_come_go_and_are_missed(world: World) -> None:
    with world.store.write() as session:
        workers.heartbeat(session, "wrk_1", "host", 1, "cpu", None)
    for _ in range(2):
        sweep.sweep(world.store)
    with world.store.database.write() as session:
        session.execute(update(WorkerRow).values(last_seen_at=clock.now() - timedelta(minutes=1)))
    for _ in range(2):
        sweep.sweep(world.store)
    with world.store.write() as session:
        workers.heartbeat(session, "wrk_1", "host", 1, "cpu", None)
    with world.store.write() as session:
        workers.leave(session, "wrk_1")
    assert kinds(world) == ["worker.seen", "worker.lost", "worker.seen", "worker.left"]


def _tell(store: Any, name: str) -> None:
    with store.write() as session:
        values = {"digest": "d", "size": 1, "num_samples": 1, "shape": [1], "dtype": "float32", "labeled": False}
        session.add(DatasetRow(id=f"dst_{name}", name=name, created_at=clock.now(), **values))


def _follow(store: Any, position: int) -> tuple[list[str], int]:
    with store.read() as session:
        batch = events.read(session, position, 500)
    return [item.data["name"] for item in batch.events], batch.position


def test_a_number_that_commits_late_is_not_missed(both: Both) -> None:
    """The first writer has its number and has not committed; the second must not become visible before it."""
    has_number, go_on = threading.Event(), threading.Event()

    def hold(session: Any) -> None:
        has_number.set()
        go_on.wait(20)

    def slow() -> None:
        with both.store.write() as session:
            sql_event.listen(session, "before_commit", hold)
            values = {"digest": "d", "size": 1, "num_samples": 1, "shape": [1], "dtype": "float32", "labeled": False}
            session.add(DatasetRow(id="dst_slow", name="slow", created_at=clock.now(), **values))

    first = threading.Thread(target=slow)
    first.start()
    assert has_number.wait(10)
    second = threading.Thread(target=_tell, args=(both.store, "fast"))
    second.start()
    if not both.settings.is_sqlite:
        _until_it_waits(both, second)
    early, position = _follow(both.store, 0)
    go_on.set()
    first.join(20)
    second.join(20)
    late, _ = _follow(both.store, position)
    assert early + late == ["slow", "fast"]


def _until_it_waits(both: Both, thread: threading.Thread) -> None:
    waiting = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 815002 AND NOT granted")
    while thread.is_alive():
        with both.store.read() as session:
            if session.scalar(waiting):
                return


def test_a_reader_misses_nothing_of_many_writers(both: Both) -> None:

    def write(number: int) -> None:
        for each in range(10):
            _tell(both.store, f"{number}-{each}")

    writers = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in writers:
        thread.start()
    seen: list[str] = []
    position = 0
    while any(thread.is_alive() for thread in writers):
        found, position = _follow(both.store, position)
        seen += found
    found, _ = _follow(both.store, position)
    assert sorted(seen + found) == sorted(f"{n}-{i}" for n in range(6) for i in range(10))


@pytest.fixture
def old(world: World) -> Iterator[World]:
    for number in range(5):
        _tell(world.store, str(number))
    with world.store.database.write() as session:
        session.execute(update(EventRow).where(EventRow.sequence <= 2).values(at=clock.now() - timedelta(days=3)))
    yield world


@pytest.mark.parametrize(("most", "days", "left"), [(100, 1.0, [3, 4, 5]), (2, 9.0, [4, 5]), (0, 9.0, [5])])
def test_retention(old: World, most: int, days: float, left: list[int]) -> None:
    with old.store.write() as session:
        events.forget(session, most, days)
    page = old.ok("GET", "/v1/events?format=json")
    assert [item["sequence"] for item in page["items"]] == left
    assert old.ok("GET", "/v1/events?format=json&after=1")["missed"] is (left[0] > 2)
    _tell(old.store, "next")
    assert old.ok("GET", f"/v1/events?format=json&after={page['next']}")["items"][0]["sequence"] == 6


def test_details_hold_no_nan_and_no_nul(world: World) -> None:
    assert events._plain({"a": float("nan"), "b": {"c": "x\x00y"}, "d": 1}) == {"a": None, "b": {"c": "x�y"}, "d": 1}
    assert len(events._plain("x" * 10_000)) == 4000


def test_every_kind_is_documented() -> None:
    page = (Path(__file__).parents[4] / "docs" / "watching.md").read_text()
    assert [kind for kind in KINDS if f"`{kind}`" not in page] == []
