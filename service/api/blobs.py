"""Blobs as answers: a local file, a link to the bucket, or the bucket's bytes passed on."""

import asyncio
import base64
import os
import re
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path

from fastapi import Request, Response
from fastapi.responses import FileResponse, RedirectResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from service.api.bodies import SMALL
from service.api.direct import ZERO_COPY
from service.api.telemetry import ELSEWHERE
from service.infra.blobs import BlobStore, Links

MEDIA_TYPE = "application/octet-stream"
_RANGE = re.compile(r"bytes=(?:(\d{1,18})-(\d{0,18})|-(\d{1,18}))", re.IGNORECASE)


def _unsatisfiable(status: int, size: int) -> HTTPException:
    return HTTPException(
        status,
        f"the file has {size} bytes; ask for a range such as bytes=0-{size - 1}",
        {"Content-Range": f"bytes */{size}"},
    )


class Weights(FileResponse):
    """A file by sendfile where the connection lets it, else in pieces of 256 KiB, of which each taker holds one or two.
    It ends when its taker hangs up.
    """

    chunk_size = 1 << 18

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the file; a range that cannot be served becomes a problem like every other error.

        A range in another unit than bytes is ignored (RFC 9110, 14.2).
        """
        request = Request(scope)
        if request.method == "GET" and ZERO_COPY in scope.get("extensions", {}) and _is_plain(request):
            await self._send_file(request, send)
            return
        headers = [
            (name, value)
            for name, value in scope["headers"]
            if name != b"range" or value.strip().lower().startswith(b"bytes")
        ]

        left = asyncio.Event()

        async def checked(message: Message) -> None:
            if left.is_set():
                raise _HungUp
            if message["type"] == "http.response.start" and message["status"] in (400, 416):
                raise _unsatisfiable(message["status"], int(self.headers["content-length"]))
            await send(message)

        watching = asyncio.ensure_future(_watch(receive, left))
        try:
            await super().__call__({**scope, "headers": headers}, receive, checked)
        except _HungUp:
            pass
        finally:
            watching.cancel()

    async def _send_file(self, request: Request, send: Send) -> None:
        """Serve all of it, or the one range that was asked for, past the event loop."""
        with await run_in_threadpool(open, self.path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            modified = formatdate(os.fstat(file.fileno()).st_mtime, usegmt=True)
            wanted = _asked(request, self.headers["etag"], size)
            start, end = wanted or (0, size)
            self.headers.update(
                {"Accept-Ranges": "bytes", "Content-Length": str(end - start), "Last-Modified": modified}
            )
            if wanted is not None:
                self.headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
            status = 200 if wanted is None else 206
            await send({"type": "http.response.start", "status": status, "headers": self.raw_headers})
            await send({"type": ZERO_COPY, "file": file, "offset": start, "count": end - start, "more_body": False})


def _is_plain(request: Request) -> bool:
    """Whether all of a file is asked for, or one range of it."""
    given = request.headers.get("range")
    return given is None or _RANGE.fullmatch(given.replace(" ", "")) is not None


class _HungUp(Exception):
    """Nobody takes the rest."""


async def _watch(receive: Receive, left: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    left.set()


def _named(digest: str) -> dict[str, str]:
    """Return the headers of what a digest names, which never changes."""
    return {
        "ETag": f'"{digest}"',
        "Repr-Digest": f"sha-256=:{base64.b64encode(bytes.fromhex(digest[7:])).decode()}:",
        "Cache-Control": "private, immutable, max-age=31536000",
    }


def _is_known(request: Request, etag: str) -> bool:
    """Whether If-None-Match names it."""
    given = request.headers.get("if-none-match", "")
    return given.strip() == "*" or etag in (tag.strip().removeprefix("W/") for tag in given.split(","))


def _asked(request: Request, etag: str, size: int) -> tuple[int, int] | None:
    """Return the one range that was asked for as [start, end), or None for all of it.

    Several ranges, another unit, or a range of another version (If-Range) get all of it, as RFC 9110 allows.
    """
    match = _RANGE.fullmatch(request.headers.get("range", "").replace(" ", ""))
    if match is None or request.headers.get("if-range", etag) != etag:
        return None
    first, last, suffix = match.groups()
    if suffix is not None:
        start, end = max(0, size - int(suffix)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
    if start >= end:
        raise _unsatisfiable(416, size)
    return start, end


def serve(blobs: BlobStore, links: Links, digest: str, request: Request) -> Response:
    """Return a blob as an answer, with the range that was asked for; nothing of one that If-None-Match names.

    Args:
        digest: `sha256:` and 64 hex digits.

    Raises:
        BlobFault: it is damaged or missing; nothing of it was sent.
    """
    headers = _named(digest)
    if _is_known(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    blobs.verify(digest)
    path = links.file(digest)
    if path is not None:
        return _small(path, headers, request) or Weights(path, media_type=MEDIA_TYPE, headers=headers)
    link = links.link(digest) if request.method == "GET" else None
    if link is not None:
        request.scope[ELSEWHERE] = blobs.size(digest)
        return RedirectResponse(link, 307, {**headers, "Cache-Control": "no-store"})
    return in_pieces(lambda start, end: blobs.read(digest, start, end), blobs.size(digest), digest, request)


def _small(path: Path, headers: dict[str, str], request: Request) -> Response | None:
    """Return a small file whole, read where it was looked for: `Weights` takes a thread for each of its steps."""
    if request.method != "GET" or "range" in request.headers or path.stat().st_size > SMALL:
        return None
    modified = formatdate(path.stat().st_mtime, usegmt=True)
    headers = {"Accept-Ranges": "bytes", "Last-Modified": modified, **headers}
    return Response(path.read_bytes(), headers=headers, media_type=MEDIA_TYPE)


def in_pieces(read: Callable[[int, int], Iterator[bytes]], size: int, digest: str, request: Request) -> Response:
    """Return what is read piece by piece as an answer, as `serve` does.

    Args:
        read: gives the bytes from the first number up to, without, the second.
        size: of all of it.
        digest: of all of it: `sha256:` and 64 hex digits.
    """
    headers = _named(digest)
    if _is_known(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    wanted = _asked(request, headers["ETag"], size)
    start, end = wanted or (0, size)
    headers |= {"Accept-Ranges": "bytes", "Content-Length": str(end - start)}
    if wanted is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    status = 200 if wanted is None else 206
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers, media_type=MEDIA_TYPE)
    return StreamingResponse(read(start, end), status, headers, MEDIA_TYPE)
