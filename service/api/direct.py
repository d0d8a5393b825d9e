"""Bodies past the event loop: the messages of ASGI by which a request's `Wire` is used. Plain ASGI, outside all else.

A body that was lent comes as messages that tell how many bytes went to its vessel (`wire.TAKEN`); a piece of a file
goes out as ASGI's `http.response.zerocopysend`. Layers within count both with `carried`.
"""

import errno
import os

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.infra.wire import TAKEN, WIRE, Wire

ZERO_COPY = "http.response.zerocopysend"
"""ASGI's message, and the extension by which a server says that it takes it."""
_PIECE = 1 << 18
_NO_SENDFILE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMFILE, errno.ENFILE)


def wire_of(scope: Scope) -> Wire | None:
    """Return the wire of a request, where its connection has one."""
    found: Wire | None = (scope.get("extensions") or {}).get(WIRE)
    return found


def carried(message: Message) -> int:
    """Return how many bytes of a body a message stands for."""
    return len(message.get("body", b"")) + int(message.get(TAKEN, 0)) + int(message.get("count", 0))


class Direct:
    """The layer that knows the socket."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        wire = wire_of(scope)
        if wire is None:
            await self._app(scope, receive, send)
            return
        scope["extensions"][ZERO_COPY] = {}

        async def received() -> Message:
            return await (wire.receive() if wire.is_lent else receive())

        async def sent(message: Message) -> None:
            if message["type"] == ZERO_COPY:
                await _send_piece(wire, message, send)
            else:
                await send(message)

        try:
            await self._app(scope, received, sent)
        except BaseException:
            wire.close(hang_up=False)  # whoever is without answers, and hangs up
            raise
        finally:
            wire.close()


async def _send_piece(wire: Wire, message: Message, send: Send) -> None:
    """Send a piece of a file, and say in the message how much of it went out."""
    file, offset, count = message["file"].fileno(), message["offset"], message["count"]
    try:
        message["count"] = await wire.send_file(file, offset, count)
    except OSError as error:
        if error.errno not in _NO_SENDFILE:
            raise
        for start in range(offset, offset + count, _PIECE):
            piece = os.pread(file, min(_PIECE, offset + count - start), start)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    if not message.get("more_body"):
        await send({"type": "http.response.body", "body": b"", "more_body": False})
