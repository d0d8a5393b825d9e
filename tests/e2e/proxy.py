"""A link that breaks: a TCP proxy that cuts connections after so many bytes from the client, or falls silent."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_RESET = struct.pack("ii", 1, 0)


class Link:
    """The proxy.

    Attributes:
        cuts: bytes from the client after which the next connections that send so much are reset, in turn.
        forwarded: bytes that went from clients to the service.
        silent_after: bytes after which nothing is forwarded any more, though connections stay open.
    """

    def __init__(self, target: int):
        self.cuts: list[int] = []
        self.forwarded = 0
        self.silent_after: int | None = None
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End all connections."""
        self._listener.close()
        self.hang_up()

    def hang_up(self) -> None:
        """Reset every connection that is open."""
        with self._lock:
            for end in list(self._open):
                self._reset(end)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            with self._lock:
                self._open |= {client, server}
            threading.Thread(target=self._up, args=(client, server), daemon=True).start()
            threading.Thread(target=self._down, args=(server, client), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        seen = 0
        try:
            while data := client.recv(16384):
                seen += len(data)
                with self._lock:
                    if self.cuts and seen >= self.cuts[0]:
                        self.cuts.pop(0)
                        self._reset(client)
                        server.shutdown(socket.SHUT_WR)  # no reset: what was forwarded arrives
                        return
                    if self.silent_after is not None and self.forwarded >= self.silent_after:
                        continue
                    self.forwarded += len(data)
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def _down(self, server: socket.socket, client: socket.socket) -> None:
        gone = False
        try:
            while data := server.recv(16384):
                with contextlib.suppress(OSError):
                    if not gone:
                        client.sendall(data)
                        continue
                gone = True  # the service is heard to its end, or what it has not read yet would be lost
        except OSError:
            pass
        with self._lock:
            self._reset(client)
            self._open.discard(server)
            server.close()

    def _reset(self, end: socket.socket) -> None:
        self._open.discard(end)
        try:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        end.close()


@contextmanager
def link_to(url: str) -> Iterator[Link]:
    """A link to a service on this machine."""
    link = Link(int(url.rpartition(":")[2]))
    try:
        yield link
    finally:
        link.close()
