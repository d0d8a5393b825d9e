"""What has to happen although nobody calls: deadlines, lost wake-ups, dead workers. Any replica may do it.

One transaction a federation or job, so that one that cannot go on holds up no other.
"""

import logging
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from service.config import Settings
from service.infra.blobs import Blobs
from service.operations.access import sessions
from service.operations.ledger import after_commit, audit, events, idempotency
from service.operations.ledger.clock import STEPS, now, patient
from service.operations.ledger.garbage import collect
from service.operations.ledger.unit import Store
from service.operations.progress import deadlines, jobs, reading
from service.operations.steer import publishing, retention
from service.operations.store import uploads, workers
from service.operations.upkeep import stamps
from service.persistence.tables import JobRow

log = logging.getLogger("service.sweep")
_ABANDONED_SECONDS = 600.0  # a living upload writes far more often
_UNNAMED_SECONDS = 3600.0


def sweep(store: Store, lease_seconds: float = 30.0) -> None:
    """Do what is due; running it twice, or in two processes, does no harm. Writes only when it has to."""
    put_right(store, lease_seconds)
    with store.read() as session:
        worn, due, unheard = _worn_out(session), deadlines.due(session), bool(jobs.unheard(session, now()))
        expired = uploads.any_expired(session)
        silent = workers.any_silent(session)
    for job_id in worn:
        _alone(store, f"job {job_id}", partial(_give_up, job_id=job_id))
    for id_ in due:
        act = partial(deadlines.proceed, federation_id=id_)
        _alone(store, f"federation {id_}", act)
    if unheard:
        _alone(store, "wake-ups", _wake)
    if expired:
        _alone(store, "uploads", uploads.sweep)
    if silent:
        _alone(store, "workers", workers.miss)


def put_right(store: Store, lease_seconds: float, all_of_it: bool = False) -> None:
    """Put right what is stored of moments, after a step of the clock, and where one lies further ahead than it can."""
    moment, steps = now(), STEPS.unsettled()
    moved = timedelta(seconds=sum(step.seconds for step in steps))
    judged = stamps.table(timedelta(seconds=lease_seconds))
    with store.read() as session:
        wrong = [
            each for each in judged
            if steps or ((all_of_it or each.often) and stamps.is_wrong(session, each, moment))
        ]  # fmt: skip
    far: list[timedelta] = []
    for each in wrong:
        act = partial(stamps.put_right, stamp=each, moment=moment, moved=moved)
        _alone(store, f"clock and {each.column}", lambda session, act=act: far.append(act(session)))  # type: ignore[misc]
    STEPS.settle(steps)
    if not steps and any(far):
        STEPS.told(max(far).total_seconds())


def _alone(store: Store, what: str, act: Callable[[Session], object]) -> None:
    try:
        with store.write() as session:
            act(session)
    except Exception:
        log.exception("the sweep failed for %s", what)


def _wake(session: Session) -> None:
    moment = now()
    for job in jobs.unheard(session, moment):
        job.hinted_at = moment
        after_commit.wake_workers(session, job.queue)


def _is_worn_out() -> tuple[object, ...]:
    worn = or_(JobRow.attempt >= JobRow.max_attempts, JobRow.cancel_requested)
    return (JobRow.state == "running", JobRow.lease_until < patient(now()), worn)


def _worn_out(session: Session) -> list[str]:
    """Return jobs whose worker went silent in their last attempt, or after somebody cancelled them."""
    return list(session.scalars(select(JobRow.id).where(*_is_worn_out()).order_by(JobRow.id)))  # type: ignore[arg-type]


def _give_up(session: Session, job_id: str) -> None:
    reading.locked(session, session.get_one(JobRow, job_id).federation_id)
    job = jobs.fresh(session, session.get_one(JobRow, job_id))
    if job.state != "running" or job.lease_until is None or job.lease_until >= patient(now()):
        return
    if job.cancel_requested:
        publishing.cancelled(session, job)
        return
    publishing.give_up(
        session,
        job,
        job.error or "worker_lost",
        job.detail or f"the worker was lost {job.attempt} times (out of memory?); see its log, then retry the job",
    )


def tidy(store: Store, blobs: Blobs, settings: Settings) -> None:
    """Drop what only served for a while, what retention does not keep, and files that no row names."""
    put_right(store, settings.lease_seconds, all_of_it=True)
    with store.read() as session:
        everyone = retention.everyone(session)
    for id_ in everyone:
        _alone(store, f"retention of {id_}", partial(retention.tidy, federation_id=id_, default=settings.retention))
    with store.write() as session:
        events.forget(session)
        idempotency.forget(session)
        sessions.forget(session)
        workers.forget_silent(session)
        audit.forget(session, settings.audit_days)
    with store.read() as session:
        working = jobs.folders(session)
    removed = blobs.sweep(_ABANDONED_SECONDS, working)
    removed += collect(store.database, store.blobs, _UNNAMED_SECONDS)
    removed += _drop_unknown(store)
    if removed:
        log.info("removed %d abandoned files", removed)


def _drop_unknown(store: Store) -> int:
    """Remove bytes of uploads that no row names."""
    if store.parts is None:
        return 0
    left = set(store.parts.ids(_ABANDONED_SECONDS))
    with store.read() as session:
        unknown = uploads.unknown(session, left)
    for upload in unknown:
        store.parts.remove(upload)
    return len(unknown)
