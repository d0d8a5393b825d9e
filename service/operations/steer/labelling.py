"""What jobs that ask some of a round's teachers hand over: a file for the round's job, which can do without it."""

from sqlalchemy.orm import Session

from service.domain.errors import DomainError
from service.operations.ledger import after_commit
from service.operations.progress import sharing
from service.operations.store.outcome import Outcome
from service.persistence.tables import FederationRow, JobRow


def publish(session: Session, federation: FederationRow, job: JobRow, outcome: Outcome) -> None:
    """Name the file, and call the round's job after the last one; where the round is over nobody needs it."""
    row = sharing.of_job(session, job.id)
    if row is None:
        after_commit.release_blobs(session, {digest for digest, _ in outcome.files.values()})
        return
    row.digest, row.size = outcome.files.get("labels", (None, None))
    row.seconds = outcome.metrics.get("seconds")
    sharing.settle(session, row.round_id)


def fail(session: Session, federation: FederationRow, job: JobRow, reason: str) -> None:
    """Let the round's job do without it; whatever is wrong it will find, too."""
    if job.round_id is not None:
        sharing.settle(session, job.round_id)


def retry(session: Session, federation: FederationRow, job: JobRow) -> None:
    """Refuse.

    Raises:
        DomainError: invalid-transition.
    """
    raise DomainError("invalid-transition", "its round's job does without it; retry that, if need be", state=job.state)
