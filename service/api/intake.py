"""How a safetensors body gets from the socket to the disk: hashed and checked on the way, gone again when refused."""

import asyncio
import base64
import binascii
import contextlib
import errno
import hashlib
import logging
import os
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from contract.tensors import Header, StreamCheck, TensorError
from service.api.problems import UNREAD, documented
from service.api.services import Services
from service.domain.errors import DomainError

log = logging.getLogger("service.intake")
_BATCH = 1 << 19
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/=]{44}):")
_TYPES = ("application/octet-stream", "application/x-safetensors", "application/vnd.safetensors", "")
_KINDS = {"container": "invalid-container", "tensors": "invalid-tensors", "values": "invalid-values"}

BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        "description": "a safetensors file",
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
    "storage-full",
)


class Gone(Exception):
    """The client hung up; nobody is there to be answered."""


@dataclass(frozen=True)
class Received:
    """A body on the disk, checked; `path` is temporary."""

    path: Path
    digest: str
    size: int
    header: Header


def refuse_tensors(error: TensorError) -> DomainError:
    """Return a tensor error as the problem it is over HTTP."""
    return DomainError(_KINDS[error.code], error.detail, **error.members)


class _Sink:
    """Writes, hashes and checks in a thread; knows nothing of HTTP."""

    def __init__(self, path: Path, check: StreamCheck, on_header: Callable[[Header], None]):
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115 - closed by close()
        self._hash = hashlib.sha256()
        self._check = check
        self._on_header = on_header

    def write(self, batch: memoryview) -> None:
        if self._check.feed(batch):
            assert self._check.header is not None
            self._on_header(self._check.header)
        self._hash.update(batch)
        while batch:
            batch = batch[self._file.write(batch) :]

    def finish(self) -> tuple[str, Header]:
        header = self._check.finish()
        os.fsync(self._file.fileno())
        return self._hash.hexdigest(), header

    def close(self) -> None:
        self._file.close()


def _expected_digest(request: Request) -> bytes | None:
    text = request.headers.get("content-digest")
    if text is None:
        return None
    match = _DIGEST.fullmatch(text.strip())
    try:
        if match:
            return base64.b64decode(match[1], validate=True)
    except binascii.Error:
        pass
    raise DomainError("invalid-request", "Content-Digest must read sha-256=:<base64 of 32 bytes>:")


def _announced(request: Request, limit: int) -> int | None:
    media = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media not in _TYPES:
        raise DomainError("unsupported-media-type", f"send the file as application/octet-stream, not {media[:64]!r}")
    text = request.headers.get("content-length")
    if text is None:
        return None
    length = int(text) if text.isdecimal() else -1
    if length < 0:
        raise DomainError("invalid-request", "Content-Length must be a whole number")
    if length > limit:
        raise _too_large(limit, length)
    return length


def _too_large(limit: int, actual: int) -> DomainError:
    return DomainError("too-large", f"the body may have {limit} bytes", expected=limit, actual=actual)


async def _batches(request: Request, limit: int, idle_seconds: float) -> AsyncIterator[memoryview]:
    """Yield the body in pieces of half a mebibyte, all in one buffer: a piece is valid until the next one is asked for.

    A client may be slow, but not silent.
    """
    buffer = memoryview(bytearray(_BATCH))
    filled = seen = 0
    chunks = request.stream().__aiter__()
    while True:
        try:
            async with asyncio.timeout(idle_seconds):
                chunk = memoryview(await chunks.__anext__())
        except StopAsyncIteration:
            request.scope[UNREAD] = False  # nothing is left to linger over, whatever the last piece turns out to be
            break
        except ClientDisconnect:
            raise Gone from None
        except TimeoutError:
            detail = f"nothing came for {idle_seconds:g} seconds; send the upload again"
            raise DomainError("incomplete-body", detail) from None
        seen += len(chunk)
        if seen > limit:
            raise _too_large(limit, seen)
        while chunk:
            take = min(len(chunk), _BATCH - filled)
            buffer[filled : filled + take] = chunk[:take]
            filled, chunk = filled + take, chunk[take:]
            if filled == _BATCH:
                yield buffer
                filled = 0
    if filled:
        yield buffer[:filled]


@contextlib.asynccontextmanager
async def receive(
    request: Request,
    services: Services,
    manifest: Callable[[], Header | None],
    on_header: Callable[[Header], None] = lambda header: None,
) -> AsyncIterator[Received]:
    """Take a safetensors body to a temporary file that is gone at the end of the block unless it was kept.

    Args:
        request: the request; its body has not been touched.
        services: where the file goes and what the limits are.
        manifest: reads the header that the tensors must match; called in a thread, after the cheap checks.
        on_header: called in a thread as soon as the file's header is there, to refuse early.

    Raises:
        DomainError: why it is refused.
        Gone: the client hung up.
    """
    settings = services.settings
    request.scope[UNREAD] = True
    length = _announced(request, settings.max_upload_bytes)
    expected = _expected_digest(request)
    path = services.blobs.temp()
    try:
        if await run_in_threadpool(services.blobs.free_bytes) < settings.min_free_bytes + (length or 0):
            raise _full()
        check = StreamCheck(await run_in_threadpool(manifest), length)
        sink = await run_in_threadpool(_Sink, path, check, on_header)
        try:
            async for batch in _batches(request, settings.max_upload_bytes, settings.max_upload_idle_seconds):
                await run_in_threadpool(sink.write, batch)
            hexdigest, header = await run_in_threadpool(sink.finish)
        finally:
            await run_in_threadpool(sink.close)
        if expected is not None and expected.hex() != hexdigest:
            raise DomainError(
                "digest-mismatch", "the bytes that arrived are not those of Content-Digest; send them again"
            )
        yield Received(path, f"sha256-{hexdigest}", check.received, header)
    except TensorError as error:
        raise refuse_tensors(error) from error
    except Gone:
        log.info("the client hung up: %s %s", request.url.path, request.scope.get("potstill.request_id"))
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _full() from error
        raise
    finally:
        await run_in_threadpool(path.unlink, missing_ok=True)


def _full() -> DomainError:
    return DomainError("storage-full", "the service's disk is full; the operator must make room")
