"""Predictions: the rows of what was asked for, and which blobs they keep while they are made."""

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from contract.bodies import stored
from contract.wire.ensembles import PredictionDocument
from service.domain.errors import DomainError, not_found
from service.operations.ledger import after_commit, garbage, locks
from service.persistence.tables import PredictionInputRow, PredictionRow


def document_of(row: PredictionRow) -> PredictionDocument:
    """Return what is predicted, and with what."""
    return stored(PredictionDocument, row.document)


def get(session: Session, prediction_id: str) -> PredictionRow:
    """Return a prediction, or refuse with not-found."""
    row = session.get(PredictionRow, prediction_id)
    if row is None:
        raise not_found("prediction", prediction_id)
    return row


def of_job(session: Session, job_id: str) -> PredictionRow:
    """Return the prediction that a job makes."""
    return session.scalars(select(PredictionRow).where(PredictionRow.job_id == job_id)).one()


def digest_of_file(session: Session, prediction_id: str) -> str:
    """Return the digest of what was predicted.

    Raises:
        DomainError: not-found, also while it is not made; removed.
    """
    row = get(session, prediction_id)
    if row.digest is None:
        raise DomainError("not-found", "the prediction is not made yet; its job says how far it is")
    if row.removed_at is not None:
        raise DomainError("removed", "the federation's retention has removed it; ask for it again")
    return row.digest


def hold_inputs(session: Session, row: PredictionRow) -> None:
    """Keep all blobs that a prediction reads until it is made.

    Raises:
        DomainError: removed: one is gone.
    """
    locks.hold_blobs(session)
    needed = document_of(row).digests()
    gone = needed - garbage.named(session, needed)
    if gone:
        detail = f"{len(gone)} of {len(needed)} files that it reads are no longer stored: retention, or an erasure"
        raise DomainError("removed", detail)
    session.add_all(PredictionInputRow(prediction_id=row.id, digest=digest) for digest in sorted(needed))


def let_go_of_inputs(session: Session, row: PredictionRow) -> None:
    """Let go of what a prediction has read."""
    mine = PredictionInputRow.prediction_id == row.id
    after_commit.release_blobs(session, set(session.scalars(select(PredictionInputRow.digest).where(mine))))
    session.execute(delete(PredictionInputRow).where(mine))


def take_away(session: Session, digests: set[str]) -> None:
    """Keep blobs for no prediction any more, for somebody wants them deleted; those that wait for them will fail."""
    session.execute(delete(PredictionInputRow).where(PredictionInputRow.digest.in_(digests)))
    after_commit.release_blobs(session, digests)
