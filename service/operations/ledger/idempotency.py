"""The same key with the same request gets the first answer; with another request, a conflict."""

import hashlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from service.domain.errors import DomainError, invalid_field
from service.operations.ledger import locks
from service.operations.ledger.clock import A_DAY, now, patient
from service.persistence.tables import IdempotencyRow

KEPT = timedelta(days=7)
MOST = 50_000  # keys of one token in that time; a join token's are those of all who enrol with it
Answer = dict[str, Any]


def once(
    session: Session,
    principal: str,
    key: str | None,
    request: str,
    make: Callable[[], Answer],
) -> Answer:
    """Return `make()`'s answer, or the one it gave when the same key came with the same request before.

    The answer is stored, so it must hold no secret: a route adds secrets by deriving them again.
    """
    if key is None:
        return make()
    if not 1 <= len(key) <= 200 or not key.isprintable():
        raise invalid_field("Idempotency-Key", "must have 1 to 200 printable characters")
    hashed = hashlib.sha256(request.encode()).hexdigest()
    locks.alone(session, f"{principal} {key}")  # or the second of two at once would fail, not be answered
    row = session.get(IdempotencyRow, (principal, key))
    if row is not None:
        if row.request_hash != hashed:
            raise DomainError("idempotency-conflict", "this Idempotency-Key came with another request before")
        return row.answer
    held = select(func.count()).select_from(IdempotencyRow).where(IdempotencyRow.principal == principal)
    if (session.scalar(held) or 0) >= MOST:
        raise DomainError(
            "too-many-requests",
            f"this token used {MOST} Idempotency-Keys within a week; send none, or wait",
            retry_after=3600,
            limit=MOST,
        )
    answer = make()
    session.add(IdempotencyRow(principal=principal, key=key, request_hash=hashed, answer=answer, created_at=now()))
    return answer


def forget(session: Session) -> None:
    """Drop answers that are older than a week."""
    session.execute(delete(IdempotencyRow).where(IdempotencyRow.created_at < patient(now(), A_DAY) - KEPT))
