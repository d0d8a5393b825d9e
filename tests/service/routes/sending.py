"""A device that uploads by the tus protocol, by hand."""

import base64
import hashlib
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import httpx

from contract.wire.problems import TYPE_PREFIX
from service.operations.store import uploads
from service.persistence.tables import UploadRow
from tests.service.world import World

TUS = {"Tus-Resumable": "1.0.0"}
PIECE = {**TUS, "Content-Type": "application/offset+octet-stream"}
PATCHED = "service.operations.store.uploads.now"


def kind(response: httpx.Response) -> str:
    return str(response.json()["type"]).removeprefix(TYPE_PREFIX)


def checksum(name: str, piece: bytes) -> str:
    return f"{name} {base64.b64encode(hashlib.new(name, piece).digest()).decode()}"


class Sender:
    """A device that uploads by hand."""

    def __init__(self, world: World, token: str):
        self.world, self.token = world, token

    def ask(self, method: str, url: str, body: Any = b"", headers: Any = None, **more: Any) -> httpx.Response:
        return self.world.site.request(method, url, token=self.token, body=body, headers=TUS | (headers or {}), **more)

    def create(self, length: int, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("POST", "/v1/uploads", headers={"Upload-Length": str(length), **named})

    def opened(self, length: int) -> str:
        response = self.create(length)
        assert response.status_code == 201, response.text
        return response.headers["location"]

    def patch(self, url: str, offset: int, body: Any, headers: Any = None, **more: Any) -> httpx.Response:
        return self.ask("PATCH", url, body, PIECE | {"Upload-Offset": str(offset)} | (headers or {}), **more)

    def begin(self, url: str, offset: int, body: Any, **more: Any) -> "Future[httpx.Response]":
        headers = PIECE | {"Upload-Offset": str(offset)}
        return self.world.site.begin("PATCH", url, token=self.token, body=body, headers=headers, **more)

    def offset(self, url: str) -> int:
        response = self.ask("HEAD", url)
        assert response.status_code == 200
        return int(response.headers["upload-offset"])

    def whole(self, body: bytes) -> str:
        """Upload a body and return the upload's id."""
        url = self.opened(len(body))
        assert self.patch(url, 0, body).status_code == 204
        return url.rpartition("/")[2]


def held(world: World, url: str) -> bool:
    with world.store.read() as session:
        return uploads.is_held(session.get_one(UploadRow, url.rpartition("/")[2]))


def until(what: Callable[[], Any]) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def world_owner(world: World, url: str) -> str:
    with world.store.read() as session:
        return session.get_one(UploadRow, url.rpartition("/")[2]).owner
