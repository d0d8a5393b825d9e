"""A span of each request, below its caller's, where traces are wanted. Plain ASGI.

A span tells the route and the ids that the log has, too: no address, no query, no header.
"""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contract import log_lines, traces
from service.api.telemetry import LEFT, PROBLEM, route_of

_ONLY_FOR_CALLERS = ("/healthz", "/readyz", "/metrics", "/v1/assignment", "/v1/events")
"""Asked again and again, or for hours: a span only where the caller has one."""


class Traced:
    """The layer that says whose trace a request belongs to: so do the jobs that it adds, and its lines of the log."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        parent = traces.read(Headers(scope=scope).get("traceparent", ""))
        with traces.below(parent):
            if parent is None and scope["path"] in _ONLY_FOR_CALLERS or not traces.wanted():
                await self.app(scope, receive, send)
            else:
                await self._in_a_span(scope, receive, send)

    async def _in_a_span(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        method = scope["method"]
        with traces.span(method, {"http.request.method": method}, kind="server") as span:
            try:
                await self.app(scope, receive, noted)
            finally:
                route = route_of(scope)
                span.rename(f"{method} {route}")
                ids = {f"potstill.{name}": value for name, value in log_lines.known().items() if name not in _TOLD}
                span.set({"http.route": route, "http.response.status_code": status or None, **ids})
                if scope.get(LEFT):
                    span.set({"potstill.client_gone": True})
                elif status >= 500:
                    span.fail(str(scope.get(PROBLEM) or status))


_TOLD = ("trace_id", "span_id", "parent_span_id")
