"""uvicorn's HTTP protocol with bounds: on heads, on what is no body after them, on bodies and answers nobody reads.

httptools itself takes headers of any length, and after a chunked body trailers without end, which uvicorn collects
before any token is looked at; one client could fill the memory and hold up everybody. A body that is still on its way
when its request has been answered has nobody who waits for it with a limit. Nor has an answer that nobody reads: it
would hold its connection, and what is open for it, for ever.
Use: ``uvicorn ... --http service.infra.protocol:BoundedHttp``.
"""

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.infra.connections import connection_limits
from service.infra.wire import STALL_SECONDS, WIRE, Wire

MAX_HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 30.0
LINGER_SECONDS = 30.0
"""A client that only reads after sending may go on so long with a body after the answer."""
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class BoundedHttp(HttpToolsProtocol):
    """The protocol of one connection."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._head: int | None = 0  # bytes of the head so far; None while a body is on its way
        self._idle = 0  # bytes since the last one of a body: lengths of chunks, their extensions, trailers
        self._clock: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._unsent: tuple[int, int] = (0, 0)  # bytes that wait for the client, and how often it has taken some
        self._taken = 0
        self._address = ""
        self.body_bytes = 0
        """Bytes of the request's body that the parser has seen."""
        self.is_lent = False
        """Whether the rest of the body does not come by the parser."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock of the first request, unless there are too many connections."""
        super().connection_made(transport)
        self._address = (transport.get_extra_info("peername") or ("",))[0]
        if not connection_limits().enter(self._address):
            transport.abort()
            return
        self._clock = self.loop.call_later(HEAD_SECONDS, self._refuse, _TOO_SLOW)
        self._watch = self.loop.call_later(STALL_SECONDS, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        connection_limits().leave(self._address)
        self._stop_clock()
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        """The client has taken some of what waits for it."""
        self._taken += 1
        super().resume_writing()

    def _look(self) -> None:
        """Hang up on a client that has taken nothing since the last look, also after the connection was to close: after
        twice the time at most.
        """
        unsent = (self.transport.get_write_buffer_size(), self._taken)
        if unsent[0] and unsent == self._unsent:
            self.transport.abort()
            return
        self._unsent = unsent
        self._watch = self.loop.call_later(STALL_SECONDS, self._look)

    def data_received(self, data: bytes) -> None:
        """Hand bytes to the parser; those of a head in pieces that end where it would be too long."""
        while data and self._head is not None:
            room = MAX_HEAD_BYTES - self._head
            if room <= 0:
                self._refuse(_TOO_LONG)
                return
            piece, data = data[:room], data[room:]
            self._head += len(piece)
            super().data_received(piece)
        if data:
            self._idle += len(data)
            if self._idle > MAX_HEAD_BYTES + len(data):
                self._refuse(_TOO_LONG)
                return
            super().data_received(data)

    def on_message_begin(self) -> None:
        """A request begins: count its head, and give it some time."""
        self._head = self._head or 0
        if self._clock is None:
            self._clock = self.loop.call_later(HEAD_SECONDS, self._refuse, _TOO_SLOW)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._head, self.body_bytes = None, 0
        self._stop_clock()
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before and self.scheme == "http" and not self.parser.should_upgrade():
            offered: dict[str, Any] = {WIRE: Wire(self, self.cycle, _length(self.headers))}
            self.scope["extensions"] = offered

    def skipped_body(self) -> None:
        """The rest of a body was taken from the socket: what comes now is the head of the next request."""
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
        self.on_message_complete()
        self.flow.resume_reading()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers, which come after the head, are read by nobody."""
        if self._head is not None:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Some of the body is here."""
        self._idle = 0
        self.body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The next bytes are of the next head."""
        self._head, self._idle = 0, 0
        self._stop_clock()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The answer is out: what is left of the body has some time, or the connection ends."""
        if self.is_lent and not self.transport.is_closing():
            self.transport.close()  # the parser would take what is left for all of the body, and what follows with it
        super().on_response_complete()
        unread = self._head is None and self.cycle.response_complete  # not that of the next request, which is read
        if unread and self._clock is None and not self.transport.is_closing():
            self._clock = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _refuse(self, answer: bytes) -> None:
        self._stop_clock()
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()


def _length(headers: list[tuple[bytes, bytes]]) -> int | None:
    """Return how long a body is by the head of its request, if it says so and the body comes as it is."""
    if any(name == b"transfer-encoding" for name, _ in headers):
        return None
    found = [value for name, value in headers if name == b"content-length"]
    return int(found[0]) if len(found) == 1 and found[0].isdigit() else None
