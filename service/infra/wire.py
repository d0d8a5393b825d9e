"""A plain connection's socket for large bodies: between it and a file in a thread, past the parser and the event loop.

By the usual way each 64 KB of a body are copied three times, in the one thread that serves everybody, before a thread
of its own may look at them. Here that thread reads what is there into the buffer that it hashes and writes from, and a
file goes out by sendfile. Threads never wait for a client longer than a blink: the event loop does that.

`protocol.BoundedHttp` puts a `Wire` among a request's extensions, `service.api.direct` turns it into messages.
"""

import asyncio
import contextlib
import errno
import os
import select
import socket
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import anyio.to_thread

if TYPE_CHECKING:
    from uvicorn.protocols.http.flow_control import FlowControl
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

WIRE = "potstill.wire"
"""The key of a request's `Wire` among its extensions."""
TAKEN = "potstill.taken"
"""The key of a message of a body: bytes of it that are in the vessel, beside those that the message has."""
LEAST = 1 << 16
"""Fewer bytes than these are not worth the change of hands."""
AT_ONCE = 1 << 22
"""Bytes that pass before the event loop hears of them: they are counted there, and others get the thread."""
STALL_SECONDS = 300.0
"""A client that takes nothing of an answer for so long is hung up on."""
EAGER, BLINK = 1 << 18, 0.005
"""A client that has sent (or taken) so many bytes just now is waited for so many seconds, in the thread."""
BLINKS = 0.02
"""So many seconds of such waiting at a time: who sends a byte in each blink would keep the thread else."""
_CUT = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN)
_T = TypeVar("_T")


class Connection(Protocol):
    """What a wire must know of its connection's protocol."""

    transport: asyncio.Transport
    flow: "FlowControl"
    cycle: "RequestResponseCycle"
    body_bytes: int
    """Bytes of the body that the parser has seen."""
    is_lent: bool
    """Whether the rest of the body is read elsewhere: an answer before its end is the connection's last."""

    def skipped_body(self) -> None:
        """The rest of the body was taken from the socket."""


class Vessel(Protocol):
    """Where a body goes; called in a thread, one call at a time."""

    def room(self) -> memoryview:
        """Return where the next bytes belong: never nothing."""

    def took(self, count: int, *, last: bool) -> None:
        """So many bytes are there now; `last` with those that end the body."""


