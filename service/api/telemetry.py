"""Counts every request, from outside everything else. Plain ASGI."""

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.direct import carried
from service.infra.metrics import GONE, Metrics
from service.infra.traffic import Account, Counts, Traffic

PROBLEM = "potstill.problem"
LEFT = "potstill.client_gone"
ACCOUNT, ELSEWHERE = "potstill.account", "potstill.elsewhere"
"""Keys of a request's scope: whose bytes its are, and how many the bucket sends or takes in its place."""
_OUTSIDE = "(none)"


def route_of(scope: Scope) -> str:
    """Return the path as the router knows it; whatever matched nothing is one route."""
    path = getattr(scope.get("route"), "path", None)
    if path:
        return str(path)
    return "/static" if scope["path"].startswith("/static/") else _OUTSIDE


class Telemetry:
    """The layer around the application that feeds `Metrics`, and `Traffic` of what is said to be somebody's."""

    def __init__(self, app: ASGIApp, metrics: Metrics, traffic: Traffic):
        self.app, self.metrics, self.traffic = app, metrics, traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; one whose client has left is no fault of ours, and no 5xx."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, received, sent = time.perf_counter(), GONE, 0, 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += carried(message)
            return message

        async def noted(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)
            sent += carried(message)

        try:
            await self.app(scope, counted, noted)
        except Exception:
            status = "500"
            raise
        finally:
            self._count(scope, status, sent, received)
            if scope.get(LEFT):
                status = GONE
            seconds = time.perf_counter() - began
            self.metrics.request(scope["method"], route_of(scope), status, seconds, scope.get(PROBLEM), received)

    def _count(self, scope: Scope, status: str, sent: int, received: int) -> None:
        account: Account | None = scope.get(ACCOUNT)
        if account is not None:
            elsewhere = int(scope.get(ELSEWHERE, 0))
            bytes_ = Counts(down=elsewhere or sent, up=received + elsewhere)
            self.traffic.request(account, scope["method"], status, bytes_)
