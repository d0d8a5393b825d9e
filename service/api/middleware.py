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

from contract import log_lines, traces
from contract.ids import PREFIXES
from service.api import guard
from service.api.direct import carried
from service.api.json_bodies import is_too_deep, repeated_key
from service.api.peers import PEER, Peer, resolve
from service.api.problems import TUS_VERSION, UNREAD, problem
from service.api.services import Services
from service.operations.ledger.audit import ACTING, Acting

log = logging.getLogger("service.access")
UPLOADS = re.compile(
    r"/v1/(rounds/[^/]+/update|federations/[^/]+/(discriminator|gan)|datasets|models|uploads(/[^/]+)?)"
)
_TUS = re.compile(r"/v1/uploads(/[^/]+)?")
_TOLD = {PREFIXES[kind]: f"{kind}_id" for kind in ("federation", "round", "job", "client")}
_ID = re.compile(rf"({'|'.join(_TOLD)})_[0-9a-z]{{1,32}}")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
MAX_JSON_BYTES = 2**20
JSON_SECONDS = 60.0  # for all of a small body: it is read before anybody knows who sends it
COUNTED_EVERY = 4 * 1024 * 1024
_QUIET = ("/healthz", "/readyz", "/v1/assignment")
_OPEN = ("/healthz", "/readyz")  # what an orchestrator asks, without a token
_CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " + (
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": _CSP,
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_HSTS = "max-age=31536000"


def _is_json(headers: Headers) -> bool:
    """Whether a body is JSON, as far as it says; a request without a body need not say."""
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    return media == "application/json" or media.endswith("+json") or not media


def _coded(headers: Headers) -> tuple[str, str] | None:
    """Return the header, and what it says, by which a body is not as it is; a header may stand there twice."""
    for name, plain in (("Content-Encoding", "identity"), ("Transfer-Encoding", "chunked")):
        coding = ", ".join(headers.getlist(name)).strip().lower()
        if coding not in ("", plain):
            return name, coding
    return None


def _named(path: str) -> dict[str, str]:
    """Return the ids that a path names, as a log tells them."""
    parts = (part for part in path.split("/") if _ID.fullmatch(part))
    return {_TOLD[part[:3]]: part for part in parts}


class Frame:
    """The outermost layer of the application.

    Args:
        app: what it wraps.
        services: whose settings say which proxies are trusted, whether plain HTTP from other machines is taken, and
            how large bodies may be that are not uploads; those are limited where they are read.
    """

    def __init__(self, app: ASGIApp, services: Services):
        self.app = app
        self.services, self.settings = services, services.settings

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
        peer = scope[PEER] = resolve(scope, headers, self.settings.proxies)
        ACTING.set(Acting(address=peer.address, request_id=request_id))
        log_lines.begin(request_id=request_id, **traces.known(), **_named(scope["path"]))
        began, status, received = time.perf_counter(), 0, 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += carried(message)
            if received >= COUNTED_EVERY and guard.SPENT in scope:
                some, received = received, 0
                await self._spend(scope, some, more=not status)
            return message

        async def framed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                out = MutableHeaders(scope=message)
                out["X-Request-Id"] = request_id
                if tus:
                    out["Tus-Resumable"] = TUS_VERSION
                if peer.is_tls:
                    out["Strict-Transport-Security"] = _HSTS
                if scope["path"].startswith("/v1/"):
                    out.setdefault("Cache-Control", "no-store")
                for name, value in (_SECURITY | guard.headers(scope.get(guard.RATE))).items():
                    out.setdefault(name, value)
            await send(message)

        try:
            if self._is_welcome(peer, scope["path"]):
                await self._limited(scope, headers, counted, framed)
            else:
                await self._turn_away(scope, counted, framed)
        finally:
            if received and guard.SPENT in scope:
                await self._spend(scope, received)
            level = logging.DEBUG if scope["path"] in _QUIET else logging.INFO
            took = (time.perf_counter() - began) * 1000
            fields = {"method": scope["method"], "path": scope["path"], "status": status, "milliseconds": round(took)}
            said = (scope["method"], scope["path"], status, took, request_id)
            log.log(level, "%s %s %s %.0f ms %s", *said, extra={"fields": fields})

    async def _spend(self, scope: Scope, received: int, *, more: bool = False) -> None:
        """Count bytes that came: here, where counts are in memory, in a thread, where Redis is asked."""
        if self.services.rates.is_shared:
            await asyncio.to_thread(guard.count_bytes, self.services, scope, received, more=more)
        else:
            guard.count_bytes(self.services, scope, received, more=more)

    def _is_welcome(self, peer: Peer, path: str) -> bool:
        return peer.is_private or self.settings.insecure_http or path in _OPEN

    async def _turn_away(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[UNREAD] = True
        detail = (
            "plain HTTP from another machine is not taken: tokens and weights could be read on the way; use https. "
            "Behind a proxy with TLS, set POTSTILL_TRUSTED_PROXIES; on a network that is safe by itself, "
            "POTSTILL_INSECURE_HTTP"
        )
        await problem(scope, "insecure-transport", detail)(scope, receive, send)

    async def _limited(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        if (coded := _coded(headers)) is not None:
            field, coding = coded
            detail = f"{field} {coding[:32]!r} is not taken; send the body as it is"
            scope[UNREAD] = True
            await problem(scope, "unsupported-media-type", detail, field=field)(scope, receive, send)
        elif scope["method"] in ("POST", "PUT") and not UPLOADS.fullmatch(scope["path"]) and not _is_json(headers):
            detail = "send JSON with the header Content-Type: application/json"
            scope[UNREAD] = True
            await problem(scope, "unsupported-media-type", detail, field="Content-Type")(scope, receive, send)
        elif scope["method"] in ("GET", "HEAD") or UPLOADS.fullmatch(scope["path"]):
            await self.app(scope, receive, send)
        else:
            await self._read_whole(scope, headers, receive, send)

    async def _read_whole(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        """Read a small body within its limit before anything else sees it."""
        announced = headers.get("content-length", "0")
        over = announced.isdecimal() and int(announced) > MAX_JSON_BYTES
        body, more, end = bytearray(), True, asyncio.get_running_loop().time() + JSON_SECONDS
        while more and not over:
            try:
                async with asyncio.timeout_at(end):
                    message: MutableMapping[str, Any] = await receive()
            except TimeoutError:
                scope[UNREAD] = True
                detail = f"the body did not come within {JSON_SECONDS:g} seconds; send it again"
                await problem(scope, "incomplete-body", detail)(scope, receive, send)
                return
            if message["type"] != "http.request":  # it hung up
                return
            body += message.get("body", b"")
            more = bool(message.get("more_body"))
            over = len(body) > MAX_JSON_BYTES
        if over:
            detail = f"a JSON body may have {MAX_JSON_BYTES} bytes"
            scope[UNREAD] = more
            await problem(scope, "too-large", detail, expected=MAX_JSON_BYTES)(scope, receive, send)
            return
        if await is_too_deep(body):
            await problem(scope, "invalid-request", "the JSON is nested too deeply; 64 levels are taken")(
                scope, receive, send
            )
            return
        if (twice := await repeated_key(body)) is not None:
            errors = [{"field": twice.key, "message": str(twice)}]
            await problem(scope, "invalid-field", str(twice), field=twice.key, errors=errors)(scope, receive, send)
            return
        replayed = False

        async def again() -> Message:
            nonlocal replayed
            if replayed:
                return await receive()
            replayed = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        await self.app(scope, again, send)
