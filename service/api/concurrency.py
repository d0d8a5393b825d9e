"""So many requests of one caller work at a time, so that a crowd does not keep others out. Plain ASGI, within `Frame`:
a small body is there already, so that nobody holds a slot by sending slowly.
"""

from functools import partial

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api import cookies, guard
from service.api.middleware import UPLOADS
from service.api.problems import UNREAD, problem
from service.api.services import Services
from service.infra.concurrency import MOST_WAITING
from service.operations.ledger.audit import acting

_SENDING = ("POST", "PUT", "PATCH")


def _shown(scope: Scope, services: Services) -> str | None:
    """Return the token that a request shows, or the session's secret in its place."""
    scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" and token else cookies.secret_in(scope, services.settings)


class LimitConcurrency:
    """Lets a request work when its caller has a free slot, until its answer begins or it only waits.

    Args:
        app: what it wraps.
        services: which have the limits.
    """

    def __init__(self, app: ASGIApp, services: Services):
        self.app, self.services = app, services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sends = scope["method"] in _SENDING and UPLOADS.fullmatch(scope["path"]) is not None
        token = _shown(scope, self.services)
        limit, caller = guard.limit_of(self.services, acting().address, token, sends=sends)
        if not await limit.acquire(caller):
            scope[UNREAD] = True
            detail = f"{MOST_WAITING} requests of yours wait already; send fewer at once"
            await problem(scope, "too-many-requests", detail, {"Retry-After": "1"})(scope, receive, send)
            return
        scope[guard.SLOT] = partial(limit.release, caller)

        async def begun(message: Message) -> None:
            if message["type"] == "http.response.start":
                guard.release_slot(scope)  # a download or a stream takes as long as its reader likes
            await send(message)

        try:
            await self.app(scope, receive, begun)
        finally:
            guard.release_slot(scope)
