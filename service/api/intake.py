"""How a safetensors body gets from the socket to the disk: hashed and checked on the way, gone again when refused."""

import base64
import binascii
import contextlib
import logging
import os
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from contract.private import private
from contract.tensors import Header, StreamCheck, TensorError
from service.api.bodies import BATCH, SMALL, Gone, Patience, pour, too_large
from service.api.lease import holding
from service.api.problems import UNREAD, documented
from service.api.received import Received
from service.api.services import Services
from service.api.source import Answered, Source, answered
from service.api.telemetry import ELSEWHERE
from service.domain.errors import DomainError, not_found
from service.infra.blobs import Staging
from service.infra.parts import PartsLost
from service.infra.storage import FULL
from service.infra.sums import Sums
from service.operations.store import uploads
from service.operations.store.uploads import Held

log = logging.getLogger("service.intake")
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/=]{44}):")
_TYPES = ("application/octet-stream", "application/x-safetensors", "application/vnd.safetensors", "")
_OVERTAKEN = ("not-found", "upload-locked")
_KINDS = {"container": "invalid-container", "tensors": "invalid-tensors", "values": "invalid-values"}

BODY: dict[str, Any] = {
    "requestBody": {
        "required": False,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        "description": "a safetensors file; nothing when `upload` or `staged` names one",
    }
}
REFUSALS = documented(
    "invalid-request",
    "incomplete-body",
    "digest-mismatch",
    "unauthorized",
    "forbidden",
    "not-found",
    "too-large",
    "unsupported-media-type",
    "invalid-container",
    "invalid-tensors",
    "invalid-values",
    "upload-incomplete",
    "upload-locked",
    "storage-unavailable",
    "blob-damaged",
    "blob-missing",
    "storage-full",
)


def refuse_tensors(error: TensorError) -> DomainError:
    """Return a tensor error as the problem it is over HTTP."""
    return DomainError(_KINDS[error.code], error.detail, **error.members)


class _Sink:
    """Writes, hashes and checks in a thread; knows nothing of HTTP."""

    def __init__(self, path: Path, check: StreamCheck, on_header: Callable[[Header], None]):
        self._file = open(path, "xb", buffering=0, opener=private)  # noqa: SIM115 - closed by close()
        self._sums = Sums()
        self._check = check
        self._on_header = on_header

    def write(self, batch: memoryview) -> None:
        """Take a piece."""
        if self._check.feed(batch):
            assert self._check.header is not None
            self._on_header(self._check.header)
        self._sums.update(batch)
        while batch:
            batch = batch[self._file.write(batch) :]

    def finish(self) -> tuple[Sums, Header]:
        """Say that no more comes."""
        header = self._check.finish()
        os.fsync(self._file.fileno())
        self._file.close()
        return self._sums, header

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True)
class _Asks:
    """What a route asks of a file, see `receive`; all are called in a thread."""

    manifest: Callable[[], Header | None]
    on_header: Callable[[Header], None]
    on_whole: Callable[[Received], bool]

    def brought(self, received: Received) -> Received:
        """Return a whole file, about which the route was asked."""
        return replace(received, lost=self.on_whole(received))


def _expected_digest(request: Request, name: str) -> str | None:
    """Return the digest that a header names, as blobs are named."""
    text = request.headers.get(name)
    if text is None:
        return None
    match = _DIGEST.fullmatch(text.strip())
    try:
        if match:
            return f"sha256-{base64.b64decode(match[1], validate=True).hex()}"
    except binascii.Error:
        pass
    raise DomainError("invalid-request", f"{name} must read sha-256=:<base64 of 32 bytes>:")


def _announced(request: Request, limit: int) -> int | None:
    media = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media not in _TYPES:
        detail = f"send the file as application/octet-stream, not {media[:64]!r}"
        raise DomainError("unsupported-media-type", detail, field="Content-Type")
    text = request.headers.get("content-length")
    if text is None:
        return None
    length = int(text) if text.isdecimal() else -1
    if length < 0:
        raise DomainError("invalid-request", "Content-Length must be a whole number")
    if length > limit:
        raise too_large(limit, length)
    return length


