"""Sessions of the page: a browser that is signed in."""

from pydantic import Field

from contract.wire.catalogue import TokenRole
from contract.wire.common import Request, Response, Timestamp


class SessionBegin(Request):
    """How a browser signs in."""

    at_root: bool = Field(
        False,
        description="the page is at the root of its host; over TLS the cookie is then bound to that host",
        examples=[True],
    )


class SignedIn(Response):
    """Who is signed in, and until when."""

    id: str = Field(description="of the token that was signed in with")
    name: str
    role: TokenRole
    expires_at: Timestamp = Field(description="the session's end, whatever is used")
