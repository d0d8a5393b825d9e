"""Jobs on SQLite and PostgreSQL: who gets one, who keeps it, and whose word no longer counts."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, text, update

from contract.queue import JobName
from contract.wire.federations import FederationCreate
from service.domain.errors import DomainError
from service.operations.ledger import clock
from service.operations.progress import jobs, reading
from service.operations.progress.jobs import LostLease
from service.operations.steer import control, creation, publishing
from service.operations.store import workers
from service.operations.store.outcome import Outcome
from service.operations.upkeep import sweep
from service.operations.view import federations, health
from service.persistence.tables import FederationRow, JobRow, ModelRow
from tests.service.conftest import Both, Move
from tests.service.world import World
from worker.ledger import Ledger

DIGEST = "sha256-" + "0" * 64

BODY = {
    "name": "f",
    "task": {"num_classes": 3, "input": {"shape": [2]}},
    "prototypes": [{"architecture": "mlp"}],
    "recipe": {"name": "fedavg"},
}


@pytest.fixture
def fed(both: Both) -> str:
    """A federation that has been started; its first job is queued."""
    with both.store.write() as session:
        row = creation.create(session, b"k" * 16, FederationCreate.model_validate(BODY))
        return control.start(session, row.id).id


def test_how_long_a_job_may_take_is_its_federations_plan(world: World) -> None:
    for seconds in (None, 7200):
        fed = world.create(rounds={"total": 1} | ({} if seconds is None else {"job_seconds": seconds}))
        world.enrol(fed, "a")
        world.ok("POST", f"/v1/federations/{fed.id}/start")
        ledger = Ledger(world.settings)
        claimed = ledger.claim()
        ledger.leave()
        assert claimed is not None
        assert (claimed.federation_id, claimed.seconds) == (fed.id, seconds)


def claim(both: Both, worker: str = "w1", lease: float = 30.0) -> JobRow | None:
    with both.store.write() as session:
        return jobs.claim(session, worker, "cpu", lease)


def only(both: Both) -> JobRow:
    with both.store.read() as session:
        return session.scalars(select(JobRow)).one()


def test_a_claim_takes_the_oldest_and_counts_up(both: Both, fed: str) -> None:
    job = claim(both)
    assert job is not None
    assert (job.kind, job.state, job.attempt, job.fence, job.worker_id) == ("initialize", "running", 1, 1, "w1")
    assert job.lease_until is not None
    assert timedelta(seconds=25) < job.lease_until - clock.now() < timedelta(seconds=31)
    assert claim(both, "w2") is None


def test_jobs_come_in_the_order_in_which_they_were_made(both: Both, fed: str) -> None:
    with both.store.write() as session:
        row = session.get_one(FederationRow, fed)
        later = [jobs.enqueue(session, "score", row).id for _ in range(3)]
    claimed = [claim(both) for _ in range(4)]
    assert [job.id for job in claimed if job][1:] == later


def test_of_workers_that_claim_at_once_one_gets_the_job(both: Both, fed: str) -> None:
    start = threading.Barrier(6)

    def take(number: int) -> JobRow | None:
        start.wait()
        return claim(both, f"w{number}")

    with ThreadPoolExecutor(6) as pool:
        taken = [job for job in pool.map(take, range(6)) if job is not None]
    assert len(taken) == 1
    assert taken[0].fence == 1


def test_workers_that_claim_at_once_get_different_jobs(both: Both, fed: str) -> None:
    with both.store.write() as session:
        for _ in range(3):
            jobs.enqueue(session, "score", session.get_one(FederationRow, fed))
    start = threading.Barrier(4)

    def take(number: int) -> list[str]:
        start.wait()
        mine = []
        while job := claim(both, f"w{number}"):
            mine.append(job.id)
        return mine

    with ThreadPoolExecutor(4) as pool:
        taken = [id_ for mine in pool.map(take, range(4)) for id_ in mine]
    with both.store.read() as session:
        left = list(session.scalars(select(JobRow.id).where(JobRow.state == "queued")))
    assert len(taken) == len(set(taken))  # none twice; a worker that meets a locked row may leave it to the next look
    assert len(taken) + len(left) == 4


def test_a_silent_workers_job_goes_to_another_whose_fence_is_higher(both: Both, fed: str, move: Move) -> None:
    first = claim(both)
    move(31)
    second = claim(both, "w2")
    assert first is not None
    assert second is not None
    assert (second.id, second.fence, second.attempt) == (first.id, 2, 2)
    with both.store.write() as session, pytest.raises(LostLease):
        jobs.renew(session, first.id, first.fence, 30, None)
    with both.store.write() as session, pytest.raises(LostLease):
        publishing.publish(session, first.id, first.fence, Outcome({"main": ("x", 1)}))
    with both.store.write() as session, pytest.raises(LostLease):
        jobs.held(session, first.id, first.fence)
    assert (only(both).state, only(both).worker_id) == ("running", "w2")


def test_a_result_that_lost_its_lease_changes_nothing(both: Both, fed: str, move: Move) -> None:
    first = claim(both)
    move(31)
    claim(both, "w2")
    assert first is not None
    with both.store.write() as session, pytest.raises(LostLease):
        publishing.publish(session, first.id, first.fence, Outcome({"main": ("x", 1)}))
    with both.store.read() as session:
        row = session.get_one(FederationRow, fed)
        assert row.state == "preparing"
        assert reading.current_models(session, fed) == {}


def test_renewing_keeps_the_lease_and_tells_the_progress(both: Both, fed: str, move: Move) -> None:
    job = claim(both)
    assert job is not None
    move(20)
    with both.store.write() as session:
        jobs.renew(session, job.id, job.fence, 30, {"phase": "average", "step": 1, "of": 4})
    move(40)
    assert claim(both, "w2") is None
    assert only(both).progress == {"phase": "average", "step": 1, "of": 4}


def test_a_job_that_is_over_cannot_be_renewed(both: Both, fed: str) -> None:
    job = claim(both)
    assert job is not None
    with both.store.write() as session:
        publishing.publish(session, job.id, job.fence, Outcome({"main": ("x", 1)}))
    with both.store.write() as session, pytest.raises(LostLease):
        jobs.renew(session, job.id, job.fence, 30, None)
    with both.store.write() as session, pytest.raises(LostLease):
        publishing.publish(session, job.id, job.fence, Outcome({"main": ("y", 1)}))


def test_an_unknown_job_is_nobodys(both: Both, fed: str) -> None:
    with both.store.write() as session, pytest.raises(LostLease):
        jobs.held(session, "job_x", 0)
    with both.store.read() as session, pytest.raises(DomainError, match="no job"):
        jobs.get(session, "job_x")


def test_a_fault_gives_the_job_back_with_a_growing_pause_until_its_attempts_are_used_up(
    both: Both, fed: str, move: Move
) -> None:
    seconds = 0.0
    for attempt, pause in ((1, 2), (2, 4)):
        job = claim(both)
        assert job is not None
        assert job.attempt == attempt
        with both.store.write() as session:
            assert jobs.release(session, jobs.held(session, job.id, job.fence), "internal", "broken") is True
        assert claim(both) is None
        seconds += pause + 0.5
        move(seconds)
    job = claim(both)
    assert job is not None
    with both.store.write() as session:
        row = jobs.held(session, job.id, job.fence)
        assert jobs.release(session, row, "internal", "broken" * 1000) is False
        publishing.give_up(session, row, "internal", "broken")
    row = only(both)
    assert (row.state, row.error, row.detail) == ("failed", "internal", "broken")
    with both.store.read() as session:
        assert session.get_one(FederationRow, fed).state == "failed"


def test_a_cancel_of_a_running_job_is_told_at_the_next_renewal(both: Both, fed: str) -> None:
    job = claim(both)
    assert job is not None
    with both.store.write() as session:
        publishing.request_cancel(session, session.get_one(JobRow, job.id))
        publishing.request_cancel(session, session.get_one(JobRow, job.id))  # a client repeats a call without an answer
    assert only(both).state == "running"
    with both.store.read() as session:
        assert jobs.is_cancelled(session, job.id, job.fence) is True
    with both.store.write() as session:
        publishing.cancelled(session, jobs.held(session, job.id, job.fence))
    assert (only(both).state, only(both).error) == ("cancelled", "cancelled")


def test_a_worn_out_job_fails_in_the_sweep_and_can_be_retried(both: Both, fed: str, move: Move) -> None:
    for attempt in range(3):
        move(attempt * 100)
        assert claim(both) is not None
    move(300)
    assert claim(both) is None  # no fourth attempt
    sweep.sweep(both.store)
    row = only(both)
    assert (row.state, row.error) == ("failed", "worker_lost")
    assert "3 times" in (row.detail or "")
    with both.store.write() as session:
        publishing.revive(session, session.get_one(JobRow, row.id))
    row = only(both)
    assert (row.state, row.attempt, row.error) == ("queued", 0, None)
    with both.store.read() as session:
        assert session.get_one(FederationRow, fed).state == "preparing"
    again = claim(both)
    assert again is not None
    assert again.fence == 4  # fences never go back


def test_a_lost_wake_up_is_sent_again(both: Both, fed: str, move: Move) -> None:
    heard: list[str] = []
    store = type(both.store)(both.database, both.blobs.store, lambda queues: heard.append("wake"))
    sweep.sweep(store)
    assert heard == []  # the first message has had no time to arrive
    move(3)
    sweep.sweep(store)
    assert heard == ["wake"]
    sweep.sweep(store)
    assert heard == ["wake"]  # hinted a moment ago
    move(14)
    sweep.sweep(store)
    assert heard == ["wake", "wake"]


def test_a_job_given_back_in_its_last_attempt_waits_for_another_worker(both: Both, fed: str) -> None:
    job = claim(both)
    assert job is not None
    with both.store.write() as session:
        row = jobs.held(session, job.id, job.fence)
        row.max_attempts = 1
        jobs.give_back(session, row)
    row = only(both)
    assert (row.state, row.attempt, row.finished_at, row.error) == ("queued", 0, None, None)
    again = claim(both, "w2")
    assert again is not None
    assert again.fence == 2


def test_the_wake_up_comes_after_the_commit_and_only_then(both: Both) -> None:
    heard: list[str] = []
    store = type(both.store)(
        both.database, both.blobs.store, lambda queues: heard.append("wake"), lambda: heard.append("changed")
    )
    with pytest.raises(RuntimeError), store.write() as session:
        row = creation.create(session, b"k" * 16, FederationCreate.model_validate(BODY))
        control.start(session, row.id)
        raise RuntimeError
    assert heard == []
    with store.write() as session:
        row = creation.create(session, b"k" * 16, FederationCreate.model_validate(BODY))
        control.start(session, row.id)
        assert heard == []
    assert heard == ["wake", "changed"]
    with both.store.read() as session:
        assert jobs.any_due(session)


@pytest.mark.parametrize("both", ["postgresql"], indirect=True)  # SQLite has one lock for all writers
def test_a_publish_waits_for_a_cancel_without_a_deadlock(both: Both, fed: str) -> None:
    """Whoever locks a federation may go on to its jobs: so a publish must not hold a job while it waits for one."""
    job = claim(both)
    assert job is not None
    done = threading.Event()

    def publish() -> None:
        with both.store.write() as session:
            publishing.publish(session, job.id, job.fence, Outcome({"main": (DIGEST, 1)}))
        done.set()

    thread = threading.Thread(target=publish)
    with both.store.write() as session:
        reading.locked(session, fed)
        thread.start()
        waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
        while not session.execute(waiting).scalar():
            assert not done.wait(0.02)
        free = select(JobRow.id).where(JobRow.id == job.id).with_for_update(nowait=True)
        assert session.scalars(free).one() == job.id
        session.execute(update(JobRow).where(JobRow.id == job.id).values(cancel_requested=True))
    thread.join(10)
    assert done.is_set()
    assert only(both).state == "cancelled", "the cancel was there first"


def _cancel(both: Both) -> None:
    with both.store.write() as session:
        publishing.request_cancel(session, session.scalars(select(JobRow)).one())


def test_a_cancel_comes_before_a_result(both: Both, fed: str) -> None:
    """The wish was there before the worker was done: no model, and the job stays cancelled."""
    job = claim(both)
    assert job is not None
    _cancel(both)
    with both.store.write() as session:
        outcome = Outcome({"main": (DIGEST, 1)})
        publishing.publish(session, job.id, job.fence, outcome)
    assert (only(both).state, only(both).error) == ("cancelled", "cancelled")
    with both.store.read() as session:
        assert session.scalars(select(ModelRow)).all() == []
    assert claim(both) is None


def test_a_cancelled_job_whose_worker_died_is_not_begun_again(both: Both, fed: str, move: Move) -> None:
    claim(both)
    _cancel(both)
    move(31)
    assert claim(both, "w2") is None
    sweep.sweep(both.store)
    assert only(both).state == "cancelled"
    assert claim(both, "w2") is None


def test_a_job_that_fails_again_and_again_holds_nobody_up(both: Both, fed: str, move: Move) -> None:
    poisoned = claim(both)
    assert poisoned is not None
    with both.store.write() as session:
        jobs.release(session, jobs.held(session, poisoned.id, poisoned.fence), "out_of_memory", "")
        later = jobs.enqueue(session, "score", session.get_one(FederationRow, fed)).id
    move(60)
    following = claim(both)
    assert following is not None and following.id == later, "the younger one, which has not failed yet"
    again = claim(both)
    assert again is not None and again.id == poisoned.id


def test_a_worker_takes_the_jobs_of_its_queues_alone(both: Both, fed: str) -> None:
    with both.store.write() as session:
        row = session.get_one(FederationRow, fed)
        network = jobs.enqueue(session, "score", row)
        assert [job.queue for job in session.scalars(select(JobRow).order_by(JobRow.id))] == ["cpu", "gpu"]
    with both.store.write() as session:
        assert jobs.any_due(session, ["gpu"]) and jobs.any_due(session, ["cpu"])
        taken = jobs.claim(session, "w1", "cuda:0", 30.0, ["gpu"])
        assert taken is not None and taken.id == network.id
        assert jobs.claim(session, "w1", "cuda:0", 30.0, ["gpu"]) is None
        assert not jobs.any_due(session, ["gpu"])
        assert jobs.claim(session, "w2", "cpu", 30.0, ["cpu"]) is not None


DISTILLED = {"recipe": {"name": "feddf", "options": {"distil": {"data": {"kind": "noise"}}}}}


@pytest.mark.parametrize(
    ("kind", "changes", "queue"),
    [
        ("initialize", DISTILLED, "cpu"),
        ("round", {}, "cpu"),
        ("round", {"queue": "gpu"}, "cpu"),  # an average needs no GPU, whoever wants one
        ("round", DISTILLED, "gpu"),
        ("round", {**DISTILLED, "queue": "cpu"}, "cpu"),
        ("score", {}, "gpu"),
    ],
)
def test_which_queue_a_job_waits_in(both: Both, kind: JobName, changes: dict[str, Any], queue: str) -> None:
    with both.store.write() as session:
        row = creation.create(session, b"k" * 16, FederationCreate.model_validate({**BODY, **changes}))
        assert jobs.enqueue(session, kind, row).queue == queue


def test_a_queue_that_nobody_serves_is_told(both: Both, fed: str) -> None:
    def told() -> tuple[dict[str, int], str | None]:
        with both.store.read() as session:
            federation = federations.describe(session, session.get_one(FederationRow, fed))
            return workers.unserved(session), federation.waiting_for

    assert told() == ({"cpu": 1}, "a worker of the queue 'cpu': none is alive")
    with both.store.write() as session:
        workers.heartbeat(session, "w1", "host", 1, "cuda:0", None, ["gpu"])
    assert told()[0] == {"cpu": 1}
    with both.store.write() as session:
        workers.heartbeat(session, "w2", "host", 2, "cpu", None, ["cpu"])
    assert told()[0] == {}
    with both.store.read() as session:
        found = health.checks(both.database, both.blobs.store, both.blobs.scratch, both.settings, True)
    assert "queue cpu" not in found
