"""What jobs that score discriminators hand over."""

from sqlalchemy.orm import Session

from service.operations.progress import lifecycle, reading
from service.operations.steer import halting
from service.operations.store.outcome import Outcome
from service.persistence.tables import FederationRow, JobRow


def publish(session: Session, federation: FederationRow, job: JobRow, outcome: Outcome) -> None:
    """Note the scores; clients whose discriminator was rejected are not asked."""
    rejected = outcome.metrics.get("rejected", {})
    for client, row in reading.unscored(session, federation.id):
        if client.name in outcome.files:
            row.scores_digest = outcome.files[client.name][0]
            row.provenance_id = outcome.provenance_id
        elif client.name in rejected:
            row.rejected = str(rejected[client.name])[:2000]
    if federation.state == "scoring":
        lifecycle.move(session, federation, "run")


def fail(session: Session, federation: FederationRow, job: JobRow, reason: str) -> None:
    """Reject what could not be scored while rounds go on: the next event would queue the same job again."""
    if federation.state not in ("running", "paused"):
        halting.fail(session, federation, job, reason)
        return
    for _, row in reading.unscored(session, federation.id):
        row.rejected = reason[:2000]


def retry(session: Session, federation: FederationRow, job: JobRow) -> None:
    """Score again, also what was rejected."""
    if federation.state == "failed":
        halting.put_back(session, federation, "revive_scoring")
        return
    for row in reading.discriminators_of(session, federation.id).values():
        if row.scores_digest is None:
            row.rejected = None
