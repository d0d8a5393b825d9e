"""Shards of a round's labels as rows: who makes them, what becomes of them, and that the round never hangs on one."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from service.infra.blob_checks import BlobFaults
from service.infra.blobs import BlobFault
from service.operations.progress import jobs, sharing
from service.operations.store import workers
from service.operations.upkeep import erasure, sweep
from service.persistence.tables import JobRow, LabelShardRow, RoundRow
from tests.service.conftest import Move
from tests.service.world import Fed, World
from worker.ledger import Claimed, Ledger, LostLease
from worker.specs import JobFailure, LabelsSpec, RoundSpec

NAMES = "ab"
CALLER = f"00-{1:032x}-{2:016x}-01"
MEASURED = {"ensemble": {"teachers": 4}, "seconds": {"label": 400.0}}
"""100 s a teacher: two of them are 200 s, four shards of 60 s at least for two workers: two halves each."""


@pytest.fixture
def two(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Ledger, Ledger]]:
    """Two workers that are alive, however slow the machine is."""
    monkeypatch.setattr("service.operations.store.workers.SILENT", timedelta(hours=1))
    found = Ledger(world.settings), Ledger(world.settings)
    for each in found:
        each.heartbeat()
    yield found
    for each in found:
        each.leave()


def second_round(world: World, **changes: Any) -> Fed:
    """Return a federation whose second round is to be fused, and whose first one has measured what teachers cost."""
    data = world.dataset()["id"]
    fed = world.running(NAMES, recipe={"name": "feddf"}, datasets={"unlabeled": data}, **changes)
    for name in NAMES:
        world.push(fed, name)
    world.finish(world.claim(), {"main": world.forge.arrays(5)}, MEASURED)
    for name in NAMES:
        world.push(fed, name, headers={"traceparent": CALLER})
    return fed


def claim(ledger: Ledger) -> Claimed:
    job = ledger.claim()
    assert job is not None
    return job


def made(world: World, job: Claimed, fence: int | None = None) -> None:
    """Publish a shard, as who holds its job or as who held it."""
    with world.store.read() as session:
        row = session.get_one(JobRow, job.id)
        row.fence = row.fence if fence is None else fence
        session.expunge(row)
    world.finish(row, {"labels": world.forge.arrays(int(job.id[-6:], 36) % 1000)}, {"seconds": 50.0})


def rows(world: World, fed: Fed) -> list[LabelShardRow]:
    with world.store.read() as session:
        mine = select(LabelShardRow).where(LabelShardRow.federation_id == fed.id)
        return list(session.scalars(mine.order_by(LabelShardRow.job_id)))


def states(world: World, fed: Fed, kind: str) -> list[str]:
    with world.store.read() as session:
        mine = select(JobRow.state).where(JobRow.federation_id == fed.id, JobRow.kind == kind)
        return list(session.scalars(mine.order_by(JobRow.id)))


def test_a_round_gives_way_to_its_shards_and_is_called_by_the_last(world: World, two: tuple[Ledger, Ledger]) -> None:
    fed, (one, other) = second_round(world), two
    shards = [claim(each) for each in (one, other, one, other)]
    assert {(each.kind, each.traceparent) for each in shards} == {("labels", CALLER)}
    assert one.claim() is None
    told = [(row.teachers, row.part, row.parts) for row in rows(world, fed)]
    assert told == [([name], part, 2) for name in NAMES for part in (0, 1)]
    round_ = world.round(fed, 2)
    waiting = world.ok("GET", f"/v1/jobs/{round_['job_id']}")
    assert (waiting["kind"], waiting["state"], waiting["attempt"]) == ("round", "queued", 0)
    assert waiting["detail"] == "waits for 4 shards of its labels"
    for job in shards[:3]:
        made(world, job)
    assert other.claim() is None
    made(world, shards[3])
    fused = claim(other)
    assert (fused.kind, fused.attempt) == ("round", 1)
    spec = other.load(fused)
    assert isinstance(spec, RoundSpec)
    assert len(spec.shards) == 4
    with world.store.read() as session:
        row = session.get_one(JobRow, fused.id)
    brought = {each.digest for each in rows(world, fed)}
    world.finish(row, {"main": world.forge.arrays(6)}, MEASURED | {"labels": {"teachers": 2, "here": 0}})
    labels = world.round(fed, 2)["metrics"]["labels"]
    assert (labels["shards"], labels["asked"], labels["seconds"], labels["here"]) == (4, 2, 200.0, 0)
    assert labels["workers"] == {one.worker_id: 2, other.worker_id: 2}
    assert rows(world, fed) == []
    assert not brought & {path.rsplit("/", 1)[-1] for path in world.files()}


def test_one_job_does_it_all_where_sharing_is_worth_nothing(world: World, two: tuple[Ledger, Ledger]) -> None:
    fed, (one, _) = second_round(world), two
    cases: dict[str, tuple[int, float, dict[str, Any]]] = {
        "alone": (1, 60.0, MEASURED),
        "off": (2, 0.0, MEASURED),
        "unmeasured": (2, 60.0, {}),
        "in vain": (2, 60.0, MEASURED | {"labels": {"teachers": 4, "here": 4}}),
        "cheap": (2, 60.0, MEASURED | {"seconds": {"label": 200.0}}),
        "worth it": (2, 60.0, MEASURED),
    }
    job = one._claim()
    assert job is not None
    gives_way = {}
    for why, (count, seconds, metrics) in cases.items():
        with world.store.write() as session:
            session.get_one(RoundRow, world.round(fed, 1)["id"]).metrics = metrics
            session.flush()
            row = session.get_one(JobRow, job.id)
            gives_way[why] = sharing.comes_first(session, row, count, seconds)
    assert gives_way == {why: why == "worth it" for why in cases}


def test_whom_the_round_before_left_out_no_shard_asks(world: World, two: tuple[Ledger, Ledger]) -> None:
    """It would be labour for nothing if they are left out again; else the round's job asks them, as it asks any."""
    fed, (one, _) = second_round(world), two
    job = one._claim()
    assert job is not None
    with world.store.write() as session:
        metrics = MEASURED | {"drop_worst": {"dropped": ["a"], "accuracy": {"a": 0.1, "b": 0.9}}}
        metrics |= {"seconds": {"label": 800.0}}
        session.get_one(RoundRow, world.round(fed, 1)["id"]).metrics = metrics
        session.flush()
        assert sharing.comes_first(session, session.get_one(JobRow, job.id), 2, 60.0)
    assert {tuple(row.teachers) for row in rows(world, fed)} == {("b",)}


