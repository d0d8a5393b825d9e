"""Jobs and workers as they are shown; what workers say of themselves."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from contract.queue import QUEUES
from contract.wire import rounds as wire
from service.operations.ledger import row_events
from service.operations.ledger.clock import A_DAY, is_recent, now, patient, recent
from service.operations.ledger.paging import page
from service.persistence.tables import JobRow, RoundRow, WorkerRow

SILENT = timedelta(seconds=20)
FORGOTTEN = timedelta(days=1)


def heartbeat(
    session: Session,
    worker_id: str,
    host: str,
    pid: int,
    device: str,
    job_id: str | None,
    queues: Sequence[str] = QUEUES,
) -> None:
    """Record that a worker is alive, and what it does."""
    seen = {"host": host, "pid": pid, "device": device, "last_seen_at": now(), "job_id": job_id, "lost_at": None}
    session.merge(WorkerRow(id=worker_id, queues=",".join(queues), **seen))


def unserved(session: Session, federation_id: str | None = None) -> dict[str, int]:
    """Return queue -> waiting jobs, for the queues that no worker that is alive serves."""
    query = select(JobRow.queue, func.count()).where(JobRow.state == "queued").group_by(JobRow.queue)
    if federation_id is not None:
        query = query.where(JobRow.federation_id == federation_id)
    waiting: dict[str, int] = {}
    for queue, count in session.execute(query):
        waiting[queue] = count
    if not waiting:
        return {}
    alive = session.scalars(select(WorkerRow.queues).where(WorkerRow.last_seen_at.between(*recent(SILENT, now()))))
    served = {queue for queues in alive for queue in queues.split(",")}
    return {queue: count for queue, count in sorted(waiting.items()) if queue not in served}


def serving(session: Session, queue: str, device: str) -> int:
    """Return how many workers are alive that do a queue's jobs on a kind of device."""
    alive = WorkerRow.last_seen_at.between(*recent(SILENT, now())), WorkerRow.device == device
    return sum(queue in queues.split(",") for queues in session.scalars(select(WorkerRow.queues).where(*alive)))


def leave(session: Session, worker_id: str) -> None:
    """Forget a worker that has stopped."""
    row = session.get(WorkerRow, worker_id)
    if row is not None:
        row_events.note(session, "worker.left", row)
        session.delete(row)


def any_silent(session: Session) -> bool:
    """Whether a worker has gone silent and nobody has said so yet."""
    return session.scalars(select(WorkerRow.id).where(*_silent())).first() is not None


def miss(session: Session) -> None:
    """Record which workers have gone silent."""
    for row in session.scalars(select(WorkerRow).where(*_silent()).with_for_update(skip_locked=True)):
        row.lost_at = now()


def _silent() -> tuple[Any, ...]:
    return WorkerRow.last_seen_at < patient(now()) - SILENT, WorkerRow.lost_at.is_(None)


def forget_silent(session: Session) -> None:
    """Forget workers that have been silent for a day."""
    session.execute(delete(WorkerRow).where(WorkerRow.last_seen_at < patient(now(), A_DAY) - FORGOTTEN))


def listing(session: Session) -> list[wire.Worker]:
    """Return all workers, the newest first."""
    rows = session.scalars(select(WorkerRow).order_by(WorkerRow.id.desc()).limit(1000))
    return [_describe_worker(row) for row in rows]


def _describe_worker(row: WorkerRow) -> wire.Worker:
    return wire.Worker(
        id=row.id,
        host=row.host,
        pid=row.pid,
        device=row.device,
        queues=row.queues.split(","),
        alive=is_recent(row.last_seen_at, SILENT, now()),
        last_seen_at=row.last_seen_at,
        job_id=row.job_id,
    )


def _progress(row: JobRow) -> wire.JobProgress | None:
    """Return the progress with rate and time left, which follow from the seconds that its phase took."""
    if row.progress is None or row.state != "running":
        return None
    seen: dict[str, Any] = dict(row.progress)
    spent, step, of = seen.pop("phase_seconds", None), seen.get("step", 0), seen.get("of", 0)
    rate = step / spent if spent and step else None
    eta = (of - step) / rate if rate and of >= step else None
    return wire.JobProgress(phase=seen.get("phase", ""), step=step, of=of, rate=rate, eta=eta)


def describe_job(session: Session, row: JobRow) -> wire.Job:
    """Return what is shown of a job."""
    return _describe_jobs(session, [row])[0]


def _describe_jobs(session: Session, rows: Sequence[JobRow]) -> list[wire.Job]:
    """Return what is shown of jobs; the indices of their rounds come by one query, however many they are."""
    ids = {row.round_id for row in rows if row.round_id is not None}
    found = session.execute(select(RoundRow.id, RoundRow.index.label("number")).where(RoundRow.id.in_(ids)))
    indices: dict[str | None, int] = {row.id: row.number for row in found}
    return [_describe_job(row, indices.get(row.round_id)) for row in rows]


def _describe_job(row: JobRow, round_index: int | None) -> wire.Job:
    return wire.Job(
        id=row.id,
        kind=row.kind,
        state=row.state,
        queue=row.queue,
        federation_id=row.federation_id,
        round_id=row.round_id,
        round=round_index,
        attempt=row.attempt,
        max_attempts=row.max_attempts,
        progress=_progress(row),
        resumed_from=row.resumed_from and wire.ResumedFrom(**row.resumed_from),
        worker=row.worker_id,
        device=row.device,
        peak_memory_bytes=row.peak_memory_bytes,
        error=row.error,
        detail=row.detail,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )


def list_jobs(
    session: Session,
    limit: int,
    after: str | None,
    federation: str | None,
    state: str | None,
    newest_first: bool = False,
) -> tuple[list[wire.Job], str | None]:
    """Return a page of jobs."""
    query = select(JobRow)
    if federation is not None:
        query = query.where(JobRow.federation_id == federation)
    if state is not None:
        query = query.where(JobRow.state == state)
    rows, following = page(session, query, JobRow.id, limit, after, newest_first)
    return _describe_jobs(session, rows), following


def running(session: Session) -> list[wire.Job]:
    """Return the jobs that workers have now, with how far they are."""
    rows = session.scalars(select(JobRow).where(JobRow.state == "running").order_by(JobRow.id).limit(1000))
    return _describe_jobs(session, list(rows))