class _Overboard:
    """What comes is thrown away; several threads may do that in the same place."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(1 << 16))

    def room(self) -> memoryview:
        return self._buffer

    def took(self, count: int, *, last: bool) -> None:
        pass


_OVERBOARD = _Overboard()


def _forever(event: Callable[[], Awaitable[None]]) -> Awaitable[None]:
    return event()


Waits = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]
"""How a client is waited for: given what waits for its next bytes, which it may end by raising."""


class Wire:
    """The socket of one request's connection; used in the event loop only.

    Args:
        protocol: of the connection, which is not TLS.
        cycle: the request.
        length: bytes of its body, as its head says; None where it does not.
    """

    def __init__(self, protocol: Connection, cycle: "RequestResponseCycle", length: int | None):
        self._protocol, self._cycle, self._length = protocol, cycle, length
        self._socket: socket.socket | None = None
        self._left = 0
        self._pending = b""
        self._vessel: Vessel = _OVERBOARD
        self._waits: Waits = _forever
        self.error: Exception | None = None
        """What the vessel raised; no more of the body goes there."""

    @property
    def is_lent(self) -> bool:
        """Whether the body comes by `receive` of this wire, not by the protocol's."""
        return self._socket is not None

    def lend(self, vessel: Vessel, waits: Waits) -> bool:
        """Let the rest of the body go to a vessel; return whether it does, else nothing has changed."""
        protocol, cycle = self._protocol, self._cycle
        if self._length is None or cycle is not protocol.cycle or not cycle.more_body or cycle.disconnected:
            return False
        left = self._length - protocol.body_bytes
        if left < LEAST or protocol.transport.is_closing():
            return False
        try:
            self._socket, self._left = self._own(), left
        except OSError:  # no file descriptor is left
            return False
        if cycle.waiting_for_100_continue:
            protocol.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            cycle.waiting_for_100_continue = False
        protocol.flow.pause_reading()  # at once: nothing more reaches the parser
        self._pending, cycle.body = bytes(cycle.body), bytearray()
        self._vessel, self._waits = vessel, waits
        protocol.is_lent = True
        return True

    def let_go(self) -> None:
        """Throw away what still comes; wait for it as long as the caller of `receive` likes."""
        self._vessel, self._waits = _OVERBOARD, _forever

    async def receive(self) -> dict[str, Any]:
        """Return a message of the body when some of it is in the vessel, or of its end."""
        if self._pending:
            body, self._pending = self._pending, b""
            return {"type": "http.request", "body": body, "more_body": True}
        while True:
            assert self._socket is not None
            taken, ended = await _to_its_end(self._pump_in, self._socket)
            if ended and self._left:
                self.close()
                return {"type": "http.disconnect", TAKEN: taken}
            if not self._left:
                self._give_back()
            if taken:
                return {"type": "http.request", "body": b"", "more_body": self._left > 0, TAKEN: taken}
            await self._waits(partial(_ready, self._socket, to_read=True))

    def _pump_in(self, link: socket.socket) -> tuple[int, bool]:
        """Take what is there; in a thread. Return how many bytes, and whether the client has hung up."""
        taken, blinks = 0, _Blinks(link, select.POLLIN)
        while self._left and taken < AT_ONCE:
            try:
                count = link.recv_into(self._vessel.room()[: self._left])
            except (BlockingIOError, InterruptedError):
                if taken < EAGER or not blinks.soon():
                    break
                continue
            except OSError:
                return taken, True
            if not count:
                return taken, True
            self._left -= count
            taken += count
            try:
                self._vessel.took(count, last=not self._left)
            except Exception as error:  # noqa: BLE001 - of whoever lent it, who raises it
                self.error, self._vessel = error, _OVERBOARD
                break
        return taken, False

    async def send_file(self, file: int, offset: int, count: int) -> int:
        """Send a piece of a file after all that was sent before; return how many bytes the client took, or may take.

        Args:
            file: a descriptor.
            offset, count: which bytes of it.

        Raises:
            OSError: EINVAL or ENOSYS, with nothing sent, where the file's system has no sendfile.
        """
        transport, cycle = self._protocol.transport, self._cycle
        while transport.get_write_buffer_size() and not transport.is_closing():
            await asyncio.sleep(0)
            if transport.get_write_buffer_size():
                await asyncio.sleep(0.002)  # whoever takes nothing at all is hung up on by the protocol
        if transport.is_closing() or cycle.disconnected:
            cycle.disconnected = True
            return 0
        self._protocol.flow.pause_reading()  # until it is out: nothing that the parser says gets between its bytes
        sent = 0
        with self._own() as link:
            while sent < count and not cycle.disconnected:
                if transport.is_closing():
                    cycle.disconnected = True
                    break
                try:
                    some, gone = await _to_its_end(_pump_out, link, file, offset + sent, min(count - sent, AT_ONCE))
                except OSError:
                    if not sent:
                        raise
                    some, gone = 0, True  # whoever sent it otherwise would begin anew
                sent += some
                if not gone and not some:
                    try:
                        async with asyncio.timeout(STALL_SECONDS):
                            await _ready(link, to_read=False)
                    except TimeoutError:
                        gone = True
                if gone:
                    transport.abort()
                    cycle.disconnected = True  # the protocol tells only the newest of its requests
        cycle.expected_content_length -= sent
        return sent

    def close(self, *, hang_up: bool = True) -> None:
        """End what was lent. A body before its end takes its connection with it: the parser has lost its place.

        Args:
            hang_up: at once; else with the answer, or without one.
        """
        if self._socket is None:
            return
        self._socket.close()
        self._socket = None
        self._cycle.keep_alive = False
        if hang_up and not self._protocol.transport.is_closing():
            self._protocol.transport.close()

    def _give_back(self) -> None:
        """The body is at its end: the next bytes are the next request's."""
        assert self._socket is not None
        self._socket.close()
        self._socket, self._protocol.is_lent = None, False
        self._protocol.skipped_body()

    def _own(self) -> socket.socket:
        """Return a second handle of the socket: the loop lets nobody wait on the transport's own."""
        return socket.socket(fileno=os.dup(self._protocol.transport.get_extra_info("socket").fileno()))


async def _ready(link: socket.socket, *, to_read: bool) -> None:
    """Wait until there is something to read, or room to write."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    add, remove = (loop.add_reader, loop.remove_reader) if to_read else (loop.add_writer, loop.remove_writer)
    add(link, event.set)
    try:
        await event.wait()
    finally:
        remove(link)


async def _to_its_end(work: Callable[..., _T], *args: Any) -> _T:
    """Do something short in a thread; whoever is cancelled meanwhile waits for its end, or it would lose its socket."""
    doing = asyncio.ensure_future(anyio.to_thread.run_sync(partial(work, *args)))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        while not doing.done():  # a scope of anyio cancels over and over
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([doing])
        raise


class _Blinks:
    """How long a thread waits for a client that sends, or takes, a lot."""

    def __init__(self, link: socket.socket, event: int):
        self._link, self._event, self._left = link, event, BLINKS

    def soon(self) -> bool:
        """Wait; return whether the client sends or takes more within a blink."""
        if self._left <= 0:
            return False
        poll, began = select.poll(), time.monotonic()
        poll.register(self._link, self._event)
        found = bool(poll.poll(BLINK * 1000))
        self._left -= time.monotonic() - began
        return found


def _pump_out(link: socket.socket, file: int, offset: int, count: int) -> tuple[int, bool]:
    """Send what the client takes now; in a thread. Return how many bytes, and whether it has hung up."""
    sent, blinks = 0, _Blinks(link, select.POLLOUT)
    while sent < count:
        try:
            some = os.sendfile(link.fileno(), file, offset + sent, count - sent)
        except (BlockingIOError, InterruptedError):
            if sent < EAGER or not blinks.soon():
                break
            continue
        except OSError as error:
            if sent or isinstance(error, ConnectionError | TimeoutError) or error.errno in _CUT:
                return sent, True
            raise
        if not some:  # the file is shorter than it was said to be
            return sent, True
        sent += some
    return sent, False
