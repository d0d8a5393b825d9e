"""Bodies between a socket and a file in a thread: whole, in order, and what is behind them is the next request."""

import asyncio
import contextlib
import hashlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import Request

from service.api.bodies import Gone, Patience, pour
from service.api.direct import Direct, carried
from service.api.problems import problem
from service.domain.errors import DomainError
from service.infra import wire
from tests.service.infra.served import Connect, served

MUCH = 3 * 1024 * 1024 + 17
BODY = bytes(range(256)) * (MUCH // 256) + bytes(MUCH % 256)
LARGE = 1 << 26
"""More than the system holds for a client that takes nothing."""
PART = 200_000
SHA = hashlib.sha256(BODY).hexdigest()


class App:
    """Hashes what is put to it, refuses what begins with "no", and serves a file in two pieces."""

    def __init__(self, file: Path):
        self.file = file
        self.pieces: list[int] = []
        self.heard: list[str] = []
        self.lent: list[bool] = []
        self.size = 1 << 19

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        self.heard.append(scope["path"])
        if scope["method"] == "GET":
            await self._serve(send, LARGE if scope["path"] == "/large" else MUCH)
            self.heard.append("served")
            return
        hash_ = hashlib.sha256()

        def take(piece: memoryview) -> None:
            self.pieces.append(len(piece))
            if bytes(piece[:2]) == b"no":
                raise DomainError("invalid-container", "it begins with no")
            if bytes(piece[:2]) == b"!!":
                raise RuntimeError("a fault of ours")
            hash_.update(piece)

        request, patience = Request(scope, receive), Patience()
        if scope["path"] == "/over":
            patience.end(DomainError("upload-locked", "somebody else has it"))
        if scope["path"] == "/hasty":
            await self._answer_first(scope["extensions"][wire.WIRE], receive, send)
            return
        try:
            await pour(request, 1 << 30, patience, take, size=self.size)
        except DomainError as error:
            await problem(scope, error.kind, error.detail)(scope, receive, send)
            return
        except Gone:
            self.heard.append("gone")
            raise
        found = hash_.hexdigest().encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"64")]})
        await send({"type": "http.response.body", "body": found})

    async def _answer_first(self, link: wire.Wire, receive: Any, send: Any) -> None:
        """Answer within a body how many bytes of it the parser never saw."""
        assert link.lend(wire._OVERBOARD, lambda event: event())
        seen = past = 0
        while seen < PART:
            message = await receive()
            seen, past = seen + carried(message), past + message.get(wire.TAKEN, 0)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"8")]})
        await send({"type": "http.response.body", "body": b"%08d" % past})
        await asyncio.sleep(0.1)
        self.heard.append("answered")

    async def _serve(self, send: Any, size: int) -> None:
        half = MUCH // 2
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
        with self.file.open("rb") as file:
            for offset, count in ((0, half), (half, size - half)):
                piece = {"file": file, "offset": offset, "count": count, "more_body": not offset}
                await send({"type": "http.response.zerocopysend", **piece})


@pytest.fixture
def app(tmp_path: Path) -> App:
    path = tmp_path / "file"
    path.write_bytes(BODY)
    os.truncate(path, LARGE)
    return App(path)


@pytest.fixture
def connect(app: App) -> Iterator[Connect]:
    with served(Direct(app)) as make:
        yield make


