"""Built-in recipes and architectures, tokens, health."""

from typing import Any, Literal

from pydantic import Field

from contract.local import LocalPlan
from contract.recipes.recipe import Recipe
from contract.wire.common import Name, Request, Response, Timestamp

TokenRole = Literal["operator", "viewer"]


class RecipeInfo(Response):
    """A built-in recipe: its parts, its defaults and where they come from."""

    name: str
    summary: str
    source: str
    choices: list[str] = Field(description="what we chose where the paper is silent")
    composition: Recipe
    local: LocalPlan


class ArchitectureInfo(Response):
    """A registered architecture."""

    name: str
    role: Literal["classifier", "discriminator", "generator"]
    summary: str
    server_side: bool = Field(description="whether the service can run it, as distillation must")
    options: dict[str, Any] = Field(description="JSON Schema of its options")


class TokenCreate(Request):
    """A new token for a person or a program."""

    name: Name
    role: TokenRole = "viewer"


class TokenInfo(Response):
    """A token, without its secret."""

    id: str
    name: str
    role: TokenRole
    created_at: Timestamp
    revoked_at: Timestamp | None = None


class TokenCreated(TokenInfo):
    """The one time that the secret is shown."""

    token: str


class Check(Response):
    """One thing the service depends on."""

    ok: bool
    detail: str = ""


class Health(Response):
    """Liveness."""

    status: Literal["ok"] = "ok"
    version: str


class Readiness(Response):
    """Readiness by dependency."""

    ready: bool
    checks: dict[str, Check]
