"""What has to happen after a commit: noted on the session, done by whoever commits."""

import hashlib

from sqlalchemy import text
from sqlalchemy.orm import Session

from service.persistence.tables import FederationRow

WAKE = "potstill.wake"
CHANGED = "potstill.changed"
RELEASED = "potstill.released"
DROPPED = "potstill.dropped"


def wake_workers(session: Session, queue: str) -> None:
    """Send the workers of a queue a wake-up after the commit."""
    session.info.setdefault(WAKE, set()).add(queue)


def touch(session: Session, federation: FederationRow) -> None:
    """Say that waiting devices of a federation may have something to do."""
    federation.version += 1
    session.info[CHANGED] = True


def release_blobs(session: Session, digests: set[str]) -> None:
    """Let go of blobs: after the commit, those that nothing names any more are removed."""
    session.info.setdefault(RELEASED, set()).update(digests)


def drop_upload(session: Session, upload_id: str) -> None:
    """Remove the bytes of a resumable upload after the commit."""
    session.info.setdefault(DROPPED, set()).add(upload_id)


def alone(session: Session, what: str) -> None:
    """Wait for every other transaction that is alone with the same thing; SQLite's write lock does so by itself."""
    if session.get_bind().dialect.name == "postgresql":
        number = int.from_bytes(hashlib.sha256(what.encode()).digest()[:4], signed=True)
        session.execute(text("SELECT pg_advisory_xact_lock(815002, :number)"), {"number": number})


def hold_blobs(session: Session) -> None:
    """Hold off the removal of blobs for the rest of this transaction; SQLite's write lock does so by itself."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock_shared(815001)"))


def lock_blobs(session: Session) -> None:
    """Hold off those that are about to name a blob, while unnamed ones are removed."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(815001)"))


def lock_uploads(session: Session) -> None:
    """Let resumable uploads be made one after another, so that their limits hold; SQLite does so by itself."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(815002)"))
