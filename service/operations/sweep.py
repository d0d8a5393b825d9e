"""What has to happen although nobody calls: deadlines, lost wake-ups, dead workers. Any replica may do it."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.operations import effects, federations, idempotency, jobs, publishing, workers
from service.operations.clock import now
from service.persistence.tables import JobRow


def is_due(session: Session) -> bool:
    """Whether a sweep may have something to do; a look that takes no write lock."""
    return bool(jobs.unheard(session, now()) or _worn_out(session)) or federations.any_due(session)


def sweep(session: Session, max_attempts: int) -> None:
    """Do what is due; running it twice, or in two processes, does no harm."""
    moment = now()
    for job in _worn_out(session):
        publishing.give_up(
            session,
            job,
            job.error or "worker_lost",
            job.detail or f"the worker was lost {job.attempt} times (out of memory?); see its log, then retry the job",
        )
    session.flush()
    federations.proceed_all(session, max_attempts)
    late = jobs.unheard(session, moment)
    for job in late:
        job.hinted_at = moment
    if late:
        effects.wake_workers(session)


def _worn_out(session: Session) -> list[JobRow]:
    """Return jobs whose worker went silent in their last attempt."""
    rows = session.scalars(
        select(JobRow).where(
            JobRow.state == "running", JobRow.lease_until < now(), JobRow.attempt >= JobRow.max_attempts
        )
    )
    return list(rows)


def tidy(session: Session) -> None:
    """Drop what only served for a while."""
    idempotency.forget(session)
    workers.forget_silent(session)
