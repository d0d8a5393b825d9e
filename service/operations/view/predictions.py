"""Predictions as they are shown."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.tasks import measured_of
from contract.wire import ensembles as wire
from service.operations.ledger.paging import page
from service.operations.progress import jobs
from service.operations.store import predictions, workers
from service.persistence.tables import FederationRow, ModelRow, PredictionRow, RoundRow


def _round(session: Session, row: PredictionRow) -> int | None:
    if row.round_id is not None:
        return session.get_one(RoundRow, row.round_id).index
    return None if row.model_id is None else session.get_one(ModelRow, row.model_id).round_index


def describe(session: Session, row: PredictionRow) -> wire.Prediction:
    """Return what is shown of a prediction."""
    job = workers.describe_job(session, jobs.get(session, row.job_id))
    document = predictions.document_of(row)
    return wire.Prediction(
        id=row.id,
        federation_id=row.federation_id,
        job_id=row.job_id,
        state=job.state,
        dataset=row.dataset,
        dataset_digest=document.dataset,
        num_samples=row.num_samples,
        ensemble=document.ensemble is not None,
        round=_round(session, row),
        model=row.model_id,
        digest=row.digest,
        size=row.size,
        accuracy=row.metrics.get("accuracy"),
        measured=measured_of(row.metrics),
        metrics=row.metrics,
        progress=job.progress,
        error=job.error,
        detail=job.detail,
        created_at=row.created_at,
        finished_at=job.finished_at,
        removed_at=row.removed_at,
        url=f"/v1/predictions/{row.id}/file",
    )


def listing(
    session: Session, federation: FederationRow, limit: int, after: str | None
) -> tuple[list[wire.Prediction], str | None]:
    """Return a page of a federation's predictions."""
    query = select(PredictionRow).where(PredictionRow.federation_id == federation.id)
    rows, following = page(session, query, PredictionRow.id, limit, after)
    return [describe(session, row) for row in rows], following
