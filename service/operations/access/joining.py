"""Join tokens: how often and how long they let devices in."""

from sqlalchemy.orm import Session

from contract.wire.federations import JoinLimits, JoinState
from service.domain.errors import DomainError
from service.domain.principal import Principal
from service.infra import tokens
from service.operations.access.tokens import Keys, after
from service.operations.ledger import audit
from service.operations.ledger.clock import now
from service.persistence.tables import FederationRow

JOIN_TOKEN_DAYS = 30.0
"""Life of a join token where nobody says another."""


def state(row: FederationRow) -> JoinState:
    """Return what is left of a federation's join token."""
    found = "open"
    if row.join_expires_at is not None and row.join_expires_at <= now():
        found = "expired"
    elif row.join_max_uses is not None and row.join_uses >= row.join_max_uses:
        found = "exhausted"
    return JoinState(
        state=found,
        uses=row.join_uses,
        max_uses=row.join_max_uses,
        expires_at=row.join_expires_at,
    )


def check(row: FederationRow, caller: Principal) -> None:
    """Refuse a join token that was replaced since the caller was let in, or that lets nobody in any more.

    Raises:
        DomainError: unauthorized, join-token-spent.
    """
    if caller.nonce != row.join_nonce:
        raise DomainError("unauthorized", "the join token was replaced; ask the operator for it", reason="unknown")
    found = state(row)
    if found.state == "expired" and found.expires_at is not None:
        why = f"it was good until {found.expires_at:%Y-%m-%d %H:%M} UTC"
    elif found.state == "exhausted":
        why = f"it was good for {found.max_uses} devices"
    else:
        return
    raise DomainError(
        "join-token-spent",
        f"{why}; ask the operator for a new one (potstill federation join-token)",
        reason=found.state,
        max_uses=found.max_uses,
        expires_at=found.expires_at,
    )


def limit(row: FederationRow, limits: JoinLimits) -> None:
    """Set a fresh join token's limits and count anew."""
    seconds = JOIN_TOKEN_DAYS * 86_400 if limits.valid_seconds is None else float(limits.valid_seconds)
    row.join_uses, row.join_max_uses, row.join_expires_at = 0, limits.max_uses, after(seconds)


def rotate(session: Session, key: bytes, row: FederationRow, limits: JoinLimits) -> str:
    """Replace the join token; the one before no longer works, enrolled devices stay."""
    row.join_nonce = tokens.fresh_nonce()
    token = tokens.derive(key, "join", row.id, row.join_nonce)
    row.join_hash = tokens.hash_token(key, token)
    limit(row, limits)
    audit.record(
        session,
        "federation.join-token",
        row.id,
        federation=row.id,
        max_uses=row.join_max_uses,
        expires_at=row.join_expires_at,
    )
    return token


def secret_of(keys: Keys, row: FederationRow) -> str:
    """Return a federation's join token.

    Raises:
        DomainError: idempotency-conflict, when the key that it was made under is gone.
    """
    token = tokens.derive_again(keys, "join", row.id, row.join_nonce, row.join_hash)
    if token is None:
        raise DomainError("idempotency-conflict", "this was answered under an older key; make a new join token")
    return token
