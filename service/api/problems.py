"""The one place where failures become `application/problem+json` (RFC 9457)."""

import asyncio
import contextlib
import json
import logging
from collections.abc import MutableMapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DatabaseError, DataError, IntegrityError, OperationalError
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from contract.faults import faults as told
from contract.wire.problems import KINDS, MEDIA_TYPE, TYPE_PREFIX
from service.api.direct import carried
from service.api.telemetry import PROBLEM
from service.domain.errors import DomainError
from service.infra.blobs import BlobFault
from service.infra.storage import FULL, UNUSABLE
from service.operations.store import faults
from service.persistence.engine import is_damaged

log = logging.getLogger("service.api")
UNREAD = "potstill.unread"
TUS_VERSION = "1.0.0"
_PASSING = frozenset(
    {"too-many-requests", "too-many-uploads", "unavailable", "storage-unavailable", "storage-full", "upload-locked"}
)
_LINGER_BYTES = 64 * 1024 * 1024
_LINGER_SECONDS = 5.0
_BY_STATUS = {
    400: "invalid-request",
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    413: "too-large",
    415: "unsupported-media-type",
    416: "range-not-satisfiable",
    422: "invalid-field",
    429: "too-many-requests",
    503: "unavailable",
}


class ProblemResponse(Response):
    """A problem. If the request's body was not read to its end, the answer goes out at once and what still arrives is
    thrown away for a while before the connection closes: a client that only reads after sending gets the answer too.
    """

    media_type = MEDIA_TYPE

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, then linger over an unread body."""
        if not scope.get(UNREAD):
            await super().__call__(scope, receive, send)
            return
        self.headers["connection"] = "close"
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_drain(receive), _LINGER_SECONDS)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _drain(receive: Receive) -> None:
    seen = 0
    while seen < _LINGER_BYTES:
        message: MutableMapping[str, Any] = await receive()
        seen += carried(message)
        if message["type"] != "http.request" or not message.get("more_body"):
            return


def problem(scope: Scope, kind: str, detail: str, headers: dict[str, str] | None = None, **members: Any) -> Response:
    """Return a problem of a kind as a response."""
    status, title = KINDS[kind]
    scope[PROBLEM] = kind
    body = {
        "type": TYPE_PREFIX + kind,
        "title": title,
        "status": status,
        "detail": detail,
        "instance": scope.get("potstill.request_id"),
    }
    extra = {key: value for key, value in members.items() if key not in body}
    content = json.dumps(body | extra, ensure_ascii=False, default=str).encode(errors="backslashreplace")
    return ProblemResponse(content, status_code=status, headers=headers)


def _domain(request: Request, error: Exception) -> Response:
    assert isinstance(error, DomainError)
    headers = {"WWW-Authenticate": "Bearer"} if error.kind == "unauthorized" else {}
    if error.kind == "tus-version":
        headers["Tus-Version"] = TUS_VERSION
    if error.kind in (
        "too-many-requests",
        "too-many-uploads",
        "unavailable",
        "storage-full",
        "upload-locked",
        "storage-unavailable",
    ):
        headers["Retry-After"] = str(error.members.get("retry_after", 5))
    return problem(request.scope, error.kind, error.detail, headers, **error.members)


def _validation(request: Request, error: Exception) -> Response:
    """Name the fields; never echo what was sent, which may hold a secret."""
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    if found[0]["type"] == "json_invalid":
        why, place = found[0]["ctx"]["error"], found[0]["loc"][-1]
        return problem(request.scope, "invalid-request", f"body: no JSON at character {place}: {why}", field="body")
    given: dict[str, Any] = {"body": error.body}
    for each in found:
        if each["loc"][0] != "body":  # `query`, `path` or `header`, and its name there, of several values the place
            given.setdefault(each["loc"][0], {})[each["loc"][1]] = None
    items = [(fault.field.removeprefix("body").removeprefix("."), fault.message) for fault in told(found, given)]
    field, message = items[0]
    more = f" (and {len(items) - 1} more)" if len(items) > 1 else ""
    errors = [{"field": field, "message": message} for field, message in items[:20]]
    return problem(request.scope, "invalid-field", f"{field or 'body'}: {message}{more}", field=field, errors=errors)


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = _BY_STATUS.get(error.status_code, "internal" if error.status_code >= 500 else "invalid-request")
    what = f"{request.method} {request.url.path[:200]}"
    detail = {404: f"no such path: {what}", 405: f"not allowed: {what}"}.get(error.status_code, str(error.detail))
    return problem(request.scope, kind, detail, dict(error.headers or {}))


def _busy(request: Request, error: Exception) -> Response:
    log.error("database: %s", error)
    if "disk is full" in str(error):
        detail = "the service's disk is full; the operator must make room"
        return problem(request.scope, "storage-full", detail, {"Retry-After": "5"})
    return problem(request.scope, "unavailable", "the database cannot answer now; try again", {"Retry-After": "2"})


def _collided(request: Request, error: Exception) -> Response:
    """Two requests made the same thing at the same moment; the loser's next try is told which."""
    log.info("database: %s", type(error).__name__)
    return problem(request.scope, "unavailable", "another request came in between; try again", {"Retry-After": "1"})


