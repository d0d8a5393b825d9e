"""Removal of blobs that nothing names any more, under the lock that uploads take before they name one."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.domain.states import LIVE
from service.infra.blobs import Blobs
from service.operations import effects
from service.persistence.engine import Database
from service.persistence.tables import (
    DatasetRow,
    DiscriminatorRow,
    FederationRow,
    GanUpdateRow,
    ModelRow,
    RoundRow,
    UpdateRow,
)

_AT_ONCE = 500


def named(session: Session, digests: set[str]) -> set[str]:
    """Return those digests that a model, a data set, a discriminator or a delivery not yet fused still needs."""
    queries = (
        select(ModelRow.digest).where(ModelRow.digest.in_(digests)),
        select(DatasetRow.digest).where(DatasetRow.digest.in_(digests)),
        select(DiscriminatorRow.digest).where(DiscriminatorRow.digest.in_(digests)),
        select(DiscriminatorRow.scores_digest).where(DiscriminatorRow.scores_digest.in_(digests)),
        select(GanUpdateRow.digest)
        .join(FederationRow, FederationRow.id == GanUpdateRow.federation_id)
        .where(
            GanUpdateRow.digest.in_(digests),
            FederationRow.state.in_((*LIVE, "failed")),  # a failed job may be tried again
            FederationRow.gan_round == GanUpdateRow.gan_round,
        ),
        select(UpdateRow.digest)
        .join(RoundRow, RoundRow.id == UpdateRow.round_id)
        .join(FederationRow, FederationRow.id == RoundRow.federation_id)
        .where(
            UpdateRow.digest.in_(digests),
            FederationRow.state.in_(LIVE),
            FederationRow.round_index == RoundRow.index,  # a failed round may be tried again until another one follows
            RoundRow.state.in_(("collecting", "aggregating", "failed")),
        ),
    )
    return {digest for query in queries for digest in session.scalars(query) if digest is not None}


def remove_unnamed(session: Session, blobs: Blobs, digests: set[str]) -> None:
    """Remove those of the blobs that nothing names."""
    for digest in digests - named(session, digests):
        blobs.delete(digest)


def forget_copies(database: Database, blobs: Blobs) -> None:
    """Remove this machine's copies of blobs that nothing names any more: what the service deleted stays nowhere."""
    for batch in blobs.copies(_AT_ONCE):
        with database.read() as session:
            unnamed = batch - named(session, batch)
        blobs.forget(unnamed)


def collect(database: Database, blobs: Blobs, older_than_seconds: float) -> int:
    """Remove blobs that nothing names and that are older than some seconds; return how many.

    What a crash left between a rename and a commit, or between a commit and a removal, goes here.
    """
    removed = 0
    for batch in blobs.batches(older_than_seconds, _AT_ONCE):
        with database.read() as session:
            unnamed = batch - named(session, batch)
        if unnamed:
            with database.write() as session:
                effects.lock_blobs(session)
                remove_unnamed(session, blobs, unnamed)
            removed += len(unnamed)
    return removed
