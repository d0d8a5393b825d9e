"""The clock goes back and ahead while jobs, leases, uploads, rates, tokens and rounds go on: in this process, by a
clock that the test moves. `move` moves the clock alone, `wait` lets time pass.
"""

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import DateTime, select, update

from service.infra import clock
from service.infra.rates import Rates
from service.operations.access import tokens
from service.operations.ledger import audit, events, idempotency
from service.operations.progress import jobs
from service.operations.store import uploads, workers
from service.operations.upkeep import stamps
from service.operations.upkeep.sweep import put_right, sweep
from service.persistence.tables import (
    AuditRow,
    Base,
    ClientRow,
    EventRow,
    FederationRow,
    IdempotencyRow,
    JobRow,
    ParticipantRow,
    RoundRow,
    TokenRow,
    UploadRow,
    UtcDateTime,
)
from tests.service.world import Fed, World

ROOT = Path(__file__).parents[4]
DAY, LEASE = 86_400.0, 30.0
TOLD = {  # history: shown, never judged by
    "audit.at", "clients.declared_at", "clients.enrolled_at", "clients.revoked_at", "datasets.created_at",
    "discriminators.received_at",
    "discriminators.removed_at", "ensemble_members.removed_at", "ensembles.created_at",
    "events.at", "federations.created_at", "federations.started_at",
    "gan_updates.received_at", "gan_updates.removed_at", "jobs.created_at", "jobs.finished_at", "jobs.started_at",
    "models.created_at", "models.removed_at", "networks.created_at", "participants.asked_at", "participants.fetched_at",
    "participants.lost_at", "predictions.created_at", "predictions.removed_at",
    "provenance.created_at", "rounds.closed_at", "rounds.groups_published_at",
    "rounds.opened_at", "rounds.published_at", "sessions.created_at", "tokens.created_at", "tokens.revoked_at",
    "updates.received_at", "updates.removed_at", "uploads.created_at", "workers.lost_at",
}  # fmt: skip


