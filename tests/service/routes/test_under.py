"""The service under a path, behind a proxy that takes it off or leaves it in: everything works as at the root."""

from urllib.parse import urljoin, urlsplit

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.under import address
from tests.service.world import World

from .sending import PIECE, TUS

PREFIX = "/potstill"
HOST = "http://host.example"


class Proxy:
    """A proxy at `http://host.example/potstill/`, and uvicorn behind it with a root path or without."""

    def __init__(self, app: ASGIApp, takes_off: bool, root: str):
        self._app, self._takes_off, self._root = app, takes_off, root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        assert path.startswith(PREFIX), f"outside: {path}"
        if self._takes_off:
            path = path.removeprefix(PREFIX)
        headers = [(b"host", b"host.example"), *((name, value) for name, value in scope["headers"] if name != b"host")]
        passed = {**scope, "path": self._root + path, "root_path": self._root, "headers": headers}
        await self._app(passed, receive, send)


@pytest.fixture(params=["taken off", "taken off, root path", "left in, root path"])
def behind(request: pytest.FixtureRequest, world: World) -> World:
    root = PREFIX if "root path" in request.param else ""
    world.site.app = Proxy(world.site.app, "taken off" in request.param, root)
    ask = world.site.begin

    def begin(method: str, url: str, **options: object) -> object:
        return ask(method, url if url.startswith(PREFIX) else PREFIX + url, **options)  # type: ignore[arg-type]

    world.site.begin = begin  # type: ignore[method-assign, assignment]
    return world


def test_a_round_with_updates_and_resumable_ones(behind: World) -> None:
    fed = behind.running(["a", "b"])
    body = behind.update(fed)
    assert behind.push(fed, "a", body).status_code == 201
    token = fed.devices["b"].token
    body = behind.update(fed, seed=2)
    asked = f"{HOST}{PREFIX}/v1/uploads"
    opened = behind.site.request("POST", "/v1/uploads", token=token, headers=TUS | {"Upload-Length": str(len(body))})
    where = urlsplit(urljoin(asked, opened.headers["location"])).path
    assert where.startswith(f"{PREFIX}/v1/uploads/upl_")
    for begin in (0, 100):
        end = 100 if begin == 0 else len(body)
        headers = TUS | PIECE | {"Upload-Offset": str(begin)}
        answer = behind.site.request("PATCH", where, token=token, body=body[begin:end], headers=headers)
        assert answer.status_code == 204, answer.text
    round_ = behind.round(fed)["id"]
    upload = where.rpartition("/")[2]
    assert behind.push(fed, "b", b"", url=f"/v1/rounds/{round_}/update?upload={upload}").status_code == 201


def test_pages_ask_for_what_lies_beside_them(behind: World) -> None:
    for page in ("/", "/docs"):
        found = behind.site.request("GET", page)
        assert found.status_code == 200 and '="/' not in found.text
    assert behind.site.request("GET", "/static/reference/main.js").status_code == 200
    document = behind.site.request("GET", "/openapi.json").json()
    assert urljoin(f"{HOST}{PREFIX}/openapi.json", document["servers"][0]["url"]) == f"{HOST}{PREFIX}/"


def test_problems_and_plain_bodies(behind: World) -> None:
    assert behind.site.request("GET", "/nothing").json()["type"].endswith("not-found")
    answer = behind.site.request(
        "POST", "/v1/federations", token=behind.operator, body=b"x", headers={"Content-Type": "text/plain"}
    )
    assert answer.json()["type"].endswith("unsupported-media-type")


def test_the_bare_path_leads_to_the_page(world: World) -> None:
    world.site.app = Proxy(world.site.app, takes_off=False, root=PREFIX)
    answer = world.site.request("GET", PREFIX)
    assert (answer.status_code, urljoin(HOST + PREFIX, answer.headers["location"])) == (307, f"{HOST}{PREFIX}/")


@pytest.mark.parametrize(
    ("host", "more", "direct"),
    [
        ("127.0.0.1:8080", {}, True),
        ("localhost:8080", {}, True),
        ("[::1]:8080", {}, True),
        ("127.0.0.1:8498", {}, False),
        ("127.0.0.1", {}, False),
        ("host.example", {}, False),
        ("host.example:8080", {}, False),
        ("127.0.0.1:8080", {"X-Forwarded-For": "192.0.2.1"}, False),
        ("127.0.0.1:8080", {"Via": "1.1 squid"}, False),
        ("127.0.0.1:x", {}, False),
        ("", {}, False),
    ],
)
def test_who_asks_directly_gets_a_path_and_others_a_relative_address(
    host: str, more: dict[str, str], direct: bool
) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in ({"Host": host} | more).items()]
    scope = {"type": "http", "headers": headers, "server": ("127.0.0.1", 8080), "http_version": "1.1", "scheme": "http"}
    assert address(scope, "uploads/upl_1") == ("/v1/uploads/upl_1" if direct else "../v1/uploads/upl_1")
    assert address(scope | {"http_version": "1.0"}, "uploads/upl_1").startswith("../")
