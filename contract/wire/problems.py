"""The one list of things that go wrong over HTTP (RFC 9457). The service raises by kind; the SDK has a class a kind."""

from typing import Any, NamedTuple

from pydantic import ConfigDict

from contract.bodies import Body

TYPE_PREFIX = "urn:potstill:problem:"
MEDIA_TYPE = "application/problem+json"


class Kind(NamedTuple):
    """A kind of problem: HTTP status, title."""

    status: int
    title: str


KINDS: dict[str, Kind] = {
    "invalid-request": Kind(400, "The request cannot be understood"),
    "incomplete-body": Kind(400, "The body is shorter than announced"),
    "digest-mismatch": Kind(400, "The body does not match its digest"),
    "unauthorized": Kind(401, "A valid token is needed"),
    "forbidden": Kind(403, "This token may not do that"),
    "insecure-transport": Kind(403, "Plain HTTP is not taken here"),
    "join-token-spent": Kind(403, "The join token lets nobody in any more"),
    "not-found": Kind(404, "There is no such thing"),
    "method-not-allowed": Kind(405, "This method is not allowed here"),
    "invalid-transition": Kind(409, "Not possible in this state"),
    "name-taken": Kind(409, "The name is taken"),
    "in-use": Kind(409, "It is in use"),
    "idempotency-conflict": Kind(409, "The idempotency key was used for another request"),
    "round-closed": Kind(409, "The round takes no more updates"),
    "not-selected": Kind(409, "This client was not asked in this round"),
    "stale-base-model": Kind(409, "The update starts from another model"),
    "already-delivered": Kind(409, "Something else was delivered before"),
    "too-few-updates": Kind(409, "Too few updates"),
    "limit-reached": Kind(409, "There may be no more of these"),
    "upload-offset": Kind(409, "The upload goes on at another offset"),
    "upload-incomplete": Kind(409, "The upload is not finished"),
    "removed": Kind(410, "It was there and is no more"),
    "tus-version": Kind(412, "Another version of tus is spoken here"),
    "too-large": Kind(413, "The body is too large"),
    "unsupported-media-type": Kind(415, "This kind of body is not taken"),
    "range-not-satisfiable": Kind(416, "The range is outside the file"),
    "invalid-field": Kind(422, "A field is not valid"),
    "invalid-container": Kind(422, "The file is not a valid safetensors file"),
    "invalid-tensors": Kind(422, "The tensors are not what was asked for"),
    "invalid-values": Kind(422, "A tensor has values that cannot be used"),
    "upload-locked": Kind(423, "Another request has the upload"),
    "too-many-requests": Kind(429, "Too many requests"),
    "too-many-uploads": Kind(429, "Too many uploads are open"),
    "checksum-mismatch": Kind(460, "The piece does not match its checksum"),
    "internal": Kind(500, "Something went wrong here"),
    "unavailable": Kind(503, "The service cannot answer now"),
    "storage-unavailable": Kind(503, "The service's storage cannot be read or written"),
    "blob-damaged": Kind(503, "A stored file is damaged"),
    "blob-missing": Kind(503, "A stored file is missing"),
    "storage-full": Kind(507, "There is no room for this"),
}


class Problem(Body):
    """The body of every error. Members of the kind (`field`, `tensor`, `expected`, `actual`, …) stand beside these."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None

    @property
    def kind(self) -> str:
        """The problem's kind, one of `KINDS` (or whatever a newer service sent)."""
        return self.type.removeprefix(TYPE_PREFIX)

    def member(self, name: str) -> Any:
        """Return a member of the kind, or None."""
        return (self.model_extra or {}).get(name)
