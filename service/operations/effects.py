"""What has to happen after a commit: noted on the session, done by whoever commits."""

from sqlalchemy import text
from sqlalchemy.orm import Session

from service.persistence.tables import FederationRow

WAKE = "potstill.wake"
CHANGED = "potstill.changed"
RELEASED = "potstill.released"
DROPPED = "potstill.dropped"


def wake_workers(session: Session) -> None:
    """Send the workers a wake-up after the commit."""
    session.info[WAKE] = True


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