@contextlib.asynccontextmanager
async def receive(
    source: Source,
    manifest: Callable[[], Header | None],
    on_header: Callable[[Header], None] = lambda header: None,
    on_whole: Callable[[Received], bool] = lambda received: False,
) -> AsyncIterator[Received]:
    """Take a safetensors file to a temporary path that is gone at the end of the block unless it was kept.

    Args:
        source: a request whose body has not been touched, or one that names a finished upload.
        manifest: reads the header that the tensors must match; called in a thread, after the cheap checks.
        on_header: called in a thread as soon as the file's header is there, to refuse early.
        on_whole: called in a thread when the file is on the disk, sound and what its sender says; returns `lost`.

    Raises:
        DomainError: why it is refused.
        Gone: the client hung up.
    """
    request, services = source.request, source.services
    path = services.blobs.scratch.temp()
    take = _from_upload if source.upload is not None else _from_body if source.staged is None else _from_staging
    try:
        async with take(source, path, _Asks(manifest, on_header, on_whole)) as received:
            yield received
    except TensorError as error:
        raise refuse_tensors(error) from error
    except Gone:
        log.info("the client hung up: %s %s", request.url.path, request.scope.get("potstill.request_id"))
        raise
    except OSError as error:
        if error.errno in FULL:
            raise full() from error
        raise
    finally:
        if path.exists():  # a look takes no thread, and what counts has another name by now
            await run_in_threadpool(path.unlink, missing_ok=True)


@contextlib.asynccontextmanager
async def _from_body(source: Source, path: Path, asks: _Asks) -> AsyncIterator[Received]:
    request, settings = source.request, source.services.settings
    request.scope[UNREAD] = True
    length = _announced(request, settings.max_upload_bytes)
    body = _Body(source, path, length, _expected_digest(request, "Content-Digest"), asks)
    small = length is not None and length <= SMALL
    try:
        if not small:  # refused before much of it comes
            await run_in_threadpool(body.begin)
        size = length + 1 if length is not None and small else BATCH  # one more: its end is seen before it
        await pour(request, settings.max_upload_bytes, Patience(), body.take, size=size)
        received = body.received
        if received is None:
            received = await run_in_threadpool(body.end)
    finally:
        if body.is_open:
            await run_in_threadpool(body.close)
    yield received


class _Body:
    """A request's body on its way to the disk, in a thread; a small one is begun and ended with its only piece."""

    def __init__(self, source: Source, path: Path, length: int | None, expected: str | None, asks: _Asks):
        self._source, self._path, self._length, self._expected, self._asks = source, path, length, expected, asks
        self._sink: _Sink | None = None
        self.received: Received | None = None

    @property
    def is_open(self) -> bool:
        return self._sink is not None and self.received is None

    def begin(self) -> _Sink:
        """Open where it goes, if there is room for it."""
        if _room(self._source) < self._source.services.settings.min_free_bytes + (self._length or 0):
            raise full()
        self._sink = _Sink(self._path, StreamCheck(self._asks.manifest(), self._length), self._asks.on_header)
        return self._sink

    def take(self, batch: memoryview) -> None:
        """Take a piece; with one that is all there is, it ends."""
        (self._sink or self.begin()).write(batch)
        if len(batch) == self._length:
            self.end()

    def end(self) -> Received:
        """Take it as whole, and as what its sender says."""
        sums, header = (self._sink or self.begin()).finish()
        if self._expected not in (None, sums.digest):
            detail = "the bytes that arrived are not those of Content-Digest; send them again"
            raise DomainError("digest-mismatch", detail)
        self.received = self._asks.brought(Received(self._path, sums, header))
        return self.received

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()


def _no_body(request: Request, instead: str) -> None:
    if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
        request.scope[UNREAD] = True
        raise DomainError("invalid-request", f"{instead}: send a body or name one, not both")


