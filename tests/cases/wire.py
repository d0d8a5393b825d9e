"""A client with bad manners: plain sockets that stop half-way, lie about lengths, or never read their answer."""

import contextlib
import json
import socket
import struct
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Answer:
    """What came back; `status` is None when the service hung up without a word."""

    status: int | None
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> dict[str, Any]:
        """The problem of a refusal."""
        assert self.headers.get("content-type") == "application/problem+json", self
        problem: dict[str, Any] = json.loads(self.body)
        return problem


class Line:
    """One connection."""

    def __init__(self, url: str, timeout: float = 20.0):
        self._parts = urlsplit(url)
        self.socket = socket.create_connection((self._parts.hostname, self._parts.port), timeout=timeout)

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *args: object) -> None:
        self.socket.close()

    def head(self, method: str, token: str, **headers: object) -> None:
        """Send a request's head; underscores in names stand for hyphens."""
        path = self._parts.path + (f"?{self._parts.query}" if self._parts.query else "")
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self._parts.netloc}", f"Authorization: Bearer {token}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())

    def send(self, data: bytes) -> None:
        """Send bytes of the body."""
        self.socket.sendall(data)

    def chunk(self, data: bytes) -> None:
        """Send a chunk of a chunked body."""
        self.socket.sendall(b"%x\r\n" % len(data) + data + b"\r\n")

    def reset(self) -> None:
        """Break the connection with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.socket.close()

    def answer(self) -> Answer:
        """Read the answer."""
        data = b""
        try:
            while b"\r\n\r\n" not in data:
                block = self.socket.recv(65536)
                if not block:
                    return Answer(None, {}, data)
                data += block
            head, _, body = data.partition(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            pairs = (line.split(":", 1) for line in lines)
            headers = {name.strip().lower(): value.strip() for name, value in pairs}
            while len(body) < int(headers.get("content-length", 0)):
                block = self.socket.recv(65536)
                if not block:
                    break
                body += block
        except ConnectionError:
            return Answer(None, {}, data)
        return Answer(int(first.split()[1]), headers, body)


def put(url: str, token: str, body: bytes, **headers: object) -> Answer:
    """Upload a body on a connection of its own."""
    with Line(url) as line:
        line.head("PUT", token, Content_Length=len(body), Connection="close", **headers)
        with contextlib.suppress(OSError):  # refused early: the answer says why
            line.send(body)
        return line.answer()
