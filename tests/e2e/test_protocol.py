"""The socket itself: heads that never end, and a body right behind a head."""

import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tools.deployment import Deployment, running, wait_for


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Deployment]:
    made = Deployment(tmp_path / "home")
    with running(made, worker=False):
        yield made


def test_a_head_without_end_is_refused_and_others_are_served(api: Deployment) -> None:
    host, port = urlsplit(api.url).hostname, urlsplit(api.url).port
    with socket.create_connection((host, port), timeout=20) as link:
        link.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: ")
        answer, sent = b"", 0
        try:
            while sent < 8_000_000:
                link.sendall(b"a" * 16_384)
                sent += 16_384
        except OSError:
            pass  # the service hung up: it must have answered before
        try:
            answer = link.recv(4096)
        except ConnectionError:
            assert sent < 4_000_000
        assert sent < 8_000_000, "the service read a head of 8 MB"
        assert not answer or answer.startswith(b"HTTP/1.1 431")
    assert httpx.get(f"{api.url}/healthz", timeout=5).status_code == 200


def test_requests_on_one_connection_after_a_large_body(api: Deployment) -> None:
    """The count of a head starts anew with every request."""
    with httpx.Client(base_url=api.url, headers={"Authorization": f"Bearer {api.token}"}) as client:
        for _ in range(3):
            refused = client.post("/v1/datasets?name=x", content=b"{}" * 100_000)
            assert refused.status_code == 422
            assert client.get("/healthz", headers={"X-Long": "a" * 30_000}).status_code == 200


def test_a_viewer_that_hangs_up_gives_its_stream_back(tmp_path: Path) -> None:
    made = Deployment(tmp_path / "home", constants={"service.app.EVENT_STREAMS_PER_TOKEN": 2})
    bearer = {"Authorization": f"Bearer {made.token}"}
    head = f"GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: {bearer['Authorization']}\r\n\r\n".encode()

    def nobody_looks() -> bool:
        return "potstill_event_streams 0.0" in httpx.get(f"{made.url}/metrics", headers=bearer).text

    try:
        made.start_api()
        place = (urlsplit(made.url).hostname, urlsplit(made.url).port)
        for _ in range(5):
            links = [socket.create_connection(place, timeout=20) for _ in range(2)]
            for link in links:
                link.sendall(head)
            assert [link.recv(4096)[:12] for link in links] == [b"HTTP/1.1 200"] * 2
            refused = httpx.get(f"{made.url}/v1/events", headers=bearer)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
            for link in links:
                link.close()
            wait_for(nobody_looks, 20)
    finally:
        made.close()
