"""Who is at the other end, and what is not taken from whom."""

from typing import Any

import httpx
import pytest
from starlette.datastructures import Headers

from service.api.peers import resolve
from service.config import Settings
from tests.service.conftest import SettingsMaker
from tests.service.world import World

TRUSTED = Settings(trusted_proxies="10.0.0.0/8, 192.0.2.7,fd00::/8").proxies


def peer(client: str, scheme: str = "http", **headers: str) -> Any:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return resolve({"client": (client, 1), "scheme": scheme}, Headers(raw=raw), TRUSTED)


@pytest.mark.parametrize(
    ("client", "headers", "address", "is_private"),
    [
        ("203.0.113.5", {}, "203.0.113.5", False),
        ("127.0.0.1", {}, "127.0.0.1", True),
        ("::1", {}, "::1", True),
        ("", {}, "", True),  # a socket in the file system
        ("::ffff:10.1.1.1", {"x_forwarded_for": "203.0.113.5", "x_forwarded_proto": "https"}, "203.0.113.5", True),
        # a stranger's headers say nothing, a local one's neither
        ("203.0.113.5", {"x_forwarded_for": "127.0.0.1", "x_forwarded_proto": "https"}, "203.0.113.5", False),
        ("127.0.0.1", {"x_forwarded_for": "203.0.113.9"}, "127.0.0.1", True),
        # a trusted proxy's do; what the client wrote before it does not
        ("10.0.0.1", {"x_forwarded_for": "203.0.113.5", "x_forwarded_proto": "https"}, "203.0.113.5", True),
        ("10.0.0.1", {"x_forwarded_for": "127.0.0.1, 203.0.113.5", "x_forwarded_proto": "https"}, "203.0.113.5", True),
        ("10.0.0.1", {"x_forwarded_for": "203.0.113.5, 10.0.0.2", "x_forwarded_proto": "https"}, "203.0.113.5", True),
        ("10.0.0.1", {"x_forwarded_for": "203.0.113.5", "x_forwarded_proto": "http"}, "203.0.113.5", False),
        ("10.0.0.1", {"x_forwarded_for": "203.0.113.5", "x_forwarded_proto": "https, http"}, "203.0.113.5", False),
        ("10.0.0.1", {"x_forwarded_for": "203.0.113.5"}, "203.0.113.5", True),  # it was declared to do TLS
        ("10.0.0.1", {"x_forwarded_for": "<script>, 203.0.113.5"}, "203.0.113.5", True),
        ("10.0.0.1", {"x_forwarded_for": "203.0.113.5, nonsense"}, "10.0.0.1", True),
        ("10.0.0.1", {"x_forwarded_for": "203.0.113.5:8080"}, "203.0.113.5", True),
        ("10.0.0.1", {"x_forwarded_for": '"[2001:db8::1]:80"'}, "2001:db8::1", True),
        ("10.0.0.1", {}, "10.0.0.1", True),
        ("192.0.2.7", {"x_forwarded_for": "127.0.0.1"}, "127.0.0.1", True),
        ("192.0.2.8", {"x_forwarded_for": "127.0.0.1"}, "192.0.2.8", False),
    ],
)
def test_a_clients_address(client: str, headers: dict[str, str], address: str, is_private: bool) -> None:
    found = peer(client, **headers)
    assert (found.address, found.is_private) == (address, is_private)


def test_tls_here_is_private_whoever_it_is() -> None:
    found = peer("203.0.113.5", "https", x_forwarded_proto="http")
    assert (found.is_tls, found.is_private) == (True, True)


@pytest.mark.parametrize("text", ["10.0.0.0/33", "proxy.local", "10.0.0.1;10.0.0.2"])
def test_a_proxy_that_is_no_address_ends_the_start(text: str) -> None:
    with pytest.raises(ValueError, match="POTSTILL_TRUSTED_PROXIES"):
        Settings(trusted_proxies=text)


def test_a_certificate_without_its_key_ends_the_start() -> None:
    with pytest.raises(ValueError, match="POTSTILL_TLS_KEY"):
        Settings(tls_cert="cert.pem")


class From:
    """Lets requests come from an address."""

    def __init__(self, world: World, client: str, scheme: str = "http"):
        self.world, self.client, self.scheme = world, client, scheme

    def get(self, url: str, **headers: str) -> httpx.Response:
        site, app = self.world.site, self.world.app

        async def moved(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "client": (self.client, 1), "scheme": self.scheme}, receive, send)

        site.app = moved
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return site.request("GET", url, token=self.world.operator, headers=named)
        finally:
            site.app = app


def test_plain_http_from_another_machine_is_refused_before_the_token_is_looked_at(world: World) -> None:
    refused = From(world, "203.0.113.5").get("/v1/federations")
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:potstill:problem:insecure-transport")
    assert "POTSTILL_TRUSTED_PROXIES" in refused.json()["detail"]
    spoofed = From(world, "203.0.113.5").get(
        "/v1/federations", x_forwarded_for="127.0.0.1", x_forwarded_proto="https", forwarded="for=127.0.0.1;proto=https"
    )
    assert spoofed.status_code == 403
    assert From(world, "203.0.113.5").get("/healthz").status_code == 200
    assert From(world, "203.0.113.5", "https").get("/v1/federations").status_code == 200
    assert From(world, "127.0.0.1").get("/v1/federations").status_code == 200


def test_behind_a_trusted_proxy_the_log_names_the_client(make_settings: SettingsMaker, world_of: type[World]) -> None:
    world = world_of(make_settings(trusted_proxies="10.0.0.0/8"))
    far = {"x_forwarded_for": "198.51.100.1, 203.0.113.5", "x_forwarded_proto": "https"}
    assert From(world, "10.0.0.1").get("/v1/federations", **far).status_code == 200
    assert "strict-transport-security" in From(world, "10.0.0.1").get("/healthz", **far).headers
    assert "strict-transport-security" not in From(world, "127.0.0.1").get("/healthz", **far).headers
    assert From(world, "10.0.0.1").get("/v1/federations", x_forwarded_proto="http").status_code == 403
    app = world.app

    async def moved(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "client": ("10.0.0.1", 1)}, receive, send)

    world.site.app = moved
    headers = {name.replace("_", "-"): value for name, value in far.items()}
    world.ok("POST", "/v1/tokens", json={"name": "x"}, headers=headers)
    world.site.app = app
    assert world.ok("GET", "/v1/audit")["items"][0]["address"] == "203.0.113.5"
    world.close()


def test_it_can_be_allowed(make_settings: SettingsMaker, world_of: type[World]) -> None:
    world = world_of(make_settings(insecure_http=True))
    assert From(world, "203.0.113.5").get("/v1/federations").status_code == 200
    world.close()


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/healthz", "/v1/recipes", "/v1/federations", "/nowhere"])
def test_every_answer_carries_the_security_headers(shared: World, path: str) -> None:
    answer = shared.op("GET", path, headers={"Origin": "https://evil.example"})
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "set-cookie" not in answer.headers
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert ("no-store" in answer.headers.get("cache-control", "")) == path.startswith("/v1/")


def test_no_other_origin_is_let_in(shared: World) -> None:
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    answer = shared.site.request("OPTIONS", "/v1/federations", headers=asked)
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.startswith("access-control-")]
