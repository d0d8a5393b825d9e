"""Browsers that are signed in: a token makes a session, whose secret a cookie carries in its place.

A session is its token's: it has the same role, name and limits, and is over when that token is revoked, replaced or
expired. It ends by itself, too, and makes nothing that would outlive it.
"""

import secrets
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, or_, select, update
from sqlalchemy.orm import Session

from service.domain.errors import DomainError
from service.domain.principal import Principal
from service.infra import tokens as forge
from service.operations.access import tokens
from service.operations.ledger import audit
from service.operations.ledger.clock import A_DAY, is_due, now, patient
from service.persistence.tables import SessionRow, TokenRow

IDLE = timedelta(hours=12)
"""A session that no page used for so long is over; a page that is open uses it."""
LONGEST = timedelta(days=7)
"""From the sign-in on, whatever is used."""
MOST = 16
"""Sessions of a token; one more ends the one that was not used for the longest."""
_PREFIX = "pst_web_"  # no token has it: a session's secret is none


def begin(session: Session, key: bytes, caller: Principal) -> tuple[SessionRow, str]:
    """Add a session of the caller's token; return it with its secret, which is nowhere else.

    Raises:
        DomainError: unauthorized, when the token was revoked or replaced since the caller was let in.
    """
    row = session.get_one(TokenRow, caller.id, with_for_update=True, populate_existing=True)
    tokens.check_still_good(session, caller)
    secret = _PREFIX + secrets.token_urlsafe(32)
    moment = now()
    oldest_first = select(SessionRow).where(SessionRow.token_id == row.id).order_by(SessionRow.used_at)
    there = list(session.scalars(oldest_first))
    for each in there[: max(0, len(there) - MOST + 1)]:
        session.delete(each)
    ends = min(moment + LONGEST, caller.expires_at or moment + LONGEST)
    made = SessionRow(
        secret_hash=forge.hash_token(key, secret),
        token_id=row.id,
        nonce=caller.nonce,
        created_at=moment,
        used_at=moment,
        expires_at=ends,
    )
    session.add(made)
    session.flush()
    audit.record(session, "session.begin", row.id, expires_at=ends)
    return made, secret


def authenticate(session: Session, key: bytes, secret: str) -> Principal:
    """Return whose session a secret is of: its token's owner. Reads only; `settle` writes that it was used.

    Raises:
        DomainError: unauthorized, when there is none, or it is over, or its token is.
    """
    hashed = forge.hash_token(key, secret)
    query = select(SessionRow, TokenRow).join(TokenRow, TokenRow.id == SessionRow.token_id)
    found = session.execute(query.where(SessionRow.secret_hash == hashed)).first()
    if found is None or not forge.same(found[0].secret_hash, [hashed]) or _is_over(found[0], found[1]):
        raise _over()
    row, token = found
    role: Any = token.role
    unsettled = is_due(row.used_at, tokens.USED_EVERY, now())
    return Principal(
        role,
        token.id,
        token.name,
        nonce=row.nonce,
        expires_at=row.expires_at,
        unsettled=unsettled,
        session=row.secret_hash,
    )


def _over() -> DomainError:
    return DomainError("unauthorized", "the session is over; sign in with a token", reason="session")


def _is_over(row: SessionRow, token: TokenRow) -> bool:
    """Whether a session has ended, or its token; it was never given a life beyond its token's."""
    moment = now()
    replaced = token.revoked_at is not None or row.nonce not in (token.nonce, token.next_nonce)
    return replaced or row.expires_at <= moment or patient(moment) - row.used_at >= IDLE


def check_still_good(session: Session, caller: Principal) -> None:
    """Refuse a caller whose session or token ended since it was let in.

    Raises:
        DomainError: unauthorized.
    """
    if caller.session is not None and session.get(SessionRow, caller.session) is None:
        raise _over()
    tokens.check_still_good(session, caller)


def settle(session: Session, caller: Principal) -> None:
    """Note that a session is used, and so its token."""
    moment = now()
    session.execute(update(SessionRow).where(SessionRow.secret_hash == caller.session).values(used_at=moment))
    session.execute(update(TokenRow).where(TokenRow.id == caller.id).values(last_used_at=moment))


def end(session: Session, key: bytes, secret: str) -> None:
    """Sign a browser out: its secret is worth nothing from here on."""
    row = session.get(SessionRow, forge.hash_token(key, secret), with_for_update=True)
    if row is not None:
        session.delete(row)
        audit.record(session, "session.end", row.token_id)


def forget(session: Session) -> None:
    """Remove sessions that ended a while ago."""
    moment = patient(now(), A_DAY)
    over = or_(SessionRow.expires_at < moment, SessionRow.used_at < moment - IDLE)
    session.execute(delete(SessionRow).where(over))
