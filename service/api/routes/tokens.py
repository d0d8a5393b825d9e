"""Tokens of people and programs, the caller's own, and the log of what was done with them."""

from typing import Annotated, Any

from fastapi import Path, Query, Response

from contract.wire.audit import AuditFilter, AuditPage
from contract.wire.catalogue import OwnToken, TokenCreate, TokenCreated, TokenInfo, TokenRotated
from contract.wire.common import Page
from service.api.deps import After, Anyone, IdempotencyKey, Limit, Operator, Rotator, Services, TokenMaker
from service.api.problems import documented
from service.api.routing import router_of
from service.operations.access import tokens
from service.operations.ledger import audit
from service.operations.ledger.idempotency import once

router = router_of("/v1", tag="tokens")
_ONE = documented("unauthorized", "forbidden", "not-found")


@router.post(
    "/tokens",
    status_code=201,
    responses=documented("unauthorized", "forbidden", "limit-reached", "idempotency-conflict", "invalid-field"),
)
def create_token(body: TokenCreate, services: Services, caller: TokenMaker, key: IdempotencyKey = None) -> TokenCreated:
    """Make a token for a person or a program. It is shown only here."""
    settings = services.settings

    def make() -> dict[str, Any]:
        row = tokens.create(session, settings.key, body.name, body.role, body.valid_seconds)
        return {"id": row.id}

    with services.store.write() as session:
        answer = once(session, caller.id, key, f"token {body.model_dump_json()}", make)
        row = tokens.get(session, answer["id"])
        return TokenCreated(**tokens.describe(row).model_dump(), token=tokens.secret_of(settings.keys, row))


@router.get("/tokens", responses=documented("unauthorized", "forbidden"))
def list_tokens(services: Services, caller: Operator, limit: Limit = 50, after: After = None) -> Page[TokenInfo]:
    """List tokens, revoked ones included, with their state and when they were last used; secrets are not shown."""
    with services.store.read() as session:
        items, following = tokens.listing(session, limit, after)
        return Page(items=items, next=following)


@router.delete("/tokens/{token_id}", status_code=204, responses=_ONE | documented("in-use"))
def revoke_token(token_id: Annotated[str, Path(max_length=64)], services: Services, caller: Operator) -> Response:
    """Revoke a token; it stops working at once."""
    with services.store.write() as session:
        tokens.revoke(session, token_id, caller)
    return Response(status_code=204)


@router.get("/token", responses=documented("unauthorized", "forbidden"))
def show_own_token(caller: Anyone) -> OwnToken:
    """Show what the token in use is: its role, whose it is, when it ends."""
    return OwnToken(
        id=caller.id,
        name=caller.name,
        role=caller.role,
        federation_id=caller.federation_id,
        expires_at=caller.expires_at,
    )


@router.post("/token/rotate", responses=documented("unauthorized", "forbidden"))
def rotate_own_token(services: Services, caller: Rotator) -> TokenRotated:
    """Replace the token in use. The one before works until the new one is first used, so an answer that was lost costs
    nothing: ask again and get the same one.
    """
    with services.store.write() as session:
        token, ends = tokens.rotate(session, services.settings.keys, caller, services.settings)
        return TokenRotated(id=caller.id, token=token, expires_at=ends)


@router.get("/audit", tags=["audit"], responses=documented("unauthorized", "forbidden", "invalid-field"))
def list_audit(
    services: Services,
    caller: Operator,
    filters: Annotated[AuditFilter, Query()],
) -> AuditPage:
    """List who did what, the newest first. Each row's `hash` covers the one before."""
    with services.store.read() as session:
        return audit.listing(session, filters)