@contextlib.asynccontextmanager
async def _from_staging(source: Source, path: Path, asks: _Asks) -> AsyncIterator[Received]:
    """Read what a device put into the bucket; it goes when it has counted."""
    services, name = source.services, source.staged or ""
    _no_body(source.request, "staged")
    staging = services.blobs.links.staging()
    if staging is None:
        raise not_found("staged file", name)
    async with _or_answered(source):
        try:
            source.request.scope[ELSEWHERE] = await run_in_threadpool(staging.size, source.owner, name)
            received = await run_in_threadpool(_fetched, source, staging, path, asks)
        except FileNotFoundError:
            raise not_found("staged file", name) from None
    yield received
    with contextlib.suppress(DomainError):  # the sweep removes it otherwise
        await run_in_threadpool(staging.drop, source.owner, name)


def _fetched(source: Source, staging: Staging, path: Path, asks: _Asks) -> Received:
    """Bring a staged file to `path` with the same checks as a body."""
    services, owner, name = source.services, source.owner, source.staged or ""
    settings, length = services.settings, staging.size(owner, name)
    if length > settings.max_upload_bytes:  # signed for less: the store did not look
        raise too_large(settings.max_upload_bytes, length)
    if _room(source) < settings.min_free_bytes + length:
        raise full()
    sink = _Sink(path, StreamCheck(asks.manifest(), length), asks.on_header)
    try:
        for block in staging.read(owner, name):
            sink.write(memoryview(block))
        sums, header = sink.finish()
    finally:
        sink.close()
    return asks.brought(Received(path, sums, header, source.target, staged=(owner, name)))


def _room(source: Source) -> int:
    """Return the free space that no open upload has reserved."""
    return source.services.blobs.scratch.free_bytes() - source.reserved


@contextlib.asynccontextmanager
async def _from_upload(source: Source, path: Path, asks: _Asks) -> AsyncIterator[Received]:
    request, services = source.request, source.services
    _no_body(request, "upload")
    expected = _expected_digest(request, "Repr-Digest")
    async with _or_answered(source), holding(services, source.owner, source.upload or "") as held:
        uploads.check_whole(held)
        sums, header = await run_in_threadpool(_assembled, services, held, path, asks)
        if expected not in (None, sums.digest):
            detail = "the upload's bytes are not those of Repr-Digest; it is removed, send it again"
            raise DomainError("digest-mismatch", detail)
        yield await run_in_threadpool(asks.brought, Received(path, sums, header, source.target, held))


@contextlib.asynccontextmanager
async def _or_answered(source: Source) -> AsyncIterator[None]:
    """Give the first answer where the very same delivery, by another connection, was decided meanwhile."""
    try:
        yield
    except DomainError as error:
        found = await run_in_threadpool(answered, source) if error.kind in _OVERTAKEN else None
        if found is None:
            raise
        raise Answered(found) from error


def _assembled(services: Services, held: Held, path: Path, asks: _Asks) -> tuple[Sums, Header]:
    """Bring a whole upload to `path` and read it once: the same checks as of a body, and its sums."""
    check = StreamCheck(asks.manifest(), held.length)
    try:
        services.parts.assemble(held.id, held.parts, held.length, path)
    except PartsLost:
        raise lost(services, held) from None
    sums = Sums()
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(BATCH):
            if check.feed(piece):
                assert check.header is not None
                asks.on_header(check.header)
            sums.update(piece)
    return sums, check.finish()


def lost(services: Services, held: Held) -> DomainError:
    """Return the refusal for an upload whose bytes are no longer there; the upload goes with them."""
    log.error("the bytes of upload %s are not in the store; it is removed", held.id)
    with services.store.write() as session:
        uploads.discard(session, held.owner, held.id)
    return not_found("upload", held.id)


def full() -> DomainError:
    """Return the refusal when there is no room."""
    return DomainError("storage-full", "the service's disk is full; the operator must make room")
