"""A request's body as it comes: in pieces of one size, from a client that may be slow and not silent."""

import asyncio
from collections.abc import AsyncIterator

from fastapi import Request

from service.api.problems import UNREAD
from service.domain.errors import DomainError

BATCH = 1 << 19
"""Bytes of a piece."""
SMALL = 1 << 21
"""A body of at most so many bytes is one piece: it comes to the disk in one go."""
IDLE_SECONDS = 60.0
"""A body of which nothing comes for so long is ended."""


class Gone(Exception):
    """The client hung up; nobody is there to be answered."""


def too_large(limit: int, actual: int) -> DomainError:
    """Return the refusal of a body of `actual` bytes, or more."""
    return DomainError("too-large", f"the body may have {limit} bytes", expected=limit, actual=actual)


class Patience:
    """How long a sender may be silent. Somebody else may end the waiting sooner (`end`), with a reason."""

    def __init__(self) -> None:
        self.seconds = IDLE_SECONDS
        self._reason: DomainError | None = None
        self._waiting: asyncio.Timeout | None = None

    def end(self, reason: DomainError) -> None:
        """Let nobody wait any longer."""
        self._reason = reason
        if self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        """Return the next chunk, or None at the end.

        Raises:
            DomainError: incomplete-body, or the reason that was given.
            Gone: the client hung up.
        """
        if self._reason is not None:
            raise self._reason
        try:
            async with asyncio.timeout(self.seconds) as self._waiting:
                return await anext(chunks)
        except StopAsyncIteration:
            return None
        except TimeoutError:
            detail = f"nothing came for {self.seconds:g} seconds; send the upload again"
            raise self._reason or DomainError("incomplete-body", detail) from None
        finally:
            self._waiting = None


async def _chunks(request: Request) -> AsyncIterator[bytes]:
    """Yield the body as it arrives.

    Raises:
        Gone: the client hung up.
    """
    more = True
    while more:
        message = await request.receive()
        if message["type"] != "http.request":
            raise Gone
        more = bool(message.get("more_body"))
        if message.get("body"):
            yield message["body"]


async def batches(
    request: Request, limit: int, patience: Patience, *, tail: bool = False, size: int = BATCH
) -> AsyncIterator[memoryview]:
    """Yield the body in pieces of `size` bytes, all in one buffer: a piece is valid until the next one is asked for.

    A client may be slow, but not silent. With `tail`, what came before the body broke off is yielded before the error.
    """
    buffer = memoryview(bytearray(size))
    filled = seen = 0
    chunks = _chunks(request)
    while True:
        try:
            data = await patience.next(chunks)
        except (Gone, DomainError):
            if filled and tail:
                yield buffer[:filled]
            raise
        if data is None:
            request.scope[UNREAD] = False  # nothing is left to linger over, whatever the last piece turns out to be
            break
        chunk = memoryview(data)
        seen += len(chunk)
        if seen > limit:
            raise too_large(limit, seen)
        while chunk:
            take = min(len(chunk), size - filled)
            buffer[filled : filled + take] = chunk[:take]
            filled, chunk = filled + take, chunk[take:]
            if filled == size:
                yield buffer
                filled = 0
    if filled:
        yield buffer[:filled]