def _damaged_database(request: Request, error: Exception) -> Response:
    """SQLite says so by the base class of its errors; whatever else comes as that is a fault of ours."""
    if not is_damaged(error):
        raise error
    log.error("database: %s", error)
    detail = "the database is damaged; the operator must restore it from a backup"
    return problem(request.scope, "storage-unavailable", detail, {"Retry-After": "60"})


def _blob(request: Request, error: Exception) -> Response:
    """A file that a request needs is damaged or missing: it is named and, if it is damaged, set aside."""
    assert isinstance(error, BlobFault)
    services = request.app.state.services
    with services.store.write() as session:
        found = faults.note(session, services.blobs.store, error)
    members = {**faults.members(found), "digest": error.digest}
    return problem(request.scope, f"blob-{error.state}", faults.explain(error, found), {"Retry-After": "60"}, **members)


def _storage(request: Request, error: Exception) -> Response:
    """A file or folder cannot be made, written or read, which the operator must mend."""
    assert isinstance(error, OSError)
    if error.errno in FULL:
        detail = "the service's disk is full; the operator must make room"
        return problem(request.scope, "storage-full", detail, {"Retry-After": "5"})
    if error.errno not in UNUSABLE:
        raise error
    log.error("storage: %s: %s", request.url.path, error)
    detail = f"the service's storage cannot be used ({error.strerror}); the operator must see to it"
    return problem(request.scope, "storage-unavailable", detail, {"Retry-After": "30"})


def _unstorable(request: Request, error: Exception) -> Response:
    """PostgreSQL holds no NUL in texts, which SQLite does; so nothing has an id with one."""
    if "\0" in request.scope["path"]:
        return problem(request.scope, "not-found", "nothing here has such an id")
    detail = "a text holds a NUL character, or a number is out of range; send it without"
    return problem(request.scope, "invalid-request", detail)


def _not_text(request: Request, error: Exception) -> Response:
    """JSON can spell half of a surrogate pair, which no database and no hash takes."""
    return problem(request.scope, "invalid-request", "the text of the request must be valid Unicode")


def _internal(request: Request, error: Exception) -> Response:
    """Answer from outside the middleware, which sets the id on every other response."""
    request_id = request.scope.get("potstill.request_id", "")
    log.error("request %s failed: %s %s", request_id, request.method, request.url.path, exc_info=error)
    headers = {"X-Request-Id": request_id, "X-Content-Type-Options": "nosniff"}
    return problem(request.scope, "internal", "the fault is in the service's log under this instance id", headers)


def install(app: FastAPI) -> None:
    """Register the handlers."""
    app.add_exception_handler(DomainError, _domain)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(DatabaseError, _damaged_database)
    app.add_exception_handler(OperationalError, _busy)
    app.add_exception_handler(IntegrityError, _collided)
    app.add_exception_handler(DataError, _unstorable)
    app.add_exception_handler(UnicodeEncodeError, _not_text)
    app.add_exception_handler(BlobFault, _blob)
    app.add_exception_handler(OSError, _storage)
    app.add_exception_handler(Exception, _internal)


def documented(*kinds: str) -> dict[int | str, dict[str, Any]]:
    """Return the `responses=` of a route for these kinds of problems."""
    found: dict[int | str, dict[str, Any]] = {}
    for kind in kinds:
        status, title = KINDS[kind]
        entry = found.setdefault(
            status,
            {"description": title, "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}},
        )
        if title not in entry["description"]:
            entry["description"] += f"; {title[0].lower()}{title[1:]}"
    return found
