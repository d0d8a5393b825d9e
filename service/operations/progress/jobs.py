"""Jobs: claimed with a lease and a fencing token, renewed, finished once.

A worker that lost its lease has an old fence; nothing it says counts any more.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from sqlalchemy import Select, and_, bindparam, or_, select, update
from sqlalchemy.orm import Session
from sqlalchemy.sql.dml import ReturningUpdate

from contract import traces
from contract.ids import new_id
from contract.jobs import queue_of
from contract.queue import QUEUES, JobName
from service.domain.errors import not_found
from service.domain.states import JOB, advance
from service.infra.blobs import STATES
from service.operations.ledger import after_commit, row_events
from service.operations.ledger.clock import SLACK, now, patient
from service.operations.progress import reading
from service.persistence.tables import FederationRow, JobRow, UpdateRow

MAX_ATTEMPTS = 5
"""A job that was tried so often, and came to no end, has failed."""
RETRY_SECONDS = 2.0
"""Pause before a failed job is tried again; it doubles up to 32-fold."""
POSTPONED_SECONDS = 5.0
_LINKS = 100
"""Updates that the trace of a round's job names; OpenTelemetry keeps 128 of a span by itself."""


class LostLease(Exception):
    """The job belongs to somebody else by now."""


def enqueue(session: Session, kind: JobName, federation: FederationRow, round_id: str | None = None) -> JobRow:
    """Add a job in the caller's transaction; workers are woken after its commit."""
    job = JobRow(
        id=new_id("job"),
        kind=kind,
        state="queued",
        federation_id=federation.id,
        round_id=round_id,
        max_attempts=MAX_ATTEMPTS,
        created_at=now(),
        queued_at=now(),
        attempt=0,
        fence=0,
        cancel_requested=False,
        queue=queue_of(kind, reading.config_of(federation)),
        traceparent=traces.current(),
    )
    session.add(job)
    after_commit.wake_workers(session, job.queue)
    return job


def later(seconds: float) -> datetime:
    """Return the moment `seconds` from now."""
    return now() + timedelta(seconds=seconds)


def _due(moment: Any) -> Any:
    return or_(
        and_(JobRow.state == "queued", or_(JobRow.not_before.is_(None), JobRow.not_before <= moment)),
        and_(
            JobRow.state == "running",
            JobRow.lease_until < moment,
            JobRow.attempt < JobRow.max_attempts,
            JobRow.cancel_requested.is_(False),
        ),
    )


@lru_cache(maxsize=64)
def _waiting(queues: tuple[str, ...]) -> Select[str]:
    """Return the query of jobs that are due at `moment`; to put it together takes longer than to ask it."""
    return select(JobRow.id).where(_due(bindparam("moment", type_=JobRow.not_before.type)), JobRow.queue.in_(queues))


@lru_cache(maxsize=64)
def _taking(queues: tuple[str, ...]) -> ReturningUpdate[JobRow]:
    """Return the statement that takes the job which is due and has the fewest attempts, of these the oldest."""
    first = _waiting(queues).order_by(JobRow.attempt, JobRow.id).limit(1)
    return (
        update(JobRow)
        .where(
            JobRow.id == first.with_for_update(skip_locked=True).scalar_subquery(),
            _due(bindparam("moment", type_=JobRow.not_before.type)),
        )
        .values(
            state=advance(JOB, "queued", "claim", "job"),
            worker_id=bindparam("worker"),
            device=bindparam("on"),
            fence=JobRow.fence + 1,
            attempt=JobRow.attempt + 1,
            lease_until=bindparam("until", type_=JobRow.lease_until.type),
            started_at=bindparam("begun", type_=JobRow.started_at.type),
            progress=None,
            resumed_from=None,
        )
        .returning(JobRow)
        .execution_options(populate_existing=True, synchronize_session=False)
    )


def any_due(session: Session, queues: Sequence[str] = QUEUES) -> bool:
    """Whether a job of some queues waits for a worker; a look that takes no write lock."""
    return session.scalars(_waiting(tuple(queues)).limit(1), {"moment": patient(now())}).first() is not None


def claim(
    session: Session, worker_id: str, device: str, lease_seconds: float, queues: Sequence[str] = QUEUES
) -> JobRow | None:
    """Take a job that is due: queued, or held by a worker that has gone silent. None when there is none.

    The one with the fewest attempts goes first, then the oldest: one that fails again and again holds nobody up.
    """
    moment = now()
    until = moment + timedelta(seconds=lease_seconds)
    given = {"moment": patient(moment), "worker": worker_id, "on": device, "until": until, "begun": moment}
    job = session.scalars(_taking(tuple(queues)), given).first()
    if job is not None:
        row_events.note(session, "job.claimed", job)
    return job


def is_cancelled(session: Session, job_id: str, fence: int) -> bool:
    """Whether somebody wants the job to end.

    Raises:
        LostLease: another worker has the job, or it is over.
    """
    job = session.get(JobRow, job_id)
    if job is None or job.fence != fence or job.state != "running":
        raise LostLease(job_id)
    return job.cancel_requested


def renew(session: Session, job_id: str, fence: int, lease_seconds: float, progress: dict[str, Any] | None) -> JobRow:
    """Prolong the lease and record the progress; return the job.

    Raises:
        LostLease: another worker has the job, or it is over.
    """
    job = held(session, job_id, fence)
    job.lease_until = later(lease_seconds)
    if progress is not None:
        job.progress = progress
    return job


