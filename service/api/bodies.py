"""A request's body as it comes: in pieces of one size, from a client that may be slow and not silent."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from service.api.direct import carried, wire_of
from service.api.problems import UNREAD
from service.domain.errors import DomainError

BATCH = 1 << 19
"""Bytes of a piece."""
SMALL = 1 << 21
"""A body of at most so many bytes is one piece: it comes to the disk in one go."""
IDLE_SECONDS = 60.0
"""A body of which nothing comes for so long is ended."""
_T = TypeVar("_T")


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
        with contextlib.suppress(StopAsyncIteration):
            return await self.wait(lambda: anext(chunks))
        return None

    def check(self) -> None:
        """Raise the reason that was given, if one was."""
        if self._reason is not None:
            raise self._reason

    async def wait(self, event: Callable[[], Awaitable[_T]]) -> _T:
        """Wait for something that the sender does.

        Raises:
            DomainError: incomplete-body, or the reason that was given.
        """
        self.check()
        try:
            async with asyncio.timeout(self.seconds) as self._waiting:
                return await event()
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


async def pour(
    request: Request,
    limit: int,
    patience: Patience,
    take: Callable[[memoryview], None],
    *,
    tail: bool = False,
    size: int = BATCH,
) -> None:
    """Give the body to `take`, in a thread, in pieces of `size` bytes; a piece is valid until that call returns.

    A client may be slow, but not silent. With `tail`, what came before the body broke off is given, too.

    Raises:
        DomainError: too-large, incomplete-body, or a reason that `patience` was given.
        Gone: the client hung up.
        Exception: what `take` raised.
    """
    wire, pail = wire_of(request.scope), _Pail(take, size)
    if wire is None or not wire.lend(pail, patience.wait):
        async for piece in _pieces(request, limit, patience, tail=tail, size=size):
            await run_in_threadpool(take, piece)
        return
    more, seen = True, 0
    try:
        while more:
            patience.check()  # a client that never pauses is never waited for
            message = await request.receive()
            if (seen := seen + carried(message)) > limit:
                raise too_large(limit, seen)
            if message["type"] != "http.request":
                raise Gone
            more = bool(message["more_body"])
            if message["body"]:  # what had come before
                await run_in_threadpool(pail.add, memoryview(message["body"]))
            if wire.error is not None:
                raise wire.error
    except (Gone, DomainError) as error:
        if tail and error is not wire.error:
            await run_in_threadpool(pail.empty)
        raise
    finally:
        wire.let_go()
        request.scope[UNREAD] = more


class _Pail:
    """Bytes that come in any sizes, in a buffer that is emptied when it is full: a vessel of a wire."""

    def __init__(self, take: Callable[[memoryview], None], size: int):
        self._take, self._buffer, self._filled = take, memoryview(bytearray(size)), 0

    def room(self) -> memoryview:
        return self._buffer[self._filled :]

    def took(self, count: int, *, last: bool) -> None:
        self._filled += count
        if last or self._filled == len(self._buffer):
            self.empty()

    def add(self, chunk: memoryview) -> None:
        """Take bytes that are elsewhere."""
        while chunk:
            room = self.room()[: len(chunk)]
            room[:], chunk = chunk[: len(room)], chunk[len(room) :]
            self.took(len(room), last=False)

    def empty(self) -> None:
        """Hand over what is there."""
        if self._filled:
            filled, self._filled = self._filled, 0
            self._take(self._buffer[:filled])


async def _pieces(
    request: Request, limit: int, patience: Patience, *, tail: bool = False, size: int = BATCH
) -> AsyncIterator[memoryview]:
    """Yield the body in pieces of `size` bytes, all in one buffer: a piece is valid until the next one is asked for.

    With `tail`, what came before the body broke off is yielded before the error.
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
