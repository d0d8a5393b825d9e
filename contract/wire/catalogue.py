"""Built-in recipes and architectures, tokens, health."""

from typing import Any, Literal

from pydantic import Field

from contract.local import LocalPlan
from contract.recipes.recipe import Recipe
from contract.wire.common import Name, Request, Response, Timestamp

TokenRole = Literal["operator", "viewer"]
TokenState = Literal["active", "expired", "revoked"]


class AddedChoice(Response):
    """A choice that a package installed beside the service adds to a slot of recipes or of local plans."""

    slot: str = Field(description="where it goes: `fuse`, `distil.weigh`, `local.objective` or `rounds.metrics`")
    kind: str
    package: str = Field(description="name and version", examples=["acme-rules 1.0"])
    summary: str = Field(description="what it is, with its source")
    options: dict[str, Any] = Field(description="JSON Schema of its options")


class RecipeInfo(Response):
    """A built-in recipe: its parts, its defaults and where they come from."""

    name: str
    summary: str
    source: str
    choices: list[str] = Field(description="what we chose where the paper is silent")
    composition: Recipe
    local: LocalPlan
    added: list[AddedChoice] = Field(
        default_factory=list, description="choices of other packages that can stand in its place for a slot's own"
    )


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
    valid_seconds: int | None = Field(
        None,
        ge=60,
        le=10 * 366 * 86_400,
        description="life of the token, also after a rotation; null for no end",
        examples=[7_776_000],
    )


class TokenInfo(Response):
    """A token, without its secret."""

    id: str
    name: str
    role: TokenRole
    state: TokenState = Field("active", description="whether it works")
    created_at: Timestamp
    expires_at: Timestamp | None = None
    last_used_at: Timestamp | None = Field(None, description="to about ten minutes")
    revoked_at: Timestamp | None = None


class TokenCreated(TokenInfo):
    """The one time that the secret is shown."""

    token: str


class OwnToken(Response):
    """What the token in use is, without its secret."""

    id: str = Field(description="of the token; a device's is its client id, a join token's its federation's")
    name: str
    role: Literal["operator", "viewer", "device", "join"]
    federation_id: str | None = None
    expires_at: Timestamp | None = None


class TokenRotated(Response):
    """The token that replaces the one in use, at its first use. Asked again before that, the same one is shown."""

    id: str
    token: str
    expires_at: Timestamp | None = None


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
