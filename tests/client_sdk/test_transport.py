"""Retries, keys, tokens, problem answers; and downloads that break off."""

import base64
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from client_sdk import errors
from client_sdk.connection import Connection
from client_sdk.downloads import download
from client_sdk.transport import CHUNK, FileBody, Transport, retry_after

URL = "http://potstill.test"
Handler = Callable[[httpx.Request], httpx.Response]


def make(handler: Handler, **options: Any) -> tuple[Transport, list[float]]:
    """Return a transport whose naps are noted instead of slept, with no jitter."""
    naps: list[float] = []
    connection = Connection(URL, transport=httpx.MockTransport(handler), sleep=naps.append, jitter=lambda: 1.0)
    return Transport(replace(connection, **options)), naps


def series(*answers: httpx.Response | Exception) -> tuple[Handler, list[httpx.Request]]:
    """Return a handler that gives these answers in turn."""
    seen: list[httpx.Request] = []
    left = iter(answers)

    def handle(request: httpx.Request) -> httpx.Response:
        request.read()
        seen.append(request)
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return handle, seen


def test_retries_connection_errors_and_busy_answers_with_the_same_key() -> None:
    handler, seen = series(httpx.ConnectError("refused"), httpx.Response(503), httpx.Response(502), httpx.Response(201))
    transport, naps = make(handler)
    assert transport.request("POST", "/v1/x", json={"a": 1}).status_code == 201
    assert naps == [0.25, 0.5, 1.0]
    keys = {request.headers["Idempotency-Key"] for request in seen}
    assert len(seen) == 4 and len(keys) == 1
    assert {request.content for request in seen} == {b'{"a":1}'}


def test_two_posts_have_two_keys_and_a_get_has_none() -> None:
    handler, seen = series(*[httpx.Response(200) for _ in range(3)])
    transport, _ = make(handler)
    transport.request("POST", "/a")
    transport.request("POST", "/a")
    transport.request("GET", "/a")
    assert seen[0].headers["Idempotency-Key"] != seen[1].headers["Idempotency-Key"]
    assert "Idempotency-Key" not in seen[2].headers


def test_retry_after_is_honoured_in_seconds() -> None:
    handler, _ = series(httpx.Response(429, headers={"Retry-After": "7"}), httpx.Response(200))
    transport, naps = make(handler)
    transport.request("GET", "/a")
    assert naps == [7.0]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("Thu, 01 Jan 2026 00:00:09 GMT", 9.0),
        ("Wed, 31 Dec 2025 23:00:00 GMT", 0.0),
        ("soon", None),
        ("9999", 120.0),
    ],
)
def test_retry_after_forms(value: str, seconds: float | None) -> None:
    said = {"Date": "Thu, 01 Jan 2026 00:00:00 GMT"}  # a device's own clock may be wrong by years
    assert retry_after(httpx.Response(503, headers={"Retry-After": value} | said)) == seconds


def test_backoff_is_capped_and_jittered() -> None:
    handler, _ = series(*[httpx.ConnectError("no")] * 9)
    naps: list[float] = []
    transport, naps = make(handler, retries=8, jitter=lambda: 0.5)
    with pytest.raises(errors.TransportError, match="is the service at http://potstill.test running"):
        transport.request("GET", "/a")
    assert naps == [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 7.5, 7.5]


def test_other_statuses_are_not_tried_again() -> None:
    handler, seen = series(httpx.Response(500))
    transport, naps = make(handler)
    with pytest.raises(errors.ApiError):
        transport.request("GET", "/a")
    assert len(seen) == 1 and naps == []


def test_patience_ends_with_the_services_own_words() -> None:
    body = {"type": "urn:potstill:problem:unavailable", "title": "T", "status": 503, "detail": "migrating"}
    handler, seen = series(*[httpx.Response(503, json=body) for _ in range(3)])
    transport, _ = make(handler, retries=2)
    with pytest.raises(errors.Unavailable, match="migrating"):
        transport.request("GET", "/a")
    assert len(seen) == 3


def test_the_token_stays_out_of_reprs_errors_and_other_origins() -> None:
    handler, _ = series(httpx.Response(500, text="no"))
    transport, _ = make(handler, token="pst_dev_secret")
    with pytest.raises(errors.ApiError) as caught:
        transport.request("GET", "/a")
    assert "secret" not in repr(transport) + repr(caught.value) + str(caught.value)
    with pytest.raises(errors.UsageError, match="its own service only"):
        transport.request("GET", "http://evil.test/v1/models/mdl_1/weights")
    with pytest.raises(errors.UsageError, match="its own service only"):
        transport.request("GET", "https://potstill.test/v1")


def test_absolute_addresses_of_the_own_origin_and_a_base_path_work() -> None:
    handler, seen = series(httpx.Response(200), httpx.Response(200))
    make(handler)[0].request("GET", f"{URL}/v1/a")
    make(handler, url=f"{URL}/base/")[0].request("GET", "/v1/a")
    assert [str(request.url) for request in seen] == [f"{URL}/v1/a", f"{URL}/base/v1/a"]


