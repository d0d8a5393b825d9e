"""Tokens: who may do what. Looked up by keyed hash; shown once; they end, are replaced, are taken back."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, bindparam, or_, select
from sqlalchemy.orm import Session

from contract.ids import new_id
from contract.wire.catalogue import TokenInfo, TokenRole
from service.config import Settings
from service.domain.errors import DomainError
from service.domain.errors import not_found as absent
from service.domain.principal import Principal
from service.infra import tokens
from service.operations.ledger import audit
from service.operations.ledger.clock import is_due, now
from service.operations.ledger.limits import check_room
from service.operations.ledger.paging import page
from service.persistence.engine import Database
from service.persistence.tables import ClientRow, FederationRow, TokenRow
from service.persistence.tables.base import Credential

MAX_TOKENS = 1000
"""Tokens of people and programs that are not revoked."""
USED_EVERY = timedelta(minutes=10)
Keys = tuple[bytes, ...]
Row = TokenRow | ClientRow


def authenticate(session: Session, keys: Keys, token: str | None) -> Principal:
    """Return whose token this is. Reads only; an `unsettled` principal's row is to be written by `settle`.

    Raises:
        DomainError: unauthorized, when there is no token, or it is unknown, expired or revoked (`reason` says which).
    """
    if not token:
        raise DomainError("unauthorized", "send the header 'Authorization: Bearer <token>'", reason="missing")
    kind, candidates = tokens.kind_of(token), tokens.hashes(keys, token)
    if kind == "join":
        federation = _federation(session, candidates)
        if federation is not None:
            late = not tokens.same(federation.join_hash, candidates[:1])
            return Principal(
                "join",
                federation.id,
                federation.name,
                federation.id,
                nonce=federation.join_nonce,
                expires_at=federation.join_expires_at,
                unsettled=late,
            )
    elif kind is not None:
        found = _columns(session, kind, candidates)
        if found is not None:
            return _principal(kind, found, candidates)
    raise _replaced()


def _replaced() -> DomainError:
    return DomainError(
        "unauthorized", "the token is unknown or was replaced; ask the operator for a new one", reason="unknown"
    )


def _federation(session: Session, candidates: list[str]) -> FederationRow | None:
    found = session.scalars(select(FederationRow).where(FederationRow.join_hash.in_(candidates))).first()
    return found if found is not None and tokens.same(found.join_hash, candidates) else None


def _locked(session: Session, kind: str, candidates: list[str]) -> Row | None:
    table: Any = ClientRow if kind == "device" else TokenRow
    query = select(table).where(or_(table.token_hash.in_(candidates), table.next_hash.in_(candidates)))
    found: Row | None = session.scalars(query.with_for_update()).first()
    if found is None or not (tokens.same(found.token_hash, candidates) or tokens.same(found.next_hash, candidates)):
        return None
    return found


def _looked_up(table: Any, *more: str) -> Select[Any]:
    """Return the query for the columns of a token by which somebody is let in."""
    given: list[Any] = [bindparam("hash"), bindparam("former")]
    columns = [getattr(table, name) for name in ("id", "name", *Credential.__annotations__, *more)]
    return select(*columns).where(or_(table.token_hash.in_(given), table.next_hash.in_(given)))


_OF_DEVICES, _OF_OTHERS = _looked_up(ClientRow, "federation_id"), _looked_up(TokenRow, "role", "last_used_at")


def _columns(session: Session, kind: str, candidates: list[str]) -> Any | None:
    """Return the columns of a token, without the cost of a row that might be changed: every request needs them."""
    given = {"hash": candidates[0], "former": candidates[-1]}
    found: Any = session.execute(_OF_DEVICES if kind == "device" else _OF_OTHERS, given).first()
    if found is None or not (tokens.same(found.token_hash, candidates) or tokens.same(found.next_hash, candidates)):
        return None
    return found


def _is_next(row: Any, candidates: list[str]) -> bool:
    return tokens.same(row.next_hash, candidates)


def _principal(kind: str, row: Any, candidates: list[str]) -> Principal:
    is_next = _is_next(row, candidates)
    ends, nonce = (row.next_expires_at, row.next_nonce or "") if is_next else (row.expires_at, row.nonce)
    if row.revoked_at is not None:
        raise DomainError("unauthorized", "the token was revoked; ask the operator for a new one", reason="revoked")
    if ends is not None and ends <= now():
        raise DomainError(
            "unauthorized",
            f"the token expired at {ends:%Y-%m-%d %H:%M} UTC; ask the operator for a new one",
            reason="expired",
        )
    unsettled = not tokens.same(row.token_hash, candidates[:1])
    if kind == "device":
        return Principal(
            "device", row.id, row.name, row.federation_id, nonce=nonce, expires_at=ends, unsettled=unsettled
        )
    unsettled = unsettled or is_due(row.last_used_at, USED_EVERY, now())
    role: Any = row.role
    return Principal(role, row.id, row.name, nonce=nonce, expires_at=ends, unsettled=unsettled)


def check_still_good(session: Session, caller: Principal) -> None:
    """Refuse a caller whose token ended since it was let in: a stream or a poll may be open for minutes.

    Raises:
        DomainError: unauthorized.
    """
    table: Any = ClientRow if caller.role == "device" else TokenRow
    row: Row | None = session.get(table, caller.id)
    if row is None or row.revoked_at is not None or caller.nonce not in (row.nonce, row.next_nonce):
        raise DomainError("unauthorized", "the token was revoked or replaced meanwhile", reason="revoked")
    if _over(caller.expires_at):
        raise DomainError("unauthorized", "the token expired meanwhile", reason="expired")


def settle(session: Session, keys: Keys, token: str) -> None:
    """Write what the use of a token changes: a replacement takes its predecessor's place, a hash under the key before
    is stored under the key, and the moment of use is noted. Rare: once a rotation, once a key, every ten minutes.
    """
    kind, candidates = tokens.kind_of(token), tokens.hashes(keys, token)
    if kind == "join":
        federation = _federation(session, candidates)
        if federation is not None:
            federation.join_hash = candidates[0]
        return
    row = None if kind is None else _locked(session, kind, candidates)
    if row is None:
        return
    if _is_next(row, candidates):
        row.nonce, row.expires_at = row.next_nonce or row.nonce, row.next_expires_at
        row.next_nonce = row.next_hash = row.next_expires_at = None
        row.token_hash = candidates[0]
    elif not tokens.same(row.token_hash, candidates[:1]):
        row.token_hash = candidates[0]
    if isinstance(row, TokenRow):
        row.last_used_at = now()


def after(seconds: float | None) -> datetime | None:
    """Return the moment so many seconds from now; None for no end."""
    return None if not seconds else now() + timedelta(seconds=seconds)


def create(
    session: Session,
    key: bytes,
    name: str,
    role: TokenRole,
    lifetime_seconds: int | None = None,
) -> TokenRow:
    """Add a token; `secret_of` gives what is to be shown once.

    Raises:
        DomainError: limit-reached, when `MAX_TOKENS` are not revoked.
    """
    held = select(TokenRow.id).where(TokenRow.revoked_at.is_(None))
    check_room(session, held, MAX_TOKENS, "tokens", "revoke one")
    id_, nonce = new_id("token"), tokens.fresh_nonce()
    hashed = tokens.hash_token(key, tokens.derive(key, role, id_, nonce))
    row = TokenRow(
        id=id_,
        name=name,
        role=role,
        nonce=nonce,
        token_hash=hashed,
        lifetime_seconds=lifetime_seconds,
        expires_at=after(lifetime_seconds),
        created_at=now(),
    )
    session.add(row)
    session.flush()
    audit.record(session, "token.create", row.id, name=name, role=role, expires_at=row.expires_at)
    return row


def secret_of(keys: Keys, row: Row, kind: str | None = None) -> str:
    """Return the token itself.

    Raises:
        DomainError: idempotency-conflict, when the key that it was made under is gone.
    """
    kind = kind or ("device" if isinstance(row, ClientRow) else row.role)
    token = tokens.derive_again(keys, kind, row.id, row.nonce, row.token_hash)
    if token is None:
        raise DomainError("idempotency-conflict", "this was answered under an older key; ask for a new token instead")
    return token


def rotate(session: Session, keys: Keys, caller: Principal, settings: Settings) -> tuple[str, datetime | None]:
    """Return the token that replaces the caller's at its first use, and its end. Until then the caller's stays good,
    so whoever crashes before the new one is stored asks again and gets the same one.

    Raises:
        DomainError: unauthorized, when the token was revoked, replaced or given anew since the caller was let in: it
            must not fetch itself a successor.
    """
    table: Any = ClientRow if caller.role == "device" else TokenRow
    row: Row = session.get_one(table, caller.id, with_for_update=True, populate_existing=True)
    if row.revoked_at is not None:
        raise DomainError("unauthorized", "the token was revoked; ask the operator for a new one", reason="revoked")
    if caller.nonce not in (row.nonce, row.next_nonce):
        raise _replaced()
    kind = caller.role
    known = None if row.next_nonce is None else _pending(keys, kind, row)
    if known is None:
        row.next_nonce = tokens.fresh_nonce()
        known = tokens.derive(keys[0], kind, row.id, row.next_nonce)
        row.next_hash = tokens.hash_token(keys[0], known)
        audit.record(session, "token.rotate", row.id, federation=caller.federation_id)
    life = settings.device_token_days * 86_400 if isinstance(row, ClientRow) else row.lifetime_seconds
    row.next_expires_at = after(life)
    return known, row.next_expires_at


def _pending(keys: Keys, kind: str, row: Row) -> str | None:
    return tokens.derive_again(keys, kind, row.id, row.next_nonce or "", row.next_hash or "")


def get(session: Session, token_id: str) -> TokenRow:
    """Return a token's row, or refuse with not-found."""
    row = session.get(TokenRow, token_id)
    if row is None:
        raise absent("token", token_id)
    return row


