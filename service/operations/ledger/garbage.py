"""Removal of blobs that nothing names any more, under the lock that uploads take before they name one."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from service.infra.blobs import BlobCache, BlobStore
from service.operations.ledger import after_commit, checksums, locks
from service.operations.ledger.clock import now
from service.persistence.engine import Database
from service.persistence.tables import (
    DatasetRow,
    DiscriminatorRow,
    EnsembleMemberRow,
    GanUpdateRow,
    LabelShardRow,
    ModelRow,
    NetworkRow,
    PredictionInputRow,
    PredictionRow,
    UpdateRow,
)

_AT_ONCE = 500
_NAMES: tuple[tuple[str, Any, ColumnElement[bool] | None], ...] = (
    ("model", ModelRow.digest, ModelRow.removed_at.is_(None)),
    ("data set", DatasetRow.digest, None),
    ("network", NetworkRow.digest, None),
    ("discriminator", DiscriminatorRow.digest, DiscriminatorRow.removed_at.is_(None)),
    ("scores", DiscriminatorRow.scores_digest, DiscriminatorRow.removed_at.is_(None)),
    ("generator update", GanUpdateRow.digest, GanUpdateRow.removed_at.is_(None)),
    ("update", UpdateRow.digest, UpdateRow.removed_at.is_(None)),
    ("member of an ensemble", EnsembleMemberRow.digest, EnsembleMemberRow.removed_at.is_(None)),
    ("prediction", PredictionRow.digest, PredictionRow.removed_at.is_(None)),
    ("input of a prediction", PredictionInputRow.digest, None),
    ("shard of labels", LabelShardRow.digest, None),
)
Removable = UpdateRow | GanUpdateRow | DiscriminatorRow | ModelRow | EnsembleMemberRow | PredictionRow
Named = Removable | DatasetRow | NetworkRow


def _queries() -> Iterator[tuple[str, Any, Any]]:
    for what, column, stays in _NAMES:
        query = select(column).where(column.is_not(None))
        yield what, column, query if stays is None else query.where(stays)


def named(session: Session, digests: set[str]) -> set[str]:
    """Return those digests that a model, a data set, a discriminator or a delivery still needs."""
    found = {digest for _, column, query in _queries() for digest in session.scalars(query.where(column.in_(digests)))}
    return {digest for digest in found if digest is not None}


def all_named(session: Session) -> dict[str, str]:
    """Return digest -> what it is, of every blob that is needed."""
    return {digest: what for what, _, query in _queries() for digest in session.scalars(query)}


def let_go(session: Session, rows: Iterable[Removable]) -> int:
    """Remove the blobs of some rows after the commit; the rows stay as history. Return how many are new to it."""
    count = 0
    for row in rows:
        if row.removed_at is None:
            row.removed_at = now()
            scores = row.scores_digest if isinstance(row, DiscriminatorRow) else None
            after_commit.release_blobs(session, {digest for digest in (row.digest, scores) if digest is not None})
            count += 1
    return count


def remove_unnamed(session: Session, blobs: BlobStore, digests: set[str]) -> None:
    """Remove those of the blobs that nothing names, and what is kept of them; none while a backup is read, then a later
    collection does it.
    """
    with blobs.removing() as may:
        gone = digests - named(session, digests) if may else set()
        for digest in gone:
            blobs.delete(digest)
        checksums.forget(session, gone)


def forget_copies(database: Database, cache: BlobCache) -> None:
    """Remove this machine's copies of blobs that nothing names any more: what the service deleted stays nowhere."""
    for batch in cache.batches(_AT_ONCE):
        with database.read() as session:
            unnamed = batch - named(session, batch)
        cache.forget(unnamed)


def collect(
    database: Database,
    blobs: BlobStore,
    older_than_seconds: float,
    *,
    dry_run: bool = False,
    on_unnamed: Callable[[set[str]], None] = lambda digests: None,
) -> int:
    """Remove blobs that nothing names and that are older than some seconds; return how many.

    What a crash left between a rename and a commit, or between a commit and a removal, goes here.

    Args:
        database: where names are looked up.
        blobs: where they are removed.
        older_than_seconds: since a blob was written; a younger one may be named in a moment.
        dry_run: remove nothing.
        on_unnamed: told which ones, before they are removed.
    """
    removed = 0
    for batch in blobs.batches(older_than_seconds, _AT_ONCE):
        with database.read() as session:
            unnamed = batch - named(session, batch)
        if unnamed:
            on_unnamed(unnamed)
            removed += len(unnamed)
            if not dry_run:
                with database.write() as session:
                    locks.lock_blobs(session)
                    remove_unnamed(session, blobs, unnamed)
    if not dry_run:
        _forget_checksums(database)
    return removed


def _forget_checksums(database: Database) -> None:
    """Remove checksums of blobs that nothing names, whatever became of their files."""
    with database.read() as session:
        unnamed = {digest for batch in checksums.batches(session) for digest in batch - named(session, batch)}
    if unnamed:
        with database.write() as session:
            locks.lock_blobs(session)
            checksums.forget(session, unnamed - named(session, unnamed))
