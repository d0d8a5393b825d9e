"""Whether the service is well, for people who look and programs that show it."""

from typing import Literal

from pydantic import Field

from contract.wire.catalogue import Check
from contract.wire.common import Response


class Status(Response):
    """The service at a glance; always 200, `ready` says whether all is well."""

    version: str
    role: Literal["operator", "viewer"] = Field(description="of the token in use")
    ready: bool
    checks: dict[str, Check] = Field(examples=[{"database": {"ok": True, "detail": ""}}])
    heartbeat_age_seconds: float | None = Field(None, description="since a worker was last heard; null: none was")
    oldest_queued_seconds: float = Field(0.0, description="how long the oldest queued job has waited; 0: none waits")
    free_bytes: int = Field(description="free space where the weights are")
