"""Readiness: is everything there that the service depends on?"""

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from service.config import Settings
from service.domain.errors import DomainError
from service.infra.blobs import BlobStore
from service.infra.scratch import Scratch
from service.operations.ledger.clock import went_back
from service.operations.store.workers import unserved
from service.operations.view import liveness
from service.persistence.engine import Database, is_damaged

Checks = dict[str, tuple[bool, str]]


def checks(
    database: Database, blobs: BlobStore, scratch: Scratch, settings: Settings, worker: bool, pid: int | None = None
) -> Checks:
    """Return name -> (is it well, what there is to say); with `pid` also of the worker of that process here."""
    found: Checks = {}
    try:
        with database.read() as session:
            session.execute(text("SELECT 1"))
            found["database"] = (True, "")
            if back := went_back():
                found["clock"] = (True, back)
            if pid is not None and (own := liveness.process_here(session, pid)) is not None:
                found["process"] = (own.ok, own.detail)
            if worker:
                workers = liveness.heard(session)
                for name, verdict in (
                    ("worker", liveness.beats(workers)),
                    ("queue", liveness.takes(session, workers)),
                ):
                    found[name] = (verdict.ok, verdict.detail)
                for queue, count in unserved(session).items():
                    missing = f"{count} jobs wait, and no worker serves it; start one with POTSTILL_QUEUES={queue}"
                    found[f"queue {queue}"] = (False, missing)
    except SQLAlchemyError as error:
        found["database"] = (False, "damaged; restore a backup" if is_damaged(error) else type(error).__name__)
    try:
        found["blobs"] = (True, blobs.check())
    except DomainError as error:
        found["blobs"] = (False, error.detail)
    try:
        free = scratch.free_bytes()
        found["disk"] = (free >= settings.min_free_bytes, f"{free} bytes free")
    except OSError as error:
        found["disk"] = (False, f"{scratch.root}: {error.strerror}")
    return found
