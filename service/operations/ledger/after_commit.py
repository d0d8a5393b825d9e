"""What has to happen after a commit: noted on the session, done by whoever commits."""

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
