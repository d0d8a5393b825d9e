"""A federation waits, or ends, because of a job that has failed for good; and goes on when the job is retried."""

from sqlalchemy.orm import Session

from service.operations.progress import lifecycle
from service.persistence.tables import FederationRow, JobRow


def fail(session: Session, federation: FederationRow, job: JobRow, reason: str) -> None:
    """Pause a federation that runs; before its first round it has failed."""
    if federation.state == "running":
        lifecycle.move(session, federation, "pause")
    elif federation.state != "paused":
        lifecycle.move(session, federation, "fail")


def put_back(session: Session, federation: FederationRow, event: str) -> None:
    """Put a federation that has failed back to the stage that `event` names."""
    if federation.state == "failed":
        lifecycle.move(session, federation, event)
        federation.finished_at = None


def retry(session: Session, federation: FederationRow, job: JobRow) -> None:
    """Put a federation that has failed back to its beginning."""
    put_back(session, federation, "revive")