def test_a_first_round_is_shared_when_its_job_has_measured_it(world: World, two: tuple[Ledger, Ledger]) -> None:
    """Of two teachers of 90 s, one is left: too little; of 130 s, more than two shards of 60 s: two thirds each."""
    data = world.dataset()["id"]
    fed, (one, _) = world.running(NAMES, recipe={"name": "feddf"}, datasets={"unlabeled": data}), two
    for name in NAMES:
        world.push(fed, name)
    job = claim(one)
    assert job.kind == "round"
    one.give_way(job, 90.0, 1)
    assert rows(world, fed) == []
    with pytest.raises(LostLease):
        one.give_way(job, 130.0, 1)
    shards = len(rows(world, fed))
    assert shards == 6
    for _ in range(shards):
        made(world, claim(one))
    again = claim(one)
    assert (again.kind, again.attempt) == ("round", 1)
    one.give_way(again, 130.0, 1)  # it has given way before


def test_a_lost_worker_costs_its_shard_only(world: World, two: tuple[Ledger, Ledger], move: Move) -> None:
    """Its shard is made again, by another; the others stay, and what it still says of its own counts no more."""
    fed, (lost, other) = second_round(world), two
    dead = claim(lost)
    for _ in range(2):
        made(world, claim(other))
    last = claim(other)
    move(20)
    other.renew(last, None)
    move(35)
    made(world, last)
    again = claim(other)
    assert (again.id, again.attempt, again.fence) == (dead.id, 2, dead.fence + 1)
    with pytest.raises(LostLease):
        lost.renew(dead, None)
    with pytest.raises(LostLease):
        made(world, dead, fence=dead.fence)
    made(world, again)
    assert claim(other).kind == "round"
    assert all(row.digest is not None for row in rows(world, fed))


