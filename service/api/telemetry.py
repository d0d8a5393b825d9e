"""Counts every request, from outside everything else. Plain ASGI."""

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.infra.metrics import GONE, Metrics

PROBLEM = "potstill.problem"
LEFT = "potstill.client_gone"
_OUTSIDE = "(none)"


def _route(scope: Scope) -> str:
    """Return the path as the router knows it; whatever matched nothing is one route."""
    path = getattr(scope.get("route"), "path", None)
    if path:
        return str(path)
    return "/static" if scope["path"].startswith("/static/") else _OUTSIDE


class Telemetry:
    """The layer around the application that feeds `Metrics`."""

    def __init__(self, app: ASGIApp, metrics: Metrics):
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; one whose client has left is no fault of ours, and no 5xx."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, received = time.perf_counter(), GONE, 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self.app(scope, counted, noted)
        except Exception:
            status = "500"
            raise
        finally:
            if scope.get(LEFT):
                status = GONE
            seconds = time.perf_counter() - began
            self.metrics.request(scope["method"], _route(scope), status, seconds, scope.get(PROBLEM), received)
