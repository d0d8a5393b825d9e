"""The protocol of a connection, on a real socket: what is no body has an end, and so has a body that nobody reads."""

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from service.infra import protocol
from service.infra.connections import ConnectionLimits
from tests.service.infra.served import Connect, served

CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


_MUCH = 32 * 1024 * 1024


async def _app(scope: Any, receive: Any, send: Any) -> None:
    """Read the body of a POST and tell how many headers there are; answer everything else at once, /much with a lot."""
    if scope["type"] != "http":
        return
    if scope["path"] == "/much":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % _MUCH)]})
        for left in range(_MUCH, 0, -65_536):
            await send({"type": "http.response.body", "body": bytes(65_536), "more_body": left > 65_536})
        return
    more = scope["method"] == "POST"
    while more:
        message = await receive()
        more = message["type"] == "http.request" and message.get("more_body", False)
    body = f"headers {len(scope['headers'])}".encode()
    start = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": start})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    monkeypatch.setattr(protocol, "LINGER_SECONDS", 0.5)
    monkeypatch.setattr(protocol, "STALL_SECONDS", 1.0)
    with served(_app) as make:
        yield make


def _answer(link: socket.socket) -> bytes:
    """Return an answer of the app to its end."""
    found = b""
    while b"headers " not in found:
        piece = link.recv(4096)
        assert piece, found
        found += piece
    return found


def _ends(link: socket.socket, piece: bytes, most: int) -> bool:
    """Send the same piece until the other end has hung up; False when it took `most` bytes of them."""
    try:
        for _ in range(most // len(piece)):
            link.sendall(piece)
        link.settimeout(5)
        while link.recv(65_536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


@pytest.mark.parametrize("piece", [b"a" * 16_384, b"X-A: b\r\n" * 2048], ids=["one without end", "many"])
def test_trailers_without_end_are_refused(connect: Connect, piece: bytes) -> None:
    link = connect()
    link.sendall(CHUNKED + b"2\r\n{}\r\n0\r\nX-A: b\r\nX: ")
    assert _ends(link, piece, 16_000_000)


def test_a_chunks_extension_without_end_is_refused(connect: Connect) -> None:
    link = connect()
    link.sendall(CHUNKED + b"2;x=")
    assert _ends(link, b"a" * 16_384, 16_000_000)


def test_a_few_trailers_and_tiny_chunks_do_no_harm(connect: Connect) -> None:
    link = connect()
    for _ in range(2):
        link.sendall(CHUNKED + b"1;name=value\r\na\r\n" * 50_000 + b"0\r\nX-A: b\r\n\r\n")
        assert _answer(link).endswith(b"headers 2"), "trailers are no headers"


def test_a_body_that_nobody_reads_ends_the_connection(connect: Connect) -> None:
    """The answer comes first, and a client that goes on a while is not cut off at once."""
    link = connect()
    link.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")
    assert _answer(link).endswith(b"headers 2")
    stop = threading.Event()

    def trickle() -> None:
        while not stop.wait(0.05):
            try:
                link.sendall(b"a")
            except OSError:
                return

    sender = threading.Thread(target=trickle)
    sender.start()
    try:
        assert link.recv(1) == b""
    except ConnectionResetError:
        pass
    finally:
        stop.set()
        sender.join()


def test_a_body_that_comes_after_its_answer_and_ends_leaves_the_connection_open(connect: Connect) -> None:
    link = connect()
    for _ in range(2):
        link.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n")
        assert _answer(link).endswith(b"headers 2")
        link.sendall(b"abc")


def test_a_client_that_reads_nothing_is_hung_up_on(connect: Connect) -> None:
    link = connect()
    link.sendall(b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n")
    time.sleep(4)
    assert _received(link) < _MUCH


def test_a_client_that_reads_slowly_gets_all_of_it(connect: Connect) -> None:
    """Longer than a silent one may take, and in pieces that leave the service's buffer as it is for a while."""
    link = connect()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    link.sendall(b"GET /much HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert _received(link, pause=0.1) > _MUCH


def _received(link: socket.socket, pause: float = 0.0) -> int:
    """Return how many bytes come, read a mebibyte at a time with pauses."""
    seen = 0
    try:
        while piece := link.recv(1 << 20, socket.MSG_WAITALL):
            seen += len(piece)
            time.sleep(pause)
    except ConnectionResetError:
        pass
    return seen


def test_of_one_address_only_so_many_stay_connected(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    few = ConnectionLimits(together=10, each=3, free=())
    monkeypatch.setattr(protocol, "connection_limits", lambda: few)
    links = [connect() for _ in range(5)]
    stay, go = links[:3], links[3:]
    assert [link.recv(1) for link in go] == [b""] * 2
    for link in stay:
        link.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert _answer(link).endswith(b"headers 1")
    for link in links:
        link.close()
    until = time.monotonic() + 10
    while few._open and time.monotonic() < until:
        time.sleep(0.01)
    fresh = connect()
    fresh.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert _answer(fresh).endswith(b"headers 1")
