"""The page's session: a cookie in a token's place, which ends with it, and which no other page can use."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.cookies import SimpleCookie
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from service.api.cookies import name_of
from service.operations.access import sessions, tokens
from service.operations.ledger import clock
from service.persistence.tables import SessionRow, TokenRow
from tests.service.conftest import SettingsMaker
from tests.service.world import World, refused

from .test_roles import _allowed, guarded
from .test_tokens import change, rotate

PAGE = {"Sec-Fetch-Site": "same-origin"}


def sign_in(world: World, token: str | None = None, headers: dict[str, str] | None = None, **body: Any) -> str:
    """Return the cookie, as a browser sends it."""
    answer = world.site.request("POST", "/v1/session", token=token or world.operator, json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    return answer.headers["set-cookie"].partition(";")[0]


Sent = dict[str, str]


def ask(world: World, cookie: str, method: str, url: str, headers: Sent = PAGE, **more: Any) -> httpx.Response:
    return world.site.request(method, url, headers={"Cookie": cookie, **headers}, **more)


def held(world: World) -> list[SessionRow]:
    with world.store.read() as session:
        return list(session.scalars(select(SessionRow)))


def test_a_browser_signs_in_does_what_its_token_may_and_signs_out(world: World) -> None:
    assert world.site.request("GET", "/v1/session").status_code == 204
    cookie = sign_in(world)
    shown = ask(world, cookie, "GET", "/v1/session").json()
    own = world.ok("GET", "/v1/token")
    assert (shown["id"], shown["name"], shown["role"]) == (own["id"], own["name"], "operator")
    assert timedelta(days=6.9) < datetime.fromisoformat(shown["expires_at"]) - datetime.now(UTC) <= sessions.LONGEST
    made = ask(world, cookie, "POST", "/v1/federations", json=world.body())
    assert made.status_code == 201, made.text
    assert ask(world, cookie, "GET", f"/v1/federations/{made.json()['id']}").status_code == 200
    gone = ask(world, cookie, "DELETE", "/v1/session")
    assert gone.status_code == 204
    assert "Max-Age=0" in gone.headers["set-cookie"]
    assert refused(ask(world, cookie, "GET", "/v1/federations")) == (401, "unauthorized")
    assert ask(world, cookie, "GET", "/v1/session").status_code == 204
    rows = [(row["action"], row["target"]) for row in world.ok("GET", "/v1/audit")["items"]][:3]
    assert rows == [("session.end", own["id"]), ("federation.create", made.json()["id"]), ("session.begin", own["id"])]


def test_the_database_holds_no_secret_of_a_session(world: World) -> None:
    secret = sign_in(world).partition("=")[2]
    (row,) = held(world)
    assert len(secret) > 43
    assert secret not in str({column.name: getattr(row, column.key) for column in SessionRow.__table__.columns})
    answer = world.site.request("GET", "/v1/federations", token=secret)
    assert refused(answer) == (401, "unauthorized"), "a session's secret is no token"


@pytest.mark.parametrize("end", ["revoked", "replaced", "expired", "idle", "old", "signed out"])
def test_a_session_is_over_when(world: World, end: str) -> None:
    made = world.ok("POST", "/v1/tokens", json={"name": "ann", "role": "operator", "valid_seconds": 3600})
    cookie = sign_in(world, made["token"])
    caller = sessions_caller(world, cookie)
    (row,) = held(world)
    assert row.expires_at <= datetime.now(UTC) + timedelta(hours=1), "no longer than its token"
    past = datetime.now(UTC) - timedelta(seconds=1)
    if end == "revoked":
        world.ok("DELETE", f"/v1/tokens/{made['id']}")
    elif end == "replaced":
        successor = rotate(world, made["token"])["token"]
        assert ask(world, cookie, "GET", "/v1/federations").status_code == 200, "the one before is good until then"
        assert world.site.request("GET", "/v1/token", token=successor).status_code == 200
    elif end == "expired":
        change(world, TokenRow, made["id"], expires_at=past)
        change(world, SessionRow, row.secret_hash, expires_at=past)
    elif end == "idle":
        change(world, SessionRow, row.secret_hash, used_at=past - sessions.IDLE)
    elif end == "old":
        change(world, SessionRow, row.secret_hash, expires_at=past)
    else:
        ask(world, cookie, "DELETE", "/v1/session")
    answer = ask(world, cookie, "GET", "/v1/federations")
    assert (answer.status_code, answer.json()["reason"]) == (401, "session")
    if end in ("revoked", "replaced", "signed out"):
        with world.store.read() as session, pytest.raises(Exception, match="over|meanwhile"):
            sessions.check_still_good(session, caller)  # what an open stream asks


def sessions_caller(world: World, cookie: str) -> Any:
    with world.store.read() as session:
        return sessions.authenticate(session, world.settings.key, cookie.partition("=")[2])


def test_what_is_used_lives_on_and_what_is_over_is_swept(world: World) -> None:
    cookie = sign_in(world)
    (row,) = held(world)
    nearly = datetime.now(UTC) - sessions.IDLE + timedelta(minutes=1)
    change(world, SessionRow, row.secret_hash, used_at=nearly)
    assert ask(world, cookie, "GET", "/v1/federations").status_code == 200
    assert held(world)[0].used_at > nearly + timedelta(hours=1)
    sign_in(world)
    change(world, SessionRow, row.secret_hash, used_at=clock.now() - sessions.IDLE - timedelta(seconds=1))
    with world.store.write() as session:
        sessions.forget(session)
    assert [each.secret_hash == row.secret_hash for each in held(world)] == [False]


def test_a_token_has_a_bounded_number_and_the_least_used_goes(world: World) -> None:
    first, second = sign_in(world), sign_in(world)
    rows = held(world)
    assert len(rows) == 2
    for _ in range(sessions.MOST - 2):
        sign_in(world)
    with world.store.write() as session:
        hashed = sessions_caller(world, first).session
        session.get_one(SessionRow, hashed).used_at = clock.now()
    sign_in(world)
    assert len(held(world)) == sessions.MOST
    assert ask(world, first, "GET", "/v1/federations").status_code == 200
    assert ask(world, second, "GET", "/v1/federations").status_code == 401


def test_signing_in_again_ends_the_session_that_was_there(world: World) -> None:
    before = sign_in(world)
    after = sign_in(world, headers={"Cookie": before, **PAGE})
    assert before != after
    assert len(held(world)) == 1
    assert ask(world, after, "GET", "/v1/federations").status_code == 200


def test_a_session_makes_no_token_and_no_other_session(world: World) -> None:
    cookie = sign_in(world)
    for method, url, body in (
        ("POST", "/v1/tokens", {"name": "x", "role": "operator"}),
        ("POST", "/v1/token/rotate", {}),
        ("POST", "/v1/session", {}),
    ):
        answer = ask(world, cookie, method, url, json=body)
        assert refused(answer) == (403, "forbidden"), url
        assert "session" in answer.json()["detail"]


def test_what_is_open_to_all_shows_more_to_who_is_signed_in(world: World) -> None:
    cookie = sign_in(world)
    assert ask(world, cookie, "GET", "/v1/architectures").status_code == 200
    assert ask(world, "potstill-00000000=x", "GET", "/v1/architectures").status_code == 200, "no cookie of ours"
    assert ask(world, f"{name_of(world.settings)}=x", "GET", "/v1/architectures").status_code == 401


def test_a_session_reads_what_devices_may_read_too(world: World) -> None:
    fed = world.running(["a", "b"])
    [model] = world.ok("GET", f"/v1/models?federation={fed.id}")["items"]
    cookie = sign_in(world)
    for path in (f"/v1/models/{model['id']}", f"/v1/models/{model['id']}/weights"):
        assert ask(world, cookie, "GET", path).status_code == 200


def test_every_route_takes_a_session_as_it_takes_its_token(shared: World) -> None:
    viewer = shared.ok("POST", "/v1/tokens", json={"name": shared.fresh_name(), "role": "viewer"})["token"]
    itself = {("POST", "/v1/tokens"), ("POST", "/v1/token/rotate"), ("POST", "/v1/session")}
    for role, token in (("operator", shared.operator), ("viewer", viewer)):
        cookie = sign_in(shared, token)
        for method, path in guarded(shared.app):
            body = b"{}" if method in ("POST", "PUT") else b""
            headers = PAGE | {"Accept": "application/json"} | ({"Content-Type": "application/json"} if body else {})
            answer = ask(shared, cookie, method, path.replace("{}", "x"), headers, body=body)
            good = role in _allowed(method, path) and (method, path) not in itself
            assert (answer.status_code != 403) == good, (role, method, path, answer.text)
            assert answer.status_code != 401, (role, method, path)


def test_a_session_of_a_viewer_changes_nothing(world: World) -> None:
    viewer = world.ok("POST", "/v1/tokens", json={"name": "v"})["token"]
    cookie = sign_in(world, viewer)
    assert ask(world, cookie, "GET", "/v1/federations").status_code == 200
    assert refused(ask(world, cookie, "POST", "/v1/federations", json=world.body())) == (403, "forbidden")


@pytest.mark.parametrize("role", ["device", "join"])
def test_devices_sign_in_nowhere(world: World, role: str) -> None:
    fed = world.create()
    token = fed.join_token if role == "join" else world.enrol(fed, "a").token
    assert refused(world.site.request("POST", "/v1/session", token=token, json={})) == (403, "forbidden")


# ------------------------------------------------------------------------------------------------ other pages' requests
@pytest.mark.parametrize("site", ["cross-site", "same-site", "none", "", "SAME-ORIGIN"])
def test_another_page_changes_nothing_by_the_cookie(world: World, site: str) -> None:
    cookie, before = sign_in(world), len(world.ok("GET", "/v1/federations")["items"])
    for method, url in (("POST", "/v1/federations"), ("DELETE", "/v1/session"), ("DELETE", "/v1/datasets/x")):
        body = world.body() if method == "POST" else {}
        answer = ask(world, cookie, method, url, {"Sec-Fetch-Site": site, "Potstill-Page": "1"}, json=body)
        assert refused(answer) == (403, "forbidden")
    assert len(world.ok("GET", "/v1/federations")["items"]) == before
    assert len(held(world)) == 1


def test_a_browser_that_says_nothing_needs_the_header_that_no_form_sends(world: World) -> None:
    cookie = sign_in(world)
    assert refused(ask(world, cookie, "POST", "/v1/federations", {}, json=world.body())) == (403, "forbidden")
    made = ask(world, cookie, "POST", "/v1/federations", {"Potstill-Page": "1"}, json=world.body())
    assert made.status_code == 201


@pytest.mark.parametrize(
    ("site", "status"), [("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403)]
)
def test_another_page_reads_nothing_by_the_cookie(world: World, site: str, status: int) -> None:
    assert ask(world, sign_in(world), "GET", "/v1/federations", {"Sec-Fetch-Site": site}).status_code == status


def test_no_other_origin_is_told_that_it_may_send_the_header(world: World) -> None:
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Headers": "potstill-page"}
    answer = world.site.request(
        "OPTIONS", "/v1/federations", headers={**asked, "Access-Control-Request-Method": "POST"}
    )
    assert not [name for name in answer.headers if name.startswith("access-control")]


# ----------------------------------------------------------------------------------------------------------- the cookie
@pytest.fixture
def proxied(make_settings: SettingsMaker, world_of: type[World]) -> Iterator[World]:
    made = world_of(make_settings(trusted_proxies="127.0.0.1"))
    yield made
    made.close()


def parts(answer: httpx.Response) -> tuple[str, dict[str, str]]:
    cookie = SimpleCookie(answer.headers["set-cookie"])
    ((name, morsel),) = cookie.items()
    return name, {key: str(value) for key, value in morsel.items() if value}


@pytest.mark.parametrize(
    ("origin", "at_root", "prefix", "more"),
    [
        ("http://site", True, "", {}),
        ("https://site", False, "__Secure-", {"secure": "True"}),
        ("https://site", True, "__Host-", {"secure": "True", "path": "/"}),
    ],
)
def test_the_cookie_is_as_well_guarded_as_the_connection_allows(
    world: World, origin: str, at_root: bool, prefix: str, more: dict[str, str]
) -> None:
    answer = world.op("POST", "/v1/session", json={"at_root": at_root}, headers={"Origin": origin})
    guards = {"httponly": "True", "samesite": "Strict"}  # no path: `/v1`, below whatever a proxy put before it
    assert parts(answer) == (prefix + name_of(world.settings), guards | more)
    cookie = answer.headers["set-cookie"].partition(";")[0]
    assert ask(world, cookie, "GET", "/v1/federations").status_code == 200
    gone = ask(world, cookie, "DELETE", "/v1/session")
    assert parts(gone) == (prefix + name_of(world.settings), guards | more | {"max-age": "0"})


def test_over_tls_a_cookie_that_anybody_could_have_set_is_not_read(proxied: World) -> None:
    cookie = sign_in(proxied)
    assert ask(proxied, cookie, "GET", "/v1/federations").status_code == 200
    proxied.site.app = Tls(proxied.site.app)
    assert ask(proxied, cookie, "GET", "/v1/federations").status_code == 401
    assert ask(proxied, f"__Secure-{cookie}", "GET", "/v1/federations").status_code == 200
    answer = proxied.op("POST", "/v1/session", json={"at_root": True})
    assert parts(answer)[0].startswith("__Host-")


class Tls:
    """A server that speaks TLS itself."""

    def __init__(self, app: Any):
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app({**scope, "scheme": "https"}, receive, send)


def test_two_services_on_one_host_do_not_sign_each_other_out(
    world: World, make_settings: SettingsMaker, world_of: type[World]
) -> None:
    other = world_of(make_settings(secret="the secret of another service"))
    both = f"{sign_in(world)}; {sign_in(other)}"
    assert [ask(each, both, "GET", "/v1/federations").status_code for each in (world, other)] == [200, 200]
    other.close()


def test_cookies_that_are_guessed_count_as_false_tokens(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.services.rates, "failures", type(world.services.rates.failures)(3, namespace="few"))
    good, name = sign_in(world), name_of(world.settings)
    answers = [ask(world, f"{name}=pst_web_{n}", "GET", "/v1/federations").status_code for n in range(5)]
    assert answers == [401, 401, 401, 429, 429]
    assert ask(world, good, "GET", "/v1/federations").status_code == 200
    assert len(held(world)) == 1


def test_a_sign_in_with_a_token_that_ended_meanwhile_is_none(world: World) -> None:
    made = world.ok("POST", "/v1/tokens", json={"name": "ann"})
    with world.store.read() as session:
        caller = tokens.authenticate(session, world.settings.keys, made["token"])
    world.ok("DELETE", f"/v1/tokens/{made['id']}")
    with pytest.raises(Exception, match="meanwhile"), world.store.write() as session:
        sessions.begin(session, world.settings.key, caller)
    with world.store.read() as session:
        assert session.scalar(select(func.count()).select_from(SessionRow)) == 0


def test_the_document_tells_of_the_cookie_where_people_may_call(shared: World) -> None:
    document = shared.app.openapi()
    assert document["components"]["securitySchemes"]["cookieAuth"]["name"] == name_of(shared.settings)

    def schemes(path: str, method: str) -> list[str]:
        return [name for each in document["paths"][path][method].get("security", []) for name in each]

    assert schemes("/v1/federations", "post") == ["HTTPBearer", "cookieAuth"]
    assert schemes("/v1/tokens", "post") == ["HTTPBearer"]
    assert schemes("/v1/session", "post") == ["HTTPBearer"]
    assert schemes("/v1/session", "get") == ["cookieAuth"]
    assert schemes("/v1/assignment", "get") == ["HTTPBearer"]
    assert schemes("/v1/recipes", "get") == []
