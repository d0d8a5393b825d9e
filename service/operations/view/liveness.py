"""Is work being taken? Not whether a process lives: a worker may live, hear wake-ups, and do nothing.

Two ages tell: that of the last heartbeat, which comes from the loop that takes jobs, and that of the job that waits
longest. It may wait while every worker is busy; next to an idle worker it may not.
"""

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from contract.queue import QUEUES
from service.infra import clock
from service.operations.ledger.clock import is_impossible, is_recent, now, patient, went_back
from service.operations.store.workers import SILENT
from service.persistence.tables import JobRow, WorkerRow

DEAF = timedelta(seconds=60)
"""So long a job may wait next to a worker that has nothing to do."""


@dataclass(frozen=True)
class Verdict:
    """Whether it is well, and what there is to say."""

    ok: bool
    detail: str


def waits_since(session: Session, queue: str) -> datetime | None:
    """Return since when the job of a queue that has waited longest could be taken: queued, or left by a dead worker."""
    moment = now()
    since = func.coalesce(JobRow.queued_at, JobRow.created_at)
    due = or_(JobRow.not_before.is_(None), JobRow.not_before <= moment)
    queued = session.scalar(
        select(func.min(since)).where(JobRow.state == "queued", JobRow.queue == queue, since <= moment, due)
    )
    left = session.scalar(select(func.min(JobRow.lease_until)).where(JobRow.state == "running", JobRow.queue == queue))
    found = [each for each in (queued, left) if each is not None and each < patient(moment)]
    return min(found, default=None)


def heard(session: Session, host: str | None = None, pid: int | None = None) -> list[WorkerRow]:
    """Return the workers that were heard lately, of one host or process or of all, the last heard first."""
    query = select(WorkerRow).order_by(WorkerRow.last_seen_at.desc()).limit(1000)
    if host is not None:
        query = query.where(WorkerRow.host == host)
    if pid is not None:
        query = query.where(WorkerRow.pid == pid)
    return list(session.scalars(query))


def beats(workers: Sequence[WorkerRow]) -> Verdict:
    """Judge by the age of the last heartbeat."""
    if not workers:
        return Verdict(False, "no worker has been heard; start one, or look at its log")
    moment, newest = now(), workers[0].last_seen_at
    if is_impossible(newest, moment):
        far = (newest - moment).total_seconds()
        return Verdict(False, f"clock went back: the last heartbeat lies {far:.0f} s ahead; waiting for the next one")
    age = max(timedelta(0), patient(moment) - newest)
    said = f"last heard {age.total_seconds():.0f} s ago"
    if age < SILENT:
        return Verdict(True, said)
    if back := went_back():
        return Verdict(False, f"{back}, and no worker was heard since; restart it if it stays so")
    return Verdict(False, f"{said}; restart it, its job goes on")


def takes(session: Session, workers: Sequence[WorkerRow]) -> Verdict:
    """Judge by the age of the job that waits longest for one of these workers: it may, while all of them are busy."""
    moment = now()
    alive = [each for each in workers if is_recent(each.last_seen_at, SILENT, moment)]
    found = [_taken(session, queue, [each for each in alive if queue in each.queues.split(",")]) for queue in QUEUES]
    return min(found, key=lambda verdict: (verdict.ok, not verdict.detail))


def _taken(session: Session, queue: str, serving: Sequence[WorkerRow]) -> Verdict:
    since = waits_since(session, queue)
    if since is None or not serving:  # a queue that nobody serves is `workers.unserved`
        return Verdict(True, "")
    age = patient(now()) - since
    said = f"oldest job waits {age.total_seconds():.0f} s"
    if all(each.job_id is not None for each in serving):
        return Verdict(True, f"{said}: all {len(serving)} workers are busy")
    return Verdict(age < DEAF, said if age < DEAF else f"{said} and no worker takes it; restart the workers")


def process_here(session: Session, pid: int) -> Verdict | None:
    """Judge the worker of one process of this host; None while its last heartbeat may be by another clock."""
    now()
    return None if clock.STEPS.within(clock.PATIENCE) else worker_here(session, pid)


def worker_here(session: Session, pid: int | None = None) -> Verdict:
    """Judge the worker of this host, or of one process: heard lately, and taking what waits."""
    mine = heard(session, socket.gethostname(), pid)
    pulse = beats(mine)
    if not pulse.ok:
        return pulse
    work = takes(session, mine)
    return Verdict(work.ok, "; ".join(each for each in (pulse.detail, work.detail) if each))
