"""Removal of blobs that nothing names any more, under the lock that uploads take before they name one."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.infra.blobs import Blobs
from service.persistence.tables import DatasetRow, DiscriminatorRow, ModelRow, RoundRow, UpdateRow


def named(session: Session, digests: set[str]) -> set[str]:
    """Return those digests that a model, a data set, a discriminator or an update not yet fused still needs."""
    queries = (
        select(ModelRow.digest).where(ModelRow.digest.in_(digests)),
        select(DatasetRow.digest).where(DatasetRow.digest.in_(digests)),
        select(DiscriminatorRow.digest).where(DiscriminatorRow.digest.in_(digests)),
        select(DiscriminatorRow.scores_digest).where(DiscriminatorRow.scores_digest.in_(digests)),
        select(UpdateRow.digest)
        .join(RoundRow, RoundRow.id == UpdateRow.round_id)
        .where(UpdateRow.digest.in_(digests), RoundRow.state.in_(("collecting", "aggregating", "failed"))),
    )
    return {digest for query in queries for digest in session.scalars(query) if digest is not None}


def remove_unnamed(session: Session, blobs: Blobs, digests: set[str]) -> None:
    """Remove those of the blobs that nothing names."""
    for digest in digests - named(session, digests):
        blobs.delete(digest)
