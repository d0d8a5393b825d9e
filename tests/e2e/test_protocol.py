"""The socket itself: heads that never end, and a body right behind a head."""

import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from .conftest import Deployment


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Deployment]:
    made = Deployment(tmp_path / "home")
    made.start_api()
    try:
        yield made
    finally:
        made.close()


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
