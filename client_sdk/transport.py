"""HTTP with patience: timeouts, retries with backoff and jitter, idempotency keys, problems as exceptions."""

import base64
import hashlib
import itertools
import ssl
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypedDict, Unpack
from urllib.parse import quote

import httpx

from client_sdk.connection import RETRIES, Connection
from client_sdk.errors import BrokenUpload, TransportError, UntrustedCertificate, UsageError, from_response
from client_sdk.network import PROXY
from client_sdk.tracing import trace_headers

CHUNK = 1 << 20  # 1 MiB: the fastest of the sizes measured for httpx uploads
RETRIED_STATUS = frozenset({423, 429, 502, 503, 504})
BACKOFF_FIRST, BACKOFF_CAP = 0.25, 15.0  # seconds
RETRY_AFTER_CAP = 120.0  # seconds: a service that asks for more is asked again anyway
_BEFORE_THE_BODY = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
MEDIA_TYPE_TENSORS = "application/octet-stream"


class Body(Protocol):
    """A request's body, made afresh for each try."""

    def headers(self) -> dict[str, str]:
        """What the request says about it; Content-Length at least."""

    def chunks(self) -> Iterator[bytes]:
        """Yield its bytes."""


@dataclass(frozen=True)
class FileBody:
    """A request body that is read from a file, again for each try."""

    path: Path

    @cached_property
    def _sha256(self) -> bytes:
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()

    @property
    def digest(self) -> str:
        """``sha256-<hex>`` of the file."""
        return f"sha256-{self._sha256.hex()}"

    def headers(self) -> dict[str, str]:
        """Content-Type, Content-Length and Content-Digest (RFC 9530)."""
        return {
            "Content-Type": MEDIA_TYPE_TENSORS,
            "Content-Length": str(self.path.stat().st_size),
            "Content-Digest": f"sha-256=:{base64.b64encode(self._sha256).decode()}:",
        }

    def chunks(self) -> Iterator[bytes]:
        """Yield the file in pieces of 1 MiB."""
        with self.path.open("rb") as file:
            while piece := file.read(CHUNK):
                yield piece


class RequestOptions(TypedDict, total=False):
    """What a request may carry.

    Keys:
        params, json: as in httpx; parameters that are None are left out.
        body: a `Body` to send, such as a `FileBody`.
        headers: further headers.
        token: instead of the transport's own.
        key: Idempotency-Key; every POST gets one, and all tries of a request carry the same.
        timeout: seconds for a read, where a long poll needs more.
    """

    params: dict[str, Any] | None
    json: Any
    body: Body | None
    headers: dict[str, str] | None
    token: str | None
    key: str | None
    timeout: float | None


def segment(name: str) -> str:
    """Return an id, or a name where the service takes one, as a segment of a path."""
    return quote(name, safe="")


def retry_after(response: httpx.Response) -> float | None:
    """Return the seconds that the response's ``Retry-After`` asks for, or None.

    A date counts from the response's own: this device's clock may be wrong.
    """
    value = response.headers.get("Retry-After", "").strip()
    if not value:
        return None
    if value.isdecimal():
        return min(float(value), RETRY_AFTER_CAP)
    when, said = _date(value), _date(response.headers.get("Date", ""))
    if when is None:
        return None
    return min(max((when - (said or datetime.now(UTC))).total_seconds(), 0.0), RETRY_AFTER_CAP)


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except ValueError:
        return None
    return found.replace(tzinfo=found.tzinfo or UTC)