@pytest.mark.parametrize("url", ["potstill.test:80", "ftp://x", "", "http://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(errors.UsageError, match="url: expected"):
        Transport(Connection(url))


def test_a_file_is_sent_in_pieces_with_length_and_digest_and_again_on_retry(tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    file.write_bytes(bytes(range(256)) * (CHUNK // 128))
    body = FileBody(file)
    assert [len(piece) for piece in body.chunks()] == [CHUNK, CHUNK]
    handler, seen = series(httpx.ReadError("reset"), httpx.Response(201))
    transport, _ = make(handler)
    transport.request("PUT", "/u", body=body, key="k")
    assert [request.content == file.read_bytes() for request in seen] == [True, True]
    assert [request.headers["Content-Length"] for request in seen] == [str(2 * CHUNK)] * 2
    assert "Transfer-Encoding" not in seen[0].headers
    wanted = base64.b64encode(hashlib.sha256(file.read_bytes()).digest()).decode()
    assert seen[1].headers["Content-Digest"] == f"sha-256=:{wanted}:"
    assert {request.headers["Idempotency-Key"] for request in seen} == {"k"}


# Downloads

DATA = bytes(range(256)) * 20_000  # 5 MB: several pieces
DIGEST = f"sha256-{hashlib.sha256(DATA).hexdigest()}"


class Broken(httpx.SyncByteStream):
    """A body that breaks off after `count` bytes."""

    def __init__(self, data: bytes, count: int):
        self.data, self.count = data, count

    def __iter__(self) -> Iterator[bytes]:
        yield self.data[: self.count]
        raise httpx.ReadError("connection reset")


class Store:
    """Serves DATA with ETag and Range; the first `breaks` answers break off after 2 MiB more."""

    def __init__(self, breaks: int = 0, data: bytes = DATA):
        self.breaks, self.data, self.seen = breaks, data, list[httpx.Request]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        etag = f'"{DIGEST}"'
        if request.headers.get("If-None-Match") == etag:
            return httpx.Response(304)
        start = int(request.headers.get("Range", "bytes=0-")[6:-1])
        if start >= len(self.data):
            return httpx.Response(416)
        status = 206 if start else 200
        if self.breaks:
            self.breaks -= 1
            return httpx.Response(status, stream=Broken(self.data[start:], 2 * CHUNK), headers={"ETag": etag})
        return httpx.Response(status, content=self.data[start:], headers={"ETag": etag})


@pytest.mark.parametrize("digest", [DIGEST, None])
def test_a_broken_download_goes_on_where_it_broke_off(tmp_path: Path, digest: str | None) -> None:
    store, target = Store(breaks=2), tmp_path / "m"
    transport, _ = make(store)
    assert download(transport, "/w", target, digest=digest) == DIGEST
    assert target.read_bytes() == DATA
    ranges = [request.headers.get("Range") for request in store.seen]
    assert ranges == [None, f"bytes={2 * CHUNK}-", f"bytes={4 * CHUNK}-"]
    assert store.seen[1].headers["If-Range"] == f'"{DIGEST}"'
    assert list(tmp_path.iterdir()) == [target]


def test_a_later_call_goes_on_with_the_part_that_a_killed_process_left(tmp_path: Path) -> None:
    store, target = Store(), tmp_path / "m"
    partial = tmp_path / f"m.{DIGEST[7:19]}.part"
    partial.write_bytes(DATA[:1000])
    transport, _ = make(store)
    download(transport, "/w", target, digest=DIGEST)
    assert store.seen[0].headers["Range"] == "bytes=1000-"
    assert target.read_bytes() == DATA


def test_a_whole_part_is_taken_without_its_bytes_again(tmp_path: Path) -> None:
    store = Store()
    (tmp_path / f"m.{DIGEST[7:19]}.part").write_bytes(DATA)
    transport, _ = make(store)
    assert download(transport, "/w", tmp_path / "m", digest=DIGEST) == DIGEST
    assert len(store.seen) == 1


def test_wrong_bytes_are_fetched_once_more_and_then_refused(tmp_path: Path) -> None:
    store = Store(data=DATA[:-1] + b"x")
    transport, _ = make(store)
    with pytest.raises(errors.CorruptDownload, match=DIGEST):
        download(transport, "/w", tmp_path / "m", digest=DIGEST)
    assert len(store.seen) == 2 and list(tmp_path.iterdir()) == []


def test_what_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    store, target = Store(), tmp_path / "m"
    target.write_bytes(DATA)
    transport, _ = make(store)
    download(transport, "/w", target, digest=DIGEST)
    assert store.seen == []
    assert download(transport, "/w", target) == DIGEST
    assert store.seen[0].headers["If-None-Match"] == f'"{DIGEST}"'


def test_a_dead_service_does_not_multiply_the_retries(tmp_path: Path) -> None:
    handler, seen = series(*[httpx.ConnectError("no")] * 3)
    transport, _ = make(handler, retries=2)
    with pytest.raises(errors.TransportError):
        download(transport, "/w", tmp_path / "m", digest=DIGEST)
    assert len(seen) == 3


@pytest.mark.parametrize("stumble", [httpx.Response(403), httpx.Response(500), httpx.ConnectError("refused")])
def test_a_download_that_the_store_does_not_give_is_asked_for_again(
    stumble: httpx.Response | Exception, tmp_path: Path
) -> None:
    """The service names an address in the store; an expired one is replaced; the token stays at home."""

    def sent_on() -> httpx.Response:
        return httpx.Response(307, headers={"Location": "http://store.test/blob?X-Amz-Signature=1", "ETag": '"x"'})

    handler, seen = series(sent_on(), stumble, sent_on(), httpx.Response(200, content=b"weights"))
    transport, _ = make(handler, token="pst_secret")
    digest = "sha256-" + hashlib.sha256(b"weights").hexdigest()
    assert download(transport, "/v1/models/mdl_1/weights", tmp_path / "model", digest=digest) == digest
    assert (tmp_path / "model").read_bytes() == b"weights"
    assert [request.url.host for request in seen] == ["potstill.test", "store.test"] * 2
    assert ["Authorization" in request.headers for request in seen] == [True, False] * 2