@pytest.fixture(autouse=True)
def _lent(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = wire.Wire.lend

    def lend(self: wire.Wire, *args: Any) -> bool:
        app.lent.append(plain(self, *args))
        return app.lent[-1]

    monkeypatch.setattr(wire.Wire, "lend", lend)


def _put(path: str = "/a", length: int = MUCH, more: str = "") -> bytes:
    return f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{more}\r\n".encode()


def _answer(link: socket.socket) -> tuple[int, bytes]:
    """Return the status and the body of an answer."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = link.recv(1)
        assert byte, head
        head += byte
    fields = dict(line.lower().split(b": ") for line in head.split(b"\r\n")[1:-2])
    body = bytearray()
    while len(body) < int(fields[b"content-length"]):
        piece = link.recv(min(1 << 20, int(fields[b"content-length"]) - len(body)))
        assert piece
        body += piece
    return int(head.split()[1]), bytes(body)


def test_a_body_goes_past_the_parser_and_the_connection_goes_on(connect: Connect, app: App) -> None:
    link = connect()
    for _ in range(3):
        link.sendall(_put() + BODY)
        assert _answer(link) == (200, SHA.encode())
    assert app.lent == [True] * 3
    assert max(app.pieces) == 1 << 19, "pieces are full, whatever came at a time"
    assert len(app.pieces) == 3 * 7


def test_the_next_request_right_behind_a_body_is_the_next_request(connect: Connect, app: App) -> None:
    link = connect()
    link.sendall(_put("/a") + BODY + _put("/b", 3) + b"abc" + _put("/c") + BODY)
    found = [_answer(link)[1].decode() for _ in range(3)]
    assert found == [SHA, hashlib.sha256(b"abc").hexdigest(), SHA]
    assert app.heard == ["/a", "/b", "/c"]


def test_a_body_in_one_piece_is_taken_in_one(connect: Connect, app: App) -> None:
    app.size = MUCH + 1
    link = connect()
    link.sendall(_put() + BODY)
    assert _answer(link)[1].decode() == SHA
    assert app.pieces == [MUCH]


def test_a_client_that_waits_for_100_is_told_to_go_on(connect: Connect, app: App) -> None:
    link = connect()
    link.sendall(_put(more="Expect: 100-continue\r\n"))
    assert link.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
    link.sendall(BODY)
    assert _answer(link)[1].decode() == SHA
    assert app.lent == [True]


def test_a_slow_client_holds_no_thread(connect: Connect, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty of them send a little at a time; as many threads as the service has would otherwise wait for them."""
    links = [connect() for _ in range(60)]
    for link in links:
        link.sendall(_put() + BODY[:100])
    quick = connect()
    quick.sendall(_put("/quick") + BODY)
    assert _answer(quick)[1].decode() == SHA
    for link in links[:5]:
        link.sendall(BODY[100:])
    assert [_answer(link)[1].decode() for link in links[:5]] == [SHA] * 5


def test_a_refused_body_is_no_request_whatever_is_in_it(connect: Connect, app: App) -> None:
    """The parser has lost its place: what is left of the body is thrown away, and the connection with it."""
    hidden = _put("/hidden", 3) + b"abc"
    link = connect()
    link.sendall(_put("/a", 1 << 28) + b"no")
    sender = threading.Thread(target=_sends, args=(link, hidden * 100_000))
    sender.start()
    status, body = _answer(link)
    assert status == 422 and b"begins with no" in body
    assert _rest(link) == b""
    sender.join()
    assert app.heard == ["/a"]


def test_a_refused_body_that_comes_whole_is_answered(connect: Connect, app: App) -> None:
    link = connect()
    link.sendall(_put("/a") + b"no" + BODY[2:])
    assert _answer(link)[0] == 422
    assert _rest(link) == b""


def _sends(link: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        link.sendall(data)


def _rest(link: socket.socket) -> bytes:
    found = b""
    try:
        while piece := link.recv(1 << 16):
            found += piece
    except ConnectionResetError:
        pass
    return found


def _wait_for(word: str, app: App) -> None:
    until = time.monotonic() + 20
    while word not in app.heard and time.monotonic() < until:
        time.sleep(0.01)
    assert word in app.heard


def test_a_client_that_hangs_up_within_a_body_is_gone(connect: Connect, app: App) -> None:
    link = connect()
    link.sendall(_put() + BODY[: MUCH // 2])
    link.close()
    _wait_for("gone", app)
    assert app.heard == ["/a", "gone"]


def test_a_fault_of_ours_within_a_body_is_answered(connect: Connect) -> None:
    link = connect()
    link.sendall(_put() + b"!!" + BODY[2:])
    assert _answer(link)[0] == 500
    assert _rest(link) == b""


def test_a_piece_that_is_overtaken_ends_though_its_client_never_pauses(connect: Connect, app: App) -> None:
    link = connect()
    link.sendall(_put("/over") + BODY)
    status, body = _answer(link)
    assert status == 423 and b"somebody else" in body
    assert app.pieces == []


def test_an_answer_within_a_body_is_the_last_of_its_connection(connect: Connect, app: App) -> None:
    """The parser knows nothing of the bytes that it never saw, and would look for them behind the body."""
    link = connect()
    link.sendall(_put("/hasty"))
    link.sendall(BODY[:PART])
    status, past = _answer(link)
    assert status == 200 and int(past)
    _sends(link, BODY[PART:] + bytes(int(past)) + _put("/hidden", 3) + b"abc")
    assert _rest(link) == b""
    _wait_for("answered", app)
    assert app.heard == ["/hasty", "answered"]


def test_without_file_descriptors_a_body_goes_the_usual_way(
    connect: Connect, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(self: wire.Wire) -> socket.socket:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(wire.Wire, "_own", none)
    link = connect()
    link.sendall(_put() + BODY)
    assert _answer(link)[1].decode() == SHA
    link.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert _answer(link) == (200, BODY)
    assert app.lent == [False]


def test_a_client_that_trickles_after_a_lot_holds_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte in each blink would keep it for as many blinks as there are bytes."""
    monkeypatch.setattr(wire, "BLINK", 1.0)  # none is missed, however busy the machine
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    theirs.sendall(bytes(wire.EAGER))
    enough = threading.Event()

    def trickle() -> None:
        for _ in range(2000):
            if enough.wait(0.001):
                return
            theirs.sendall(b".")

    sender = threading.Thread(target=trickle)
    sender.start()
    link = wire.Wire(None, None, None)  # type: ignore[arg-type]
    link._left = 1 << 28
    taken, gone = link._pump_in(ours)
    still = sender.is_alive()
    enough.set()
    sender.join()
    ours.close()
    theirs.close()
    assert still and not gone and taken >= wire.EAGER


def test_work_in_a_thread_is_waited_for_however_often_it_is_cancelled() -> None:
    """The thread would go on with a socket that is closed by then, or is somebody else's."""
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait(20)
        ended.set()

    async def cancelled() -> None:
        task = asyncio.ensure_future(wire._to_its_end(work))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.001)
        assert not task.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    try:
        asyncio.run(cancelled())
    finally:
        may_end.set()


def test_a_silent_client_is_told_that_nothing_came(connect: Connect, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.api.bodies.IDLE_SECONDS", 0.1)
    link = connect()
    link.sendall(_put() + BODY[: MUCH // 2])
    status, body = _answer(link)
    assert status == 400 and b"nothing came" in body


@pytest.mark.parametrize(
    "head", [_put(length=100), _put().replace(b"Content-Length: 3145745", b"Transfer-Encoding: chunked")]
)
def test_small_and_chunked_bodies_go_the_usual_way(connect: Connect, app: App, head: bytes) -> None:
    link = connect()
    body = BODY[:100] if b"Length" in head else b"64\r\n" + BODY[:100] + b"\r\n0\r\n\r\n"
    link.sendall(head + body)
    assert _answer(link)[1].decode() == hashlib.sha256(BODY[:100]).hexdigest()
    assert app.lent == [False]


def test_a_file_goes_out_whole_and_the_connection_goes_on(connect: Connect) -> None:
    link = connect()
    for _ in range(2):
        link.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert _answer(link) == (200, BODY)


def test_a_slow_reader_gets_all_of_a_file(connect: Connect) -> None:
    link = connect()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    link.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    found = b""
    while piece := link.recv(1 << 15):
        found += piece
        time.sleep(0.001)
    assert found.endswith(BODY)


GET_LARGE = b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n"


def test_a_reader_that_leaves_with_another_request_behind_is_gone(connect: Connect, app: App) -> None:
    """The protocol tells only the newest of its requests that the client has left."""
    link = connect()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    link.sendall(GET_LARGE + GET_LARGE)
    link.recv(1)
    link.close()
    _wait_for("served", app)


def test_nothing_gets_between_the_bytes_of_a_file(connect: Connect) -> None:
    link = connect()
    link.sendall(GET_LARGE)
    link.recv(1, socket.MSG_PEEK)
    link.sendall(b"this is no request\r\n\r\n")
    status, body = _answer(link)
    assert status == 200 and body.startswith(BODY) and not body[MUCH:].strip(b"\0")
    assert _answer(link)[0] == 400


def test_a_reader_that_has_nothing_more_to_say_gets_all_of_a_file(connect: Connect) -> None:
    link = connect()
    link.sendall(GET_LARGE)
    link.shutdown(socket.SHUT_WR)
    status, body = _answer(link)
    assert status == 200 and len(body) == LARGE


def test_a_reader_that_takes_nothing_is_hung_up_on(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "STALL_SECONDS", 0.2)
    link = connect()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    link.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
    time.sleep(1)
    assert len(_rest(link)) < LARGE


def test_where_a_file_has_no_sendfile_it_goes_piece_by_piece(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*args: Any) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr("os.sendfile", none)
    link = connect()
    link.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert _answer(link) == (200, BODY)


def test_a_sendfile_that_fails_in_the_middle_ends_the_answer(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other way would begin the piece anew: bytes would come twice."""
    real, calls = os.sendfile, list[int]()

    def once(*args: Any) -> int:
        calls.append(1)
        if len(calls) > 1:
            raise OSError(22, "Invalid argument")
        return real(args[0], args[1], args[2], 1000)

    monkeypatch.setattr("os.sendfile", once)
    link = connect()
    link.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert _rest(link).partition(b"\r\n\r\n")[2] == BODY[:1000]
