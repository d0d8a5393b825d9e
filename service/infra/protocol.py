"""uvicorn's HTTP protocol with a bound on what comes before a body: size and time of a request's head.

httptools itself takes headers of any length; one client could fill the memory and hold up everybody.
Use: ``uvicorn ... --http service.infra.protocol:BoundedHttp``.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 30.0
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class BoundedHttp(HttpToolsProtocol):
    """The protocol of one connection."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._head: int | None = 0  # bytes of the head so far; None while a body is on its way
        self._clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock of the first request."""
        super().connection_made(transport)
        self._clock = self.loop.call_later(HEAD_SECONDS, self._refuse, _TOO_SLOW)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._stop_clock()
        super().connection_lost(exc)

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
            super().data_received(data)

    def on_message_begin(self) -> None:
        """A request begins: count its head, and give it some time."""
        self._head = self._head or 0
        if self._clock is None:
            self._clock = self.loop.call_later(HEAD_SECONDS, self._refuse, _TOO_SLOW)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._head = None
        self._stop_clock()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The next bytes are of the next head."""
        self._head = 0
        super().on_message_complete()

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _refuse(self, answer: bytes) -> None:
        self._stop_clock()
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()