def listing(session: Session, limit: int, after: str | None) -> tuple[list[TokenInfo], str | None]:
    """Return a page of tokens, without their secrets."""
    rows, following = page(session, select(TokenRow), TokenRow.id, limit, after)
    return [describe(row) for row in rows], following


def revoke(session: Session, token_id: str, by: Principal) -> None:
    """Make a token useless at once; nobody can revoke the token in use."""
    row = get(session, token_id)
    if row.id == by.id:
        raise DomainError("in-use", "this is the token you are using; revoke it with another operator token")
    if row.revoked_at is None:
        row.revoked_at = now()
        audit.record(session, "token.revoke", row.id, name=row.name)


def state_of(row: Row) -> Any:
    """Return whether a token works: active, expired or revoked."""
    if row.revoked_at is not None:
        return "revoked"
    over = _over(row.expires_at) and (row.next_hash is None or _over(row.next_expires_at))
    return "expired" if over else "active"


def _over(moment: datetime | None) -> bool:
    return moment is not None and moment <= now()


def describe(row: TokenRow) -> TokenInfo:
    """Return what is shown of a token."""
    return TokenInfo(
        id=row.id,
        name=row.name,
        role=row.role,
        state=state_of(row),
        created_at=row.created_at,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        revoked_at=row.revoked_at,
    )


def ensure_operator_token(settings: Settings) -> str | None:
    """Make the first operator token of an empty service; None when there is one already."""
    database = Database(settings)
    try:
        with audit.by_command(database) as session:
            held = select(TokenRow).where(TokenRow.role == "operator", TokenRow.revoked_at.is_(None))
            if any(state_of(row) == "active" for row in session.scalars(held)):
                return None
            row = create(session, settings.key, "first operator", "operator")
            return secret_of(settings.keys, row)
    finally:
        database.close()
