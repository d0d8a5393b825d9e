"""Around every request: an id, an access line, limits on what is not an upload, security headers. Plain ASGI."""

import asyncio
import logging
import re
import time
import uuid
from collections.abc import MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.problems import TUS_VERSION, UNREAD, problem
from service.operations.audit import ACTING, Acting

log = logging.getLogger("service.access")
_UPLOADS = re.compile(
    r"/v1/(rounds/[^/]+/update|federations/[^/]+/(discriminator|gan)|datasets|models|uploads(/[^/]+)?)"
)
_TUS = re.compile(r"/v1/uploads(/[^/]+)?")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_JSON_IDLE_SECONDS = 30.0
_QUIET = ("/healthz", "/readyz", "/v1/assignment")
_CSP = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; " + (
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": _CSP,
    "X-Frame-Options": "DENY",
}


def _is_json(headers: Headers) -> bool:
    """Whether a body is JSON, as far as it says; a request without a body need not say."""
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    return media == "application/json" or media.endswith("+json") or not media


class Frame:
    """The outermost layer of the application.

    Args:
        app: what it wraps.
        max_json_bytes: limit of bodies that are not uploads; those are limited where they are read.
    """

    def __init__(self, app: ASGIApp, max_json_bytes: int):
        self.app = app
        self.max_json_bytes = max_json_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        scope["potstill.request_id"] = request_id
        tus = _TUS.fullmatch(scope["path"]) is not None
        if tus and scope["method"] == "POST" and headers.get("x-http-method-override", "") in ("PATCH", "DELETE"):
            scope["method"] = headers["x-http-method-override"]  # for clients behind something that knows no PATCH
        ACTING.set(Acting(address=(scope.get("client") or ("", 0))[0], request_id=request_id))
        began, status = time.perf_counter(), 0

        async def framed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                out = MutableHeaders(scope=message)
                out["X-Request-Id"] = request_id
                if tus:
                    out["Tus-Resumable"] = TUS_VERSION
                for name, value in _SECURITY.items():
                    out.setdefault(name, value)
            await send(message)

        try:
            await self._limited(scope, headers, receive, framed)
        finally:
            level = logging.DEBUG if scope["path"] in _QUIET else logging.INFO
            took = (time.perf_counter() - began) * 1000
            log.log(level, "%s %s %s %.0f ms %s", scope["method"], scope["path"], status, took, request_id)

    async def _limited(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        encoding = headers.get("content-encoding", "identity").lower()
        if encoding != "identity":
            detail = f"Content-Encoding {encoding[:32]!r} is not taken; send the body as it is"
            scope[UNREAD] = True
            await problem(scope, "unsupported-media-type", detail)(scope, receive, send)
        elif scope["method"] in ("POST", "PUT") and not _UPLOADS.fullmatch(scope["path"]) and not _is_json(headers):
            detail = "send JSON with the header Content-Type: application/json"
            scope[UNREAD] = True
            await problem(scope, "unsupported-media-type", detail)(scope, receive, send)
        elif scope["method"] in ("GET", "HEAD") or _UPLOADS.fullmatch(scope["path"]):
            await self.app(scope, receive, send)
        else:
            await self._read_whole(scope, headers, receive, send)

    async def _read_whole(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        """Read a small body within its limit before anything else sees it."""
        announced = headers.get("content-length", "0")
        over = announced.isdecimal() and int(announced) > self.max_json_bytes
        body, more = bytearray(), True
        while more and not over:
            try:
                async with asyncio.timeout(_JSON_IDLE_SECONDS):
                    message: MutableMapping[str, Any] = await receive()
            except TimeoutError:
                scope[UNREAD] = True
                await problem(scope, "incomplete-body", "the body did not come; send it again")(scope, receive, send)
                return
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = bool(message.get("more_body"))
            over = len(body) > self.max_json_bytes
        if over:
            detail = f"a JSON body may have {self.max_json_bytes} bytes"
            scope[UNREAD] = more
            await problem(scope, "too-large", detail, expected=self.max_json_bytes)(scope, receive, send)
            return
        replayed = False

        async def again() -> Message:
            nonlocal replayed
            if replayed:
                return await receive()
            replayed = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        await self.app(scope, again, send)
