"""The audit log as it is read."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from contract.audit import FIELDS
from contract.bodies import QUERY_COUNT
from contract.wire.common import Page, Request, Response, Timestamp

Word = Annotated[str, Field(max_length=255)]


class AuditEntry(Response):
    """One row: who did what to what, from where, and the hashes that chain it to the row before."""

    seq: int = Field(description="number of the row; there are no gaps")
    at: Timestamp
    actor_id: str = Field(description="id of the token, or `system`, `command-line`, `unknown`")
    actor_name: str
    role: str
    address: str = Field(description="the client's network address; `local` for commands on the machine itself")
    action: str = Field(examples=["federation.create"])
    target: str = Field(description="id of what was acted on")
    federation_id: str | None = None
    request_id: str
    outcome: str = Field(description="`done` or `refused`")
    detail: dict[str, Any]
    previous_hash: str
    hash: str

    def chained(self) -> dict[str, Any]:
        """Return what `contract.audit` checks: the covered fields as they travel, and both hashes."""
        return self.model_dump(mode="json", include={*FIELDS, "previous_hash", "hash"})


class AuditPage(Page[AuditEntry]):
    """A page of the log."""


class AuditFilter(Request):
    """What to show of the log, as it stands in a query: all values are text."""

    model_config = ConfigDict(strict=False)

    actor: Word | None = Field(None, description="id or name of the token that acted")
    action: Word | None = Field(None, description="an action, or with a dot at the end all that begin so: `token.`")
    target: Word | None = Field(None, description="id of what was acted on")
    federation: Word | None = Field(None, description="id of a federation")
    outcome: Word | None = Field(None, description="`done` or `refused`")
    request: Word | None = Field(None, description="id of a request, as in X-Request-Id")
    since: Timestamp | None = Field(None, description="from this moment on")
    until: Timestamp | None = Field(None, description="before this moment")
    limit: Annotated[int, Field(ge=1, le=500), QUERY_COUNT] = Field(50, description="items on a page")
    after: Word | None = Field(None, description="the `next` of the page before")
    oldest_first: bool = Field(False, description="else the newest row comes first")