class Transport:
    """Sends requests to one service.

    Args:
        connection: how it is reached. `token` may change afterwards.
    """

    def __init__(self, connection: Connection):
        self.connection, self.base, self.token = connection, connection.base(), connection.token
        self.retries = RETRIES if connection.retries is None else connection.retries
        self._http = connection.open()
        self.ahead: timedelta | None = None  # the service's clock, of this device's

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.base)!r})"

    def close(self) -> None:
        """Close the connections, unless the `http_client` is the caller's."""
        if self._http is not self.connection.http_client:
            self._http.close()

    def pause(self, attempt: int, asked: float | None = None) -> None:
        """Sleep before try `attempt` + 1: as long as `asked`, or capped exponential backoff with full jitter."""
        backoff = min(BACKOFF_CAP, BACKOFF_FIRST * 2**attempt) * self.connection.jitter()
        self.connection.sleep(backoff if asked is None else asked)

    def resolve(self, path: str) -> httpx.URL:
        """Return the full address of `path`, which may be absolute.

        Raises:
            UsageError: it leads to another origin, where the token must not go.
        """
        if "://" not in path:
            return httpx.URL(f"{self.base}/{path.lstrip('/')}")
        url = httpx.URL(path)
        if (url.scheme, url.host, url.port) != (self.base.scheme, self.base.host, self.base.port):
            raise UsageError(f"url: {url.host} is not {self.base.host}; the token is sent to its own service only")
        return url

    def say(self, line: str) -> None:
        """Tell the user why something is tried again."""
        if self.connection.on_retry is not None:
            self.connection.on_retry(line)

    def request(
        self,
        method: str,
        path: str,
        *,
        accept: frozenset[int] = frozenset(),
        retry: bool = True,
        resend: bool = True,
        retried: frozenset[int] = RETRIED_STATUS,
        **options: Unpack[RequestOptions],
    ) -> httpx.Response:
        """Send a request and return the answer, read in full.

        Args:
            retry: False for one try only.
            resend: False: a body that broke off on its way is not sent again, but `BrokenUpload` is raised.
            retried: statuses after which it is tried again.
            accept, options: as for `stream`.
        """
        retries = self.retries if retry else 0
        build = self._builder(method, path, **options)
        return _checked(self._send(build, retries, stream=False, resend=resend, retried=retried), accept)

    @contextmanager
    def stream(
        self, method: str, path: str, *, accept: frozenset[int] = frozenset(), **options: Unpack[RequestOptions]
    ) -> Iterator[httpx.Response]:
        """Send a request and yield the answer with its body unread.

        Args:
            accept: statuses that are no success but are the caller's to handle.
            options: see `RequestOptions`.

        Raises:
            ApiError: the service refused, or asked for patience too often.
            TransportError: no answer, or one that broke off.
        """
        response = self._send(self._builder(method, path, **options), self.retries, stream=True)
        try:
            yield _checked(response, accept)
        except httpx.TransportError as error:
            raise _failure(response.request, error) from error
        finally:
            response.close()

    def _builder(self, method: str, path: str, **options: Unpack[RequestOptions]) -> Callable[[], httpx.Request]:
        """Return a function that builds the request afresh for each try, with the same key."""
        url, body = self.resolve(path), options.get("body")
        headers = self._headers(method, options) | (body.headers() if body else {})
        params = {name: value for name, value in (options.get("params") or {}).items() if value is not None}
        timeout = self.connection.timeout
        limits = httpx.Timeout(timeout, read=options.get("timeout") or timeout)

        def build() -> httpx.Request:
            return self._http.build_request(
                method,
                url,
                params=params or None,
                json=options.get("json"),
                content=body.chunks() if body else None,
                headers=headers,
                timeout=limits,
            )

        return build

    def _headers(self, method: str, options: RequestOptions) -> dict[str, str]:
        headers = trace_headers() | dict(options.get("headers") or {})
        bearer, key = options.get("token") or self.token, options.get("key")
        if bearer:
            headers["Authorization"] = f"Bearer {bearer}"
        if key or method == "POST":
            headers["Idempotency-Key"] = key or uuid.uuid4().hex
        return headers

    def _send(
        self,
        build: Callable[[], httpx.Request],
        retries: int,
        *,
        stream: bool,
        resend: bool = True,
        retried: frozenset[int] = RETRIED_STATUS,
    ) -> httpx.Response:
        for attempt in itertools.count():
            request, asked = build(), None
            try:
                response = self._followed(self._http.send(request, stream=stream), stream=stream)
            except (httpx.LocalProtocolError, httpx.UnsupportedProtocol) as error:  # ours: trying again cannot help
                raise _failure(request, error) from error
            except httpx.TransportError as error:
                if _is_about_the_certificate(error):
                    raise _failure(request, error) from error
                if not resend and not isinstance(error, _BEFORE_THE_BODY):
                    raise BrokenUpload(str(_failure(request, error))) from error
                if attempt >= retries:
                    raise _failure(request, error) from error
                self.say(f"{self.base}: {error or type(error).__name__}; trying again, Ctrl-C stops")
            else:
                said = _date(response.headers.get("Date", ""))
                self.ahead = self.ahead if said is None else said - datetime.now(UTC)
                if response.status_code not in retried or attempt >= retries:
                    return response
                asked = retry_after(response)
                self.say(f"{self.base}: busy (HTTP {response.status_code}); trying again, Ctrl-C stops")
                response.close()
            self.pause(attempt, asked)
        raise AssertionError("itertools.count() does not end")

    def put_elsewhere(self, url: str, body: FileBody, headers: dict[str, str]) -> httpx.Response:
        """PUT a file to a presigned address of another host, with its headers and without the token."""
        timeout = self.connection.timeout
        request = self._http.build_request("PUT", url, content=body.chunks(), headers=headers, timeout=timeout)
        return self._http.send(request, auth=None)

    def _followed(self, response: httpx.Response, *, stream: bool) -> httpx.Response:
        """Return the answer from where a download is sent to: a presigned address of the store, with no token of ours.

        The service's digest stays the answer's ETag; the store has another idea of it.
        """
        request, target = response.request, response.headers.get("Location")
        ours = "ETag" in response.headers  # a login page between has none
        if response.status_code != 307 or request.method != "GET" or not target or not ours:
            return response
        response.read()
        response.close()
        kept = {name: request.headers[name] for name in ("Range", "Accept-Encoding") if name in request.headers}
        onward = self._http.build_request(
            "GET", request.url.join(target), headers=kept, extensions={"timeout": request.extensions.get("timeout")}
        )
        answer = self._http.send(onward, stream=stream, auth=None)
        if "ETag" in response.headers:
            answer.headers["ETag"] = response.headers["ETag"]
        if answer.status_code in (403, 500):  # it has expired, or the store stumbled: the service gives another
            answer.status_code = 503
        return answer


def _checked(response: httpx.Response, accept: frozenset[int]) -> httpx.Response:
    if response.is_success or response.status_code in accept:
        return response
    response.read()
    raise from_response(response)


def _is_about_the_certificate(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None


def by_proxy(request: httpx.Request) -> str:
    """Return a clause that names the proxy a request went by, empty if there was none."""
    proxy = request.extensions.get(PROXY)
    return (
        "" if proxy is None else f" It was asked by a proxy ({proxy}); add {request.url.host} to NO_PROXY to go without"
    )


def _failure(request: httpx.Request, error: Exception) -> TransportError:
    origin = f"{request.url.scheme}://{request.url.netloc.decode()}"
    if _is_about_the_certificate(error):
        return UntrustedCertificate(
            f"the certificate of {origin} is not trusted: {error}; give the PEM file of its authority "
            "(POTSTILL_CA_FILE, ca_file=), and call the service by a name that is in the certificate"
        )
    return TransportError(
        f"{request.method} {request.url.path}: {type(error).__name__}: {error or 'no answer'}; "
        f"is the service at {origin} running?{by_proxy(request)}"
    )
