"""Checksums of blobs, by which jobs find damage; a blob without one is compared with its name, which takes longer."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from service.operations.ledger.upserts import inserting
from service.persistence.tables import ChecksumRow

_AT_ONCE = 500
_NOTING: dict[str, Any] = {}
"""Dialect -> statement."""


def known(session: Session, digests: Iterable[str]) -> dict[str, str]:
    """Return digest -> checksum of those blobs that have one."""
    found: dict[str, str] = {}
    for some in _pieces(digests):
        query = select(ChecksumRow.digest, ChecksumRow.checksum).where(ChecksumRow.digest.in_(some))
        found.update((digest, checksum) for digest, checksum in session.execute(query))
    return found


def note(session: Session, found: Mapping[str, str]) -> None:
    """Keep checksums, of blobs whose bytes had these digests, in place of others.

    To be called under `locks.hold_blobs` and after the transaction's other locks.
    """
    rows = [{"digest": digest, "checksum": found[digest]} for digest in sorted(found)]
    if rows:
        session.connection().execute(_noting(session), rows)


def _noting(session: Session) -> Any:
    """Return the statement that keeps a checksum, put together once: that takes longer than to run it."""
    dialect = session.get_bind().dialect.name
    if dialect not in _NOTING:
        made = inserting(session, ChecksumRow.__table__)
        other = ChecksumRow.checksum != made.excluded.checksum
        values = {"checksum": made.excluded.checksum}
        _NOTING[dialect] = made.on_conflict_do_update(index_elements=[ChecksumRow.digest], set_=values, where=other)
    return _NOTING[dialect]


def forget(session: Session, digests: Iterable[str]) -> None:
    """Remove the checksums of blobs that go; to be called under `locks.lock_blobs`."""
    for some in _pieces(digests):
        session.execute(delete(ChecksumRow).where(ChecksumRow.digest.in_(some)))


def batches(session: Session) -> Iterator[set[str]]:
    """Yield the digests of all blobs that have a checksum, in batches."""
    last = ""
    while some := list(
        session.scalars(
            select(ChecksumRow.digest).where(ChecksumRow.digest > last).order_by(ChecksumRow.digest).limit(_AT_ONCE)
        )
    ):
        yield set(some)
        last = some[-1]


def _pieces(digests: Iterable[str]) -> Iterator[list[str]]:
    """Yield digests, few enough for a query, and in one order: no two transactions wait for each other."""
    ordered = sorted(digests)
    for start in range(0, len(ordered), _AT_ONCE):
        yield ordered[start : start + _AT_ONCE]