def test_the_round_goes_on_without_shards_that_failed_were_cancelled_or_lost(
    world: World, two: tuple[Ledger, Ledger], move: Move
) -> None:
    fed, (one, other) = second_round(world), two
    failed, cancelled, worn = (claim(one) for _ in range(3))
    one.fail(failed, "non_finite", "update of 'a': NaN", final=True)
    world.ok("POST", f"/v1/jobs/{cancelled.id}/cancel")
    one.cancel(cancelled)
    with world.store.write() as session:
        session.get_one(JobRow, worn.id).attempt = jobs.MAX_ATTEMPTS
    move(31)
    sweep.sweep(world.store)
    made(world, claim(other))
    assert states(world, fed, "labels") == ["failed", "cancelled", "failed", "done"]
    shown = world.show(fed)
    assert (shown["state"], shown["error"]) == ("running", None)
    spec = other.load(claim(other))
    assert isinstance(spec, RoundSpec)
    assert len(spec.shards) == 1
    refused = world.op("POST", f"/v1/jobs/{failed.id}/retry")
    assert refused.status_code == 409, refused.text


def test_a_lone_worker_makes_the_shards_of_those_that_left(world: World, two: tuple[Ledger, Ledger]) -> None:
    _, (one, other) = second_round(world), two
    job = claim(one)
    told = one.load(job)
    assert isinstance(told, LabelsSpec)
    assert ([each.client for each in told.round.updates], told.part, told.parts) == (["a"], 0, 2)
    made(world, job)
    with world.store.write() as session:
        workers.leave(session, one.worker_id)
    kinds = []
    for _ in range(4):
        job = claim(other)
        kinds.append(job.kind)
        if job.kind == "labels":
            made(world, job)
    assert kinds == ["labels"] * 3 + ["round"]


def test_a_round_looks_again_by_itself_although_nobody_calls_it(
    world: World, two: tuple[Ledger, Ledger], move: Move
) -> None:
    _, (one, _) = second_round(world), two
    shards = [claim(one) for _ in range(4)]
    with world.store.write() as session:
        for each in shards:
            session.get_one(JobRow, each.id).state = "failed"
    assert one.claim() is None
    move(sharing.WAIT_SECONDS + 1)
    assert claim(one).kind == "round"


def test_shards_end_with_their_round_and_federation(world: World, two: tuple[Ledger, Ledger]) -> None:
    fed, (one, other) = second_round(world), two
    done, running = claim(one), claim(other)
    made(world, done)
    brought = str(next(row.digest for row in rows(world, fed) if row.digest is not None))
    job = world.round(fed, 2)["job_id"]
    world.ok("POST", f"/v1/jobs/{job}/cancel")
    assert states(world, fed, "labels") == ["done", "running", "cancelled", "cancelled"]
    assert other.is_cancelled(running)
    other.cancel(running)
    world.ok("POST", f"/v1/jobs/{job}/retry")
    spec = one.load(claim(one))
    assert isinstance(spec, RoundSpec)
    assert [path.name for path in spec.shards] == [brought.removeprefix("sha256-")]
    world.ok("POST", f"/v1/federations/{fed.id}/cancel")
    assert rows(world, fed) == []
    assert spec.shards[0].name not in " ".join(world.files())


def test_what_an_erased_clients_model_said_goes_with_it(world: World, two: tuple[Ledger, Ledger]) -> None:
    fed, (one, _) = second_round(world), two
    job = claim(one)
    made(world, job)
    brought = str(next(row.digest for row in rows(world, fed) if row.digest is not None))
    with world.store.write() as session:
        erasure.forget_client(session, fed.id, fed.devices["b"].id)
    assert rows(world, fed) == []
    assert brought.removeprefix("sha256-") not in " ".join(world.files())
    with pytest.raises(JobFailure, match="no labels of it any more"):
        one.load(job)


def test_a_shard_whose_file_is_lost_is_asked_again_by_the_round(world: World, two: tuple[Ledger, Ledger]) -> None:
    fed, (one, _) = second_round(world), two
    for _ in range(4):
        made(world, claim(one))
    job = claim(one)
    digest = str(rows(world, fed)[2].digest)
    one._blobs.store.delete(digest)
    one.spoilt(job, BlobFaults([BlobFault(digest, "missing")]))
    assert [row.digest is None for row in rows(world, fed)] == [False, False, True, False]
    assert states(world, fed, "round")[-1] == "queued"
    assert world.show(fed)["state"] == "running"
