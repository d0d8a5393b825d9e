"""What there is to choose from, and the tokens of people."""

from functools import cache
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from contract.architectures import CATALOGUE
from contract.recipes.presets import PRESETS
from contract.wire.catalogue import ArchitectureInfo, RecipeInfo, TokenCreate, TokenCreated, TokenInfo
from contract.wire.common import Page
from service.api.deps import After, IdempotencyKey, Limit, Operator, Services
from service.api.problems import documented
from service.operations import tokens
from service.operations.idempotency import once

router = APIRouter(prefix="/v1")
_ONE = documented("unauthorized", "forbidden", "not-found")


@cache
def _recipes() -> list[RecipeInfo]:
    return [
        RecipeInfo(
            name=row.recipe.name,
            summary=row.summary,
            source=row.source,
            choices=list(row.choices),
            composition=row.recipe,
            local=row.local,
        )
        for row in PRESETS.values()
    ]


@router.get("/recipes", tags=["catalogue"])
def list_recipes() -> list[RecipeInfo]:
    """List the built-in recipes: parts, defaults, the papers they come from."""
    return _recipes()


@router.get("/architectures", tags=["catalogue"])
def list_architectures() -> list[ArchitectureInfo]:
    """List the registered architectures with the schema of their options."""
    return [
        ArchitectureInfo(
            name=entry.name,
            role=entry.role,
            summary=entry.summary,
            server_side=entry.server_side,
            options=entry.options.model_json_schema(),
        )
        for entry in CATALOGUE.values()
    ]


@router.post(
    "/tokens",
    status_code=201,
    tags=["tokens"],
    responses=documented("unauthorized", "forbidden", "idempotency-conflict", "invalid-field"),
)
def create_token(body: TokenCreate, services: Services, caller: Operator, key: IdempotencyKey = None) -> TokenCreated:
    """Make a token for a person or a program. It is shown only here."""
    secret = services.settings.key

    def make() -> dict[str, Any]:
        return {"id": tokens.create(session, secret, body.name, body.role).id}

    with services.store.write() as session:
        answer = once(session, caller.id, key, f"token {body.model_dump_json()}", make)
        row = tokens.get(session, answer["id"])
        return TokenCreated(**tokens.describe(row).model_dump(), token=tokens.secret_of(secret, row))


@router.get("/tokens", tags=["tokens"], responses=documented("unauthorized", "forbidden"))
def list_tokens(services: Services, caller: Operator, limit: Limit = 50, after: After = None) -> Page[TokenInfo]:
    """List tokens, revoked ones included; secrets are not shown."""
    with services.store.read() as session:
        items, following = tokens.listing(session, limit, after)
        return Page(items=items, next=following)


@router.delete("/tokens/{token_id}", status_code=204, tags=["tokens"], responses=_ONE | documented("in-use"))
def revoke_token(token_id: Annotated[str, Path(max_length=64)], services: Services, caller: Operator) -> Response:
    """Revoke a token; it stops working at once."""
    with services.store.write() as session:
        tokens.revoke(session, token_id, caller)
    return Response(status_code=204)
