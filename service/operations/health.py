"""Readiness: is everything there that the service depends on?"""

from datetime import timedelta

from sqlalchemy import select, text
from sqlalchemy.exc import SQLAlchemyError

from service.config import Settings
from service.domain.errors import DomainError
from service.infra.blobs import Blobs
from service.operations.clock import now
from service.operations.workers import SILENT, unserved
from service.persistence.engine import Database
from service.persistence.tables import JobRow, WorkerRow

Checks = dict[str, tuple[bool, str]]
STARVED = timedelta(minutes=2)


def checks(database: Database, blobs: Blobs, settings: Settings, worker: bool) -> Checks:
    """Return name -> (is it well, what there is to say)."""
    found: Checks = {}
    try:
        with database.read() as session:
            session.execute(text("SELECT 1"))
            found["database"] = (True, "")
            if worker:
                newest = session.scalar(select(WorkerRow.last_seen_at).order_by(WorkerRow.last_seen_at.desc()).limit(1))
                oldest = session.scalar(
                    select(JobRow.created_at).where(JobRow.state == "queued").order_by(JobRow.created_at).limit(1)
                )
                moment = now()
                silent = moment - newest if newest else None
                said = f"last heard {silent.total_seconds():.0f} s ago" if silent else "no worker has been heard"
                found["worker"] = (silent is not None and silent < SILENT, said)
                for queue, count in unserved(session).items():
                    missing = f"{count} jobs wait, and no worker serves it; start one with POTSTILL_QUEUES={queue}"
                    found[f"queue {queue}"] = (False, missing)
                age = moment - oldest if oldest else timedelta()
                found["queue"] = (
                    age < STARVED,
                    f"oldest queued job waits {age.total_seconds():.0f} s" if oldest else "",
                )
    except SQLAlchemyError as error:
        found["database"] = (False, type(error).__name__)
    try:
        found["blobs"] = (True, blobs.check())
    except DomainError as error:
        found["blobs"] = (False, error.detail)
    free = blobs.free_bytes()
    found["disk"] = (free >= settings.min_free_bytes, f"{free} bytes free")
    return found