class Clock:
    """A clock that is moved, and time that passes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.off = self.passed = 0.0
        wall, steady = time.time, time.monotonic
        monkeypatch.setattr(time, "time", lambda: wall() + self.off + self.passed)  # the library of rates reads it too
        monkeypatch.setattr(clock, "steady", lambda: steady() + self.passed)

    def move(self, seconds: float) -> None:
        """Move the clock: no time passes."""
        clock.now()
        self.off += seconds
        clock.now()

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.passed += seconds


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock.STEPS.__init__()  # type: ignore[misc]
    yield Clock(monkeypatch)
    monkeypatch.undo()
    clock.STEPS.__init__()  # type: ignore[misc]


def job_of(world: World) -> JobRow:
    with world.store.read() as session:
        return session.scalars(select(JobRow).order_by(JobRow.id.desc())).first()  # type: ignore[return-value]


def taken(world: World, worker: str = "wrk_2") -> JobRow | None:
    with world.store.write() as session:
        return jobs.claim(session, worker, "cpu", LEASE)


def renewed(world: World, job: JobRow) -> None:
    with world.store.write() as session:
        jobs.renew(session, job.id, job.fence, LEASE, None)


def started(world: World) -> JobRow:
    """Return a job that a worker has taken."""
    fed = world.create(rounds={"total": 1})
    world.enrol(fed, "a")
    world.ok("POST", f"/v1/federations/{fed.id}/start")
    return world.claim("wrk_1", LEASE)


def ready(world: World) -> tuple[int, dict[str, Any]]:
    answer = world.site.request("GET", "/readyz")
    return answer.status_code, answer.json()["checks"]


def beat(world: World, worker: str = "wrk_1") -> None:
    with world.store.write() as session:
        workers.heartbeat(session, worker, "host", 7, "cpu", None)


def test_nothing_is_said_of_one_worker_process_while_its_heartbeat_may_be_by_another_clock(
    world: World, moved: Clock
) -> None:
    def judged() -> bool:
        return "process" in world.site.request("GET", "/readyz?pid=7").json()["checks"]

    assert judged()
    moved.move(DAY)
    assert not judged()
    moved.wait(61)
    assert judged()


# ------------------------------------------------------------------------------------------------------------ jobs
@pytest.mark.parametrize("step", [-3600.0, -DAY])
def test_a_job_whose_worker_died_is_taken_over_within_its_lease_though_the_clock_went_back(
    world: World, moved: Clock, step: float
) -> None:
    job = started(world)
    moved.move(step)
    sweep(world.store, LEASE)
    assert taken(world) is None, "its worker may live"
    moved.wait(LEASE + 1)
    again = taken(world)
    assert again is not None
    assert (again.id, again.fence) == (job.id, job.fence + 1)


def test_the_same_where_nobody_saw_the_clock_go_back(world: World, moved: Clock) -> None:
    """The service was started anew after it."""
    job = started(world)
    moved.off -= 3600
    clock.STEPS.__init__()  # type: ignore[misc]
    sweep(world.store, LEASE)
    moved.wait(LEASE + 1)
    assert taken(world) is not None
    assert job_of(world).fence == job.fence + 1
    assert "the clock went back by 36" in clock.went_back()


@pytest.mark.parametrize("step", [-DAY, DAY])
def test_a_worker_that_lives_keeps_its_job(world: World, moved: Clock, step: float) -> None:
    job = started(world)
    moved.move(step)
    assert taken(world) is None, "before anything was put right"
    sweep(world.store, LEASE)
    for _ in range(30):
        moved.wait(5)
        renewed(world, job)
        sweep(world.store, LEASE)
        assert taken(world) is None
    assert job_of(world).attempt == 1


def test_a_worker_that_died_when_the_clock_went_ahead_loses_its_job_soon(world: World, moved: Clock) -> None:
    started(world)
    moved.move(DAY)
    sweep(world.store, LEASE)
    moved.wait(clock.PATIENCE.total_seconds() + LEASE + 1)
    assert taken(world) is not None


def test_a_retry_waits_no_longer_than_its_pause(world: World, moved: Clock) -> None:
    job = started(world)
    with world.store.write() as session:
        jobs.release(session, jobs.held(session, job.id, job.fence), "internal", "x")
    moved.move(-DAY)
    sweep(world.store, LEASE)
    moved.wait(65)
    assert taken(world) is not None


# ----------------------------------------------------------------------------------------------------- readiness
def test_readiness_says_that_the_clock_went_back_and_is_not_green_by_mistake(world: World, moved: Clock) -> None:
    beat(world)
    assert ready(world)[0] == 200
    moved.move(-3600)
    code, checks = ready(world)
    assert code == 503
    assert re.match(r"clock went back: the last heartbeat lies 3[56]\d\d s ahead", checks["worker"]["detail"])
    sweep(world.store, LEASE)
    code, checks = ready(world)
    assert (code, checks["worker"]["ok"]) == (503, False), "a dead worker is not alive for another hour"
    assert "clock went back by 3600 s" in checks["worker"]["detail"]
    assert "the clock went back by 3600 s" in checks["clock"]["detail"]
    beat(world)
    code, checks = ready(world)
    assert code == 200
    assert "went back" in checks["clock"]["detail"]
    listed = world.ok("GET", "/v1/workers")
    assert [each["alive"] for each in (listed["items"] if isinstance(listed, dict) else listed)] == [True]


def test_a_worker_is_alive_when_the_clock_went_ahead_and_dead_a_while_later(world: World, moved: Clock) -> None:
    beat(world)
    moved.move(DAY)
    code, checks = ready(world)
    assert code == 200
    assert re.fullmatch(r"last heard \d s ago", checks["worker"]["detail"])
    sweep(world.store, LEASE)
    moved.wait(clock.PATIENCE.total_seconds() + 1)
    assert ready(world)[0] == 503


def test_metrics_do_not_say_that_a_worker_was_just_heard(world: World, moved: Clock) -> None:
    beat(world)
    moved.move(-3600)
    assert world.ok("GET", "/v1/status")["heartbeat_age_seconds"] is None


# ------------------------------------------------------------------------------------------------------- uploads
def upload(world: World, owner: str = "cli_1", length: int = 10) -> str:
    with world.store.write() as session:
        return uploads.create(session, owner, length, "", world.settings, 2**40).id


def test_an_upload_whose_writer_died_is_free_soon_though_the_clock_went_back(world: World, moved: Clock) -> None:
    id_ = upload(world)
    with world.store.write() as session:
        uploads.take(session, "cli_1", id_, 0)
    moved.move(-DAY)
    sweep(world.store, LEASE)
    moved.wait(uploads.LEASE.total_seconds() + 1)
    with world.store.write() as session:
        assert uploads.take(session, "cli_1", id_, 0).offset == 0


def test_an_upload_goes_on_after_the_clock_went_ahead_and_ends_in_its_time(world: World, moved: Clock) -> None:
    id_ = upload(world)
    moved.wait(3600)
    moved.move(DAY)
    with world.store.read() as session:
        assert uploads.find(session, "cli_1", id_)
    sweep(world.store, LEASE)
    clock.STEPS.__init__()  # type: ignore[misc]  # the service is started anew
    sweep(world.store, LEASE)
    with world.store.write() as session:
        held = uploads.take(session, "cli_1", id_, 0)
        uploads.let_go(session, held)
    moved.wait(DAY)
    sweep(world.store, LEASE)
    with world.store.read() as session:
        assert session.get(UploadRow, id_) is None


def test_an_upload_is_not_kept_for_longer_because_the_clock_went_back(world: World, moved: Clock) -> None:
    id_ = upload(world)
    moved.move(-10 * DAY)
    put_right(world.store, LEASE, all_of_it=True)
    moved.wait(DAY + 60)
    sweep(world.store, LEASE)
    with world.store.read() as session:
        assert session.get(UploadRow, id_) is None


# --------------------------------------------------------------------------------------------------------- rates
def test_bytes_of_a_day_are_not_gone_for_two(world: World, moved: Clock) -> None:
    rates = Rates(world.settings)
    rates.spend(rates.bytes, "k", world.settings.upload_bytes_per_day)
    assert rates.left(rates.bytes, "k")[0] == 0
    moved.move(-DAY)
    left, seconds = rates.left(rates.bytes, "k")
    assert left == world.settings.upload_bytes_per_day
    assert seconds <= DAY


def test_nobody_is_told_to_wait_for_longer_than_a_window(world: World, moved: Clock) -> None:
    rates = Rates(world.settings)
    for step in (0.0, -DAY, DAY, -3600.0):
        moved.move(step)
        budget = rates.take(rates.failures, "a")
        assert budget.allowed
        assert 1 <= budget.seconds <= budget.window


# -------------------------------------------------------------------------------------------------------- tokens
def test_a_token_lives_no_longer_than_its_life_and_its_uses_are_noted(world: World, moved: Clock) -> None:
    with world.store.write() as session:
        row = tokens.create(session, world.settings.key, "t", "viewer", 3600)
        secret = tokens.secret_of(world.settings.keys, row)
    assert world.site.request("GET", "/v1/token", token=secret).status_code == 200
    moved.move(-DAY)
    put_right(world.store, LEASE, all_of_it=True)
    assert world.site.request("GET", "/v1/token", token=secret).status_code == 200
    with world.store.read() as session:
        kept = session.get_one(TokenRow, row.id)
        assert kept.expires_at is not None
        assert kept.last_used_at is not None
        assert kept.expires_at <= clock.now() + timedelta(seconds=3600)
        assert kept.last_used_at <= clock.now() + clock.SLACK
    moved.wait(3601)
    assert world.site.request("GET", "/v1/token", token=secret).status_code == 401


def test_the_end_of_a_token_is_a_date_and_does_not_move(world: World, moved: Clock) -> None:
    with world.store.write() as session:
        row = tokens.create(session, world.settings.key, "t", "viewer", 3600)
        secret = tokens.secret_of(world.settings.keys, row)
    moved.move(DAY)
    sweep(world.store, LEASE)
    assert world.site.request("GET", "/v1/token", token=secret).status_code == 401


# -------------------------------------------------------------------------------------------------------- rounds
def deadline(world: World, fed: Fed) -> datetime:
    with world.store.read() as session:
        return session.scalars(select(RoundRow.deadline_at).where(RoundRow.federation_id == fed.id)).one()


@pytest.mark.parametrize("steps", [(-DAY,), (DAY,), (DAY, -DAY), (-DAY, DAY)])
def test_a_round_is_open_for_as_long_as_it_was_to_be(world: World, moved: Clock, steps: tuple[float, ...]) -> None:
    fed = world.running(rounds={"deadline_seconds": 600, "min_updates": 1})
    moved.wait(100)
    for step in steps:
        moved.move(step)
        assert world.push(fed, "a").status_code in (200, 201)  # before anything is put right
        sweep(world.store, LEASE)
    assert world.round(fed)["state"] == "collecting"
    left = (deadline(world, fed) - clock.now()).total_seconds()
    assert 480 < left < 501
    moved.wait(570)
    sweep(world.store, LEASE)
    assert world.round(fed)["state"] == "aggregating"


def test_a_round_that_ends_too_far_ahead_is_bounded_though_nobody_saw_the_step(world: World, moved: Clock) -> None:
    fed = world.running(rounds={"deadline_seconds": 600})
    moved.off -= DAY
    clock.STEPS.__init__()  # type: ignore[misc]
    put_right(world.store, LEASE, all_of_it=True)
    assert (deadline(world, fed) - clock.now()).total_seconds() <= 600


def test_heartbeats_are_heard_and_silence_is_noticed_after_the_clock_went_back(world: World, moved: Clock) -> None:
    fed = world.running(rounds={"deadline_seconds": 3600, "heartbeat_seconds": 10, "lost_after": 2})
    url = f"/v1/rounds/{world.round(fed)['id']}/heartbeat"
    body = {"epoch": 0, "step": 1, "of": 9}

    def say(name: str) -> None:
        assert world.site.request("POST", url, token=fed.devices[name].token, json=body).status_code == 200

    say("a")
    say("b")
    moved.move(-DAY)
    say("a")  # before anything was put right
    sweep(world.store, LEASE)
    for _ in range(5):
        moved.wait(10)
        say("a")
        sweep(world.store, LEASE)
    with world.store.read() as session:
        found = {row.client_id: row.lost_at is not None for row in session.scalars(select(ParticipantRow))}
    assert found == {fed.devices["a"].id: False, fed.devices["b"].id: True}


def test_when_a_client_was_seen_is_written_after_the_clock_went_back(world: World, moved: Clock) -> None:
    fed = world.running()
    moved.move(-DAY)
    world.assignment(fed.devices["a"])
    with world.store.read() as session:
        seen = session.get_one(ClientRow, fed.devices["a"].id).last_seen_at
    assert seen is not None
    assert seen <= clock.now() + clock.SLACK


# ------------------------------------------------------------------------------------------- what is kept for a while
def test_answers_to_idempotency_keys_are_forgotten_in_their_time(world: World, moved: Clock) -> None:
    with world.store.write() as session:
        idempotency.once(session, "p", "k", "r", lambda: {"a": 1})
    moved.move(-30 * DAY)
    put_right(world.store, LEASE, all_of_it=True)
    moved.wait(idempotency.KEPT.total_seconds() + 60)
    with world.store.write() as session:
        idempotency.forget(session)
        assert session.scalars(select(IdempotencyRow)).all() == []


def test_what_a_wrong_clock_dated_long_ago_takes_nothing_with_it(world: World, moved: Clock) -> None:
    """A machine that begins in 1970 writes events and rows of the audit log until it knows better."""
    world.running()
    long_ago = datetime(1970, 1, 1, tzinfo=UTC)
    with world.store.write() as session:
        head = events.head(session)
        session.execute(update(EventRow).where(EventRow.sequence == head - 1).values(at=long_ago))
        kept = len(session.scalars(select(EventRow)).all())
        rows = len(session.scalars(select(AuditRow)).all())
        first = session.scalars(select(AuditRow.seq).order_by(AuditRow.seq)).first()
        events.forget(session)
        assert len(session.scalars(select(EventRow)).all()) == kept
        session.add(AuditRow(**audit_row(rows + 1, long_ago)))
        session.flush()
        session.add(AuditRow(**audit_row(rows + 2, clock.now())))
        session.flush()
        audit.forget(session, 31)
        left = session.scalars(select(AuditRow.seq).order_by(AuditRow.seq)).all()
        assert left == list(range(first or 1, rows + 3))


def audit_row(seq: int, at: datetime) -> dict[str, Any]:
    texts = ("actor_id", "actor_name", "role", "address", "action", "target", "request_id", "outcome")
    return {"seq": seq, "at": at, "detail": {}, "previous_hash": "p", "hash": "h"} | dict.fromkeys(texts, "x")


def test_nothing_is_removed_for_its_age_on_the_day_on_which_the_clock_went_far_ahead(
    world: World, moved: Clock
) -> None:
    world.running()
    with world.store.read() as session:
        kept = len(session.scalars(select(EventRow)).all())
    moved.move(400 * DAY)
    with world.store.write() as session:
        events.forget(session)
        assert len(session.scalars(select(EventRow)).all()) == kept
    moved.wait(DAY + 60)
    with world.store.write() as session:
        events.forget(session)
        assert len(session.scalars(select(EventRow)).all()) == 1


def test_files_are_as_old_as_the_time_that_passed(tmp_path: Path, moved: Clock) -> None:
    path = tmp_path / "blob"
    path.write_bytes(b"x")
    moved.move(DAY)
    assert clock.age(path) < 60
    moved.move(-2 * DAY)
    assert clock.age(path) == 0, "it lies ahead, and counts from now on"
    moved.wait(3600)
    assert 3590 < clock.age(path) < 3660


# ------------------------------------------------------------------------------------------------------ the whole kind
def test_every_moment_that_is_stored_is_judged_or_only_told() -> None:
    """A new one is either: a row of `stamps`, where something is decided by it, or in TOLD, where it is only shown."""
    stored = {
        f"{table.name}.{column.name}"
        for table in Base.metadata.sorted_tables
        for column in table.columns
        if isinstance(column.type, UtcDateTime | DateTime)
    }
    judged = {
        f"{each.column.class_.__tablename__}.{each.column.key}" for each in stamps.table(timedelta(seconds=LEASE))
    }
    assert judged & TOLD == set()
    assert stored - judged - TOLD == set(), "say in stamps.py how far ahead it can lie, or here that nothing is judged"
    assert (judged | TOLD) - stored == set()


def test_one_module_of_the_service_and_the_worker_reads_the_clock() -> None:
    reads = re.compile(r"datetime\.now\(|time\.time\(|time_ns\(\) *[<>]|utcnow\(|func\.now\(|st_mtime *[<>+-]")
    found = {
        str(path.relative_to(ROOT))
        for folder in ("service", "worker")
        for path in (ROOT / folder).rglob("*.py")
        if reads.search(path.read_text())
    }
    assert found == {"service/infra/clock.py"}


def test_a_process_that_was_held_up_and_a_clock_that_is_slewed_are_no_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steady, wall = iter([0.0, 0.0, 10.0, 40.0, 50.0, 50.0, 60.0, 60.0]), iter([1000.0, 1010.0, 1051.0, 1062.5])
    monkeypatch.setattr(clock, "steady", lambda: next(steady))
    monkeypatch.setattr(clock, "wall", lambda: next(wall))
    steps = clock.Steps()
    assert [steps.look() for _ in range(4)] == [1000.0, 1010.0, 1051.0, 1062.5]
    assert steps.unsettled() == []


def test_a_federation_that_is_over_is_let_go_of_in_its_time(world: World, moved: Clock) -> None:
    fed = world.running()
    world.ok("POST", f"/v1/federations/{fed.id}/cancel")
    moved.move(-30 * DAY)
    put_right(world.store, LEASE, all_of_it=True)
    with world.store.read() as session:
        finished = session.get_one(FederationRow, fed.id).finished_at
    assert finished is not None
    assert finished <= clock.now() + clock.SLACK
