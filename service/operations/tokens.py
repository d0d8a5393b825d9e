"""Tokens: who may do what. Looked up by keyed hash; shown once."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.ids import new_id
from contract.wire.catalogue import TokenInfo, TokenRole
from service.config import Settings
from service.domain.errors import DomainError, not_found
from service.domain.principal import Principal
from service.infra import tokens
from service.operations.clock import now
from service.operations.paging import page
from service.persistence.engine import Database
from service.persistence.tables import ClientRow, FederationRow, TokenRow


def authenticate(session: Session, key: bytes, token: str | None) -> Principal:
    """Return whose token this is.

    Raises:
        DomainError: unauthorized, when there is no token, or it is unknown or revoked.
    """
    if not token:
        raise DomainError("unauthorized", "send the header 'Authorization: Bearer <token>'")
    kind, hashed = tokens.kind_of(token), tokens.hash_token(key, token)
    if kind in ("operator", "viewer"):
        row = session.scalars(select(TokenRow).where(TokenRow.token_hash == hashed)).first()
        if row is not None and row.revoked_at is None:
            return Principal("operator" if row.role == "operator" else "viewer", row.id, row.name)
    elif kind == "device":
        client = session.scalars(select(ClientRow).where(ClientRow.token_hash == hashed)).first()
        if client is not None and client.revoked_at is None:
            return Principal("device", client.id, client.name, client.federation_id)
    elif kind == "join":
        federation = session.scalars(select(FederationRow).where(FederationRow.join_hash == hashed)).first()
        if federation is not None:
            return Principal("join", federation.id, federation.name, federation.id)
    raise DomainError("unauthorized", "the token is unknown or was revoked; ask the operator for a new one")


def create(session: Session, key: bytes, name: str, role: TokenRole) -> TokenRow:
    """Add a token; `secret_of` gives what is to be shown once."""
    id_, nonce = new_id("token"), tokens.fresh_nonce()
    hashed = tokens.hash_token(key, tokens.derive(key, role, id_, nonce))
    row = TokenRow(id=id_, name=name, role=role, nonce=nonce, token_hash=hashed, created_at=now())
    session.add(row)
    session.flush()
    return row


def secret_of(key: bytes, row: TokenRow) -> str:
    """Return the token itself."""
    return tokens.derive(key, row.role, row.id, row.nonce)


def get(session: Session, token_id: str) -> TokenRow:
    """Return a token's row, or refuse with not-found."""
    row = session.get(TokenRow, token_id)
    if row is None:
        raise not_found("token", token_id)
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
    row.revoked_at = row.revoked_at or now()


def describe(row: TokenRow) -> TokenInfo:
    """Return what is shown of a token."""
    return TokenInfo.model_validate(row, from_attributes=True)


def ensure_operator_token(settings: Settings) -> str | None:
    """Make the first operator token of an empty service; None when there is one already."""
    database = Database(settings)
    try:
        with database.write() as session:
            held = select(TokenRow.id).where(TokenRow.role == "operator", TokenRow.revoked_at.is_(None))
            if session.scalars(held).first() is not None:
                return None
            return secret_of(settings.key, create(session, settings.key, "first operator", "operator"))
    finally:
        database.close()