def held(session: Session, job_id: str, fence: int) -> JobRow:
    """Return the job, locked for this transaction, if the caller still holds it.

    Its federation is locked first, as everywhere: or a cancel and a publish would wait for each other.

    Raises:
        LostLease: it does not.
    """
    owner = select(JobRow.federation_id).where(JobRow.id == job_id).scalar_subquery()
    session.execute(select(FederationRow.id).where(FederationRow.id == owner).with_for_update())
    query = select(JobRow).where(JobRow.id == job_id).with_for_update()
    job = session.scalars(query.execution_options(populate_existing=True)).first()
    if job is None or job.fence != fence or job.state != "running":
        raise LostLease(job_id)
    return job


def release(session: Session, job: JobRow, error: str, detail: str) -> bool:
    """Give a job back after a fault that may pass; return False when its attempts are used up (it has failed then)."""
    job.error, job.detail = error, detail[:2000]
    job.lease_until, job.worker_id = None, None
    if job.attempt >= job.max_attempts:
        end(job, "fail")
        return False
    job.state = advance(JOB, job.state, "release", "job")
    job.not_before = job.queued_at = now() + timedelta(seconds=RETRY_SECONDS * 2 ** min(job.attempt - 1, 5))
    return True


def put_off(session: Session, job: JobRow, seconds: float, detail: str) -> None:
    """Put a job back because others come first; the attempt does not count."""
    job.state = advance(JOB, job.state, "release", "job")
    job.lease_until = job.worker_id = job.error = None
    job.detail, job.not_before, job.queued_at = detail[:2000], later(seconds), later(seconds)
    job.attempt -= 1


def postpone(session: Session, job: JobRow, error: str, detail: str) -> None:
    """Put a job back because something that it needs is away; the attempt does not count."""
    job.state = advance(JOB, job.state, "release", "job")
    job.lease_until = job.worker_id = None
    job.error, job.detail = error, detail[:2000]
    job.not_before = job.queued_at = now() + timedelta(seconds=POSTPONED_SECONDS)
    job.attempt -= 1


def folders(session: Session) -> set[str]:
    """Return the names of the folders of jobs that run, and of the states of live ones, as `Blobs.sweep` takes them."""
    live = list(session.scalars(select(JobRow).where(JobRow.state.in_(("queued", "running")))))
    running = {f"{job.id}-{job.fence}" for job in live if job.state == "running"}
    return running | {f"{STATES}{job.id}" for job in live}


def give_back(session: Session, job: JobRow) -> None:
    """Put a job back because its worker stops; the attempt does not count, and another worker may start at once."""
    job.state = advance(JOB, job.state, "release", "job")
    job.lease_until = job.worker_id = job.not_before = job.error = job.detail = None
    job.queued_at = now()
    job.attempt -= 1
    after_commit.wake_workers(session, job.queue)


def end(job: JobRow, event: str) -> None:
    """Close a job: `event` is finish, fail or cancel."""
    job.state = advance(JOB, job.state, event, "job")
    job.finished_at = now()
    job.lease_until = None
    if event == "finish":
        job.error = job.detail = None


def get(session: Session, job_id: str) -> JobRow:
    """Return a job, or refuse with not-found."""
    job = session.get(JobRow, job_id)
    if job is None:
        raise not_found("job", job_id)
    return job


def fresh(session: Session, job: JobRow) -> JobRow:
    """Return the job as it is now, locked for this transaction."""
    query = select(JobRow).where(JobRow.id == job.id).with_for_update()
    return session.scalars(query.execution_options(populate_existing=True)).one()


def withdraw(session: Session, job: JobRow, why: str = "the federation was cancelled before it ran") -> None:
    """End a job that nobody needs any more, or ask its worker to: it looks every second."""
    if job.state == "queued":
        end(job, "cancel")
        job.error, job.detail = "cancelled", why
    else:
        job.cancel_requested = True


def requeue(session: Session, job: JobRow) -> None:
    """Let a failed or cancelled job run again, with all its attempts."""
    job.state = advance(JOB, job.state, "retry", "job")
    job.attempt, job.cancel_requested, job.queued_at = 0, False, now()
    job.error = job.detail = job.finished_at = job.not_before = job.hinted_at = None
    job.traceparent = traces.current() or job.traceparent
    after_commit.wake_workers(session, job.queue)


def unheard(session: Session, moment: datetime) -> list[JobRow]:
    """Return jobs that are due although a wake-up should have reached a worker by now."""
    patience, again, due = moment - timedelta(seconds=2), moment - timedelta(seconds=10), _due(patient(moment))
    waited = ~JobRow.created_at.between(patience, moment + SLACK)  # or it was made before the clock went back
    told = and_(JobRow.hinted_at.is_not(None), JobRow.hinted_at >= again)
    rows = session.scalars(select(JobRow).where(due, waited, ~told))
    return list(rows)


def traces_of(session: Session, job: JobRow) -> Sequence[str]:
    """Return the `traceparent` of updates that a round's job reads, beside the one that it was asked for by."""
    if job.kind != "round" or job.round_id is None:
        return []
    theirs = select(UpdateRow.traceparent).where(
        UpdateRow.round_id == job.round_id, UpdateRow.traceparent.is_not(None), UpdateRow.traceparent != job.traceparent
    )
    return [str(each) for each in session.scalars(theirs.order_by(UpdateRow.id).limit(_LINKS))]
