"""The SDK follows a stream of events over breaks, by the last id."""

import itertools
from collections.abc import Iterator

import httpx
import pytest

from client_sdk import OperatorClient, errors
from client_sdk.events import Message, messages

NOW = "2026-01-01T00:00:00.000Z"
PROGRESS = b'event: progress\ndata: [{"id": "job_1"}]\n\n'


def frame(number: int) -> bytes:
    data = f'{{"sequence": {number}, "at": "{NOW}", "kind": "round.opened"}}'
    return f"id: {number}\nevent: round.opened\ndata: {data}\n\n".encode()


def test_messages_are_read_as_the_standard_says() -> None:
    text = (
        ": hello\nretry: 5\n\nid: 1\nevent: a\ndata: x\ndata:y\n\nid: 7\n\ndata:  two blanks\n\nid: a\0b\ndata: z\n\n"
    )
    assert list(messages(text.split("\n")[:-1])) == [
        Message(None, "message", ""),
        Message("1", "a", "x\ny"),
        Message("7", "message", ""),
        Message("7", "message", " two blanks"),
        Message("7", "message", "z"),
    ]


class Broken(httpx.SyncByteStream):
    """Some frames, then the line is cut."""

    def __init__(self, *frames: bytes):
        self.frames = frames

    def __iter__(self) -> Iterator[bytes]:
        yield from self.frames
        raise httpx.ReadError("cut")


def test_a_stream_goes_on_where_it_was() -> None:
    asked: list[tuple[str, str | None]] = []
    answers = iter(
        [
            httpx.Response(200, stream=Broken(frame(3), frame(4), PROGRESS, b"id: 9")),
            httpx.Response(200, content=b"retry: 1\n\nid: 6\n\n: bye\n\n"),
            httpx.Response(200, content=frame(8)),
        ]
    )

    def serve(request: httpx.Request) -> httpx.Response:
        asked.append((str(request.url.query, "ascii"), request.headers.get("last-event-id")))
        return next(answers)

    client = OperatorClient("http://x", "t", transport=httpx.MockTransport(serve), sleep=lambda seconds: None)
    found = [event.sequence for event in itertools.islice(client.events("fed_1", after=2), 3)]
    assert found == [3, 4, 8]
    assert asked == [("after=2", None), ("", "4"), ("", "6")]


def test_a_refusal_and_a_service_that_is_gone_end_the_stream() -> None:
    problem = {"type": "urn:potstill:problem:forbidden", "title": "no", "status": 403, "detail": "no"}
    refuse = httpx.MockTransport(lambda request: httpx.Response(403, json=problem))
    with pytest.raises(errors.ApiError):
        next(OperatorClient("http://x", "t", transport=refuse).events())

    cut = httpx.MockTransport(lambda request: httpx.Response(200, stream=Broken()))
    client = OperatorClient("http://x", "t", transport=cut, retries=2, sleep=lambda seconds: None)
    with pytest.raises(errors.TransportError):
        next(client.events())


def test_pages() -> None:
    asked: list[str] = []

    def serve(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.url.path}?{request.url.query.decode()}")
        return httpx.Response(200, json={"items": [], "next": 7})

    client = OperatorClient("http://x", "t", transport=httpx.MockTransport(serve))
    assert client.event_page("fed_1", after=5, limit=2).next == 7
    client.event_page(newest=3)
    assert asked == ["/v1/federations/fed_1/events?format=json&limit=2&after=5", "/v1/events?format=json&newest=3"]
