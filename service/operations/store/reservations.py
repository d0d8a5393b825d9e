"""Room that open uploads hold: what has come of them, and for a while what is still missing.

An upload holds room for its rest while bytes come, so that it does not fail half-way; but not for long after them, or a
few devices that open uploads and send nothing would keep all others from sending.
"""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from service.config import Settings
from service.domain.errors import DomainError
from service.operations.ledger.clock import A_DAY, now, patient
from service.persistence.tables import UploadRow

EXPIRY = timedelta(days=1)
"""An upload that gets nothing for so long is removed."""
HOLDS = timedelta(minutes=10)
"""An upload that got nothing for so long holds no room for what is missing."""
SHARE = 4
"""Beyond its first upload, an owner's may hold a fourth of what there is for all."""


def open_ones() -> tuple[Any, ...]:
    """Return the conditions of uploads that may go on."""
    return (UploadRow.target.is_(None), UploadRow.expires_at > patient(now(), A_DAY))


def _late() -> datetime:
    """Return what expires later than this got bytes lately."""
    return now() + EXPIRY - HOLDS


def _sum(session: Session, lively: Any, idle: Any, *which: Any) -> int:
    figure = case((UploadRow.expires_at > _late(), lively), else_=idle)
    found = session.scalar(select(func.coalesce(func.sum(figure), 0)).where(*open_ones(), *which))
    return int(found or 0)  # PostgreSQL's is a Decimal


def held(session: Session, owner: str | None = None) -> int:
    """Return the bytes that open uploads, of an owner or of all, hold: come and missing."""
    which = () if owner is None else (UploadRow.owner == owner,)
    return _sum(session, UploadRow.length, UploadRow.offset, *which)


def missing(session: Session, but: str = "") -> int:
    """Return the bytes that open uploads, all but one, hold room for and that have not come."""
    return _sum(session, UploadRow.length - UploadRow.offset, 0, UploadRow.id != but)


def check_room(
    session: Session, upload_id: str, expires_at: datetime | None, rest: int, settings: Settings, free_bytes: int
) -> None:
    """Refuse to go on with an upload that has held no room for its rest, where there is none now.

    Raises:
        DomainError: storage-full; the upload stays.
    """
    if expires_at is None or expires_at > _late():
        return
    others = missing(session, upload_id)
    if free_bytes - others < settings.min_free_bytes + rest:
        raise DomainError("storage-full", "there is no room for the rest of this upload now; go on with it later")
