"""Resumable uploads: who may have one, how far it is, who writes, and what became of it."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from contract.ids import new_id
from service.config import Settings
from service.domain.errors import DomainError, not_found
from service.operations.ledger import after_commit, locks
from service.operations.ledger.clock import A_DAY, now, patient
from service.operations.store import reservations
from service.persistence.tables import UploadRow

MAX_OPEN = 8
"""Resumable uploads that a device may have open."""
MAX_OPEN_BYTES = 64 * 2**30
"""Bytes that all open ones may come to; more where thirty-two of the largest are more."""
LEASE = timedelta(seconds=10)
"""Who writes and is silent for so long has lost the upload; it is renewed several times in that time."""
MOST_PARTS = 10_000
KEPT = timedelta(days=7)
"""An upload that has counted answers the same delivery again for so long."""
REFUSED_KEPT = timedelta(hours=1)
"""One that was refused for good tells the same delivery why for so long."""


@dataclass(frozen=True)
class Held:
    """An upload that nobody else may write to while the lease is renewed."""

    id: str
    owner: str
    holder: str
    offset: int
    length: int
    parts: list[str] = field(default_factory=list)
    expires_at: datetime | None = None


def max_open_bytes(settings: Settings) -> int:
    """Return the bytes that all open uploads may come to."""
    return max(MAX_OPEN_BYTES, 32 * settings.max_upload_bytes)


def create(session: Session, owner: str, length: int, notes: str, settings: Settings, free_bytes: int) -> UploadRow:
    """Open an upload.

    Args:
        owner: who may see it.
        length: bytes that will come.
        notes: Upload-Metadata as it came.
        settings: the limits.
        free_bytes: room in the store; what other uploads have reserved is taken off.

    Raises:
        DomainError: too-large, too-many-uploads (in number, or in bytes beyond the owner's share), storage-full.
    """
    locks.lock_uploads(session)
    if length > settings.max_upload_bytes:
        limit = settings.max_upload_bytes
        raise DomainError("too-large", f"an upload may have {limit} bytes", expected=limit, actual=length)
    mine = session.scalars(
        select(UploadRow).where(*reservations.open_ones(), UploadRow.owner == owner).order_by(UploadRow.id)
    ).all()
    if len(mine) >= MAX_OPEN:
        raise _too_many(mine, f"{MAX_OPEN} may be", MAX_OPEN, len(mine))
    most, room = max_open_bytes(settings), max(0, free_bytes - settings.min_free_bytes)
    share = min(most, room) // reservations.SHARE
    own = reservations.held(session, owner) + length
    if mine and own > share:
        raise _too_many(mine, f"beside them {length} bytes more are above its share of {share} bytes", share, own)
    total = reservations.held(session)
    if total + length > most:
        raise DomainError(
            "storage-full",
            f"{total} bytes are promised to uploads that are open, {most} may be; try again when others are done",
            expected=most,
            actual=total + length,
        )
    if room - reservations.missing(session) < length:
        raise DomainError("storage-full", "the service's disk is full; the operator must make room")
    row = UploadRow(
        id=new_id("upload"),
        owner=owner,
        length=length,
        offset=0,
        notes=notes,
        parts=[],
        wanted=False,
        created_at=now(),
        expires_at=now() + reservations.EXPIRY,
    )
    session.add(row)
    session.flush()
    return row


def _too_many(mine: Sequence[UploadRow], limit: str, expected: int, actual: int) -> DomainError:
    return DomainError(
        "too-many-uploads",
        f"{len(mine)} uploads of this token are open, {limit}; go on with one of them (HEAD tells how far it is), "
        "deliver it or DELETE it",
        expected=expected,
        actual=actual,
        open=[{"id": row.id, "offset": row.offset, "length": row.length} for row in mine[:20]],
    )


def find(session: Session, owner: str, upload_id: str) -> UploadRow:
    """Return an open upload of an owner.

    Raises:
        DomainError: not-found, also for those of others, and for one that has expired or has counted.
    """
    row = None if "\0" in upload_id else session.get(UploadRow, upload_id)  # which PostgreSQL would refuse to look for
    if row is None or row.owner != owner or row.target is not None or row.expires_at <= patient(now(), A_DAY):
        raise not_found("upload", upload_id)
    return row


def is_held(row: UploadRow) -> bool:
    """Whether somebody writes to it at this moment."""
    return row.holder is not None and row.lease_until is not None and row.lease_until > patient(now())


def take(session: Session, owner: str, upload_id: str, offset: int | None = None) -> Held:
    """Take an upload for writing (at an offset) or for delivery; only one caller at a time gets it.

    Raises:
        DomainError: not-found, upload-locked, upload-offset.
    """
    row = find(session, owner, upload_id)
    holder = uuid.uuid4().hex
    free = or_(UploadRow.holder.is_(None), UploadRow.lease_until.is_(None), UploadRow.lease_until <= patient(now()))
    taken = session.execute(
        update(UploadRow)
        .where(UploadRow.id == upload_id, free)
        .values(holder=holder, lease_until=now() + LEASE, wanted=False)
        .execution_options(synchronize_session=False)
    )
    if not taken.rowcount:  # type: ignore[attr-defined]
        raise locked()
    session.refresh(row)
    if offset is not None and offset != row.offset:  # the lease goes with the transaction
        raise DomainError(
            "upload-offset",
            f"{row.offset} bytes are here; go on from there, not from {offset}",
            expected=row.offset,
            actual=offset,
        )
    return Held(row.id, row.owner, holder, row.offset, row.length, list(row.parts), row.expires_at)


def locked() -> DomainError:
    """Return the refusal while somebody else has the upload."""
    return DomainError(
        "upload-locked", "another request has this upload; ask with HEAD how far it is, then try again", retry_after=1
    )


def _mine(session: Session, held: Held) -> UploadRow:
    row = session.get(UploadRow, held.id, populate_existing=True, with_for_update=True)
    if row is None:
        raise not_found("upload", held.id)
    if row.holder != held.holder:
        raise locked()
    return row


def check_parts(parts: Sequence[str]) -> None:
    """Refuse to cut an upload into ever smaller pieces, where the store keeps each by itself.

    Raises:
        DomainError: too-large.
    """
    if len(parts) > MOST_PARTS:
        raise DomainError(
            "too-large",
            f"the upload came in {MOST_PARTS} pieces, no more are taken; DELETE it and send larger ones",
            expected=MOST_PARTS,
            actual=len(parts),
        )


def advance(session: Session, held: Held, offset: int, parts: Sequence[str]) -> UploadRow:
    """Note how many bytes are on the disk; from here on they survive a crash.

    Raises:
        DomainError: upload-locked, not-found, when the upload was lost to somebody else.
    """
    check_parts(parts)
    row = _mine(session, held)
    row.offset, row.parts = offset, list(parts)
    row.lease_until = now() + LEASE
    row.expires_at = now() + reservations.EXPIRY
    return row


def renew(session: Session, held: Held) -> bool:
    """Keep the lease; return whether the owner wants the upload back.

    Raises:
        DomainError: upload-locked, not-found.
    """
    row = _mine(session, held)
    row.lease_until = now() + LEASE
    return row.wanted


def let_go(session: Session, held: Held) -> None:
    """Give the upload back, if it is still held."""
    row = session.get(UploadRow, held.id, populate_existing=True, with_for_update=True)
    if row is not None and row.holder == held.holder:
        row.holder, row.lease_until, row.wanted = None, None, False


def ask_for(session: Session, owner: str, upload_id: str) -> None:
    """Ask whoever holds an upload to let go: its owner has come back by another connection."""
    row = find(session, owner, upload_id)
    if is_held(row):
        row.wanted = True


def remove(session: Session, owner: str, upload_id: str) -> None:
    """End an upload; whoever still writes to it is stopped.

    Raises:
        DomainError: not-found.
    """
    _drop(session, find(session, owner, upload_id))


def discard(session: Session, owner: str, upload_id: str) -> None:
    """End an upload, if it is there: what it was meant for was refused."""
    row = None if "\0" in upload_id else session.get(UploadRow, upload_id)
    if row is not None and row.owner == owner and row.target is None:
        _drop(session, row)


def drop_of(session: Session, owner: str) -> None:
    """End all uploads of somebody who is gone."""
    for row in session.scalars(select(UploadRow).where(UploadRow.owner == owner)):
        _drop(session, row)


def _drop(session: Session, row: UploadRow) -> None:
    session.delete(row)
    after_commit.drop_upload(session, row.id)


def check_whole(held: Held) -> None:
    """Refuse to deliver an upload that is not finished.

    Raises:
        DomainError: upload-incomplete.
    """
    if held.offset != held.length:
        raise DomainError(
            "upload-incomplete",
            f"{held.offset} of {held.length} bytes are here; send the rest first",
            expected=held.length,
            actual=held.offset,
        )


def spend(session: Session, held: Held, target: str, answer: dict[str, Any]) -> None:
    """The upload has counted: its bytes go, and the same delivery again gets the same answer.

    Raises:
        DomainError: upload-locked, not-found, when the upload was lost to somebody else.
    """
    row = _mine(session, held)
    row.target, row.answer = target[:255], answer
    row.parts, row.holder, row.lease_until = [], None, None
    row.expires_at = now() + KEPT
    after_commit.drop_upload(session, row.id)


def refuse(session: Session, owner: str, upload_id: str, target: str, answer: dict[str, Any]) -> None:
    """The upload was refused for good, if it is there: its bytes go, and the same delivery again is refused alike."""
    row = None if "\0" in upload_id else session.get(UploadRow, upload_id, with_for_update=True)
    if row is None or row.owner != owner or row.target is not None:
        return
    row.target, row.answer = target[:255], answer
    row.parts, row.holder, row.lease_until = [], None, None
    row.expires_at = now() + REFUSED_KEPT
    after_commit.drop_upload(session, row.id)


def note(
    session: Session, owner: str, name: str, target: str, size: int, answer: dict[str, Any], kept: timedelta
) -> None:
    """A staged file has counted, or was refused for good: the same delivery again gets the first answer."""
    locks.alone(session, f"staged {name}")
    if session.get(UploadRow, name) is not None:
        return
    row = UploadRow(id=name, owner=owner, length=size, offset=size, notes="", parts=[], wanted=False, created_at=now())
    row.target, row.answer, row.expires_at = target[:255], answer, now() + kept
    session.add(row)
    session.flush()


def answered(session: Session, owner: str, upload_id: str, target: str) -> dict[str, Any] | None:
    """Return what this very delivery was answered before, if it has counted or was refused for good."""
    row = None if "\0" in upload_id else session.get(UploadRow, upload_id)  # which PostgreSQL would refuse to look for
    if row is None or row.owner != owner or row.target != target[:255]:
        return None
    return row.answer


def _expired() -> tuple[Any, ...]:
    free = or_(UploadRow.lease_until.is_(None), UploadRow.lease_until <= patient(now()))
    return (UploadRow.expires_at <= patient(now(), A_DAY), free)


def any_expired(session: Session) -> bool:
    """Whether something is to be swept."""
    return session.scalars(select(UploadRow.id).where(*_expired()).limit(1)).first() is not None


def sweep(session: Session) -> int:
    """Remove uploads that nobody went on with; return how many."""
    rows = session.scalars(select(UploadRow).where(*_expired()).limit(500)).all()
    for row in rows:
        _drop(session, row)
    return len(rows)


def unknown(session: Session, ids: set[str]) -> set[str]:
    """Return those ids that no open upload has: a crash came between a commit and the removal of their bytes."""
    known = session.scalars(select(UploadRow.id).where(UploadRow.id.in_(ids), UploadRow.target.is_(None)))
    return ids - set(known)
