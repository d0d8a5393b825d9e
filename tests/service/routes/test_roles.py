"""Who may call what: over the app's own list of routes, so that a new route is covered the day it is added."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute

from contract.wire.problems import MEDIA_TYPE, TYPE_PREFIX
from tests.service.world import World

PUBLIC = {("GET", "/v1/recipes"), ("GET", "/v1/architectures"), ("OPTIONS", "/v1/uploads")}
PUBLIC |= {("GET", "/v1/session"), ("DELETE", "/v1/session")}  # they say who is signed in by cookie: nobody
DEVICE = {
    ("GET", "/v1/assignment"),
    ("PUT", "/v1/declaration"),
    ("PUT", "/v1/rounds/{}/update"),
    ("PUT", "/v1/rounds/{}/secure/keys"),
    ("PUT", "/v1/rounds/{}/secure/shares"),
    ("PUT", "/v1/rounds/{}/secure/confirmation"),
    ("PUT", "/v1/rounds/{}/secure/revelation"),
    ("POST", "/v1/staging"),
    ("POST", "/v1/rounds/{}/heartbeat"),
    ("PUT", "/v1/federations/{}/discriminator"),
    ("PUT", "/v1/federations/{}/gan"),
}
UPLOADERS = {("POST", "/v1/uploads")} | {(method, "/v1/uploads/{}") for method in ("HEAD", "PATCH", "DELETE")}
JOIN = {("POST", "/v1/federations/{}/clients")}
CANDIDATES = {("GET", "/v1/federations/{}/card")}
READERS = {("GET", "/v1/models/{}"), ("GET", "/v1/models/{}/weights"), ("HEAD", "/v1/models/{}/weights")}
READERS |= {("GET", f"/v1/networks/{{}}{path}") for path in ("", "/document", "/weights")}
OPERATOR_ONLY_READS = {("GET", "/v1/tokens"), ("GET", "/v1/audit"), ("GET", "/v1/rounds/{}/bundle")}
OPERATOR_ONLY_READS |= {("GET", "/v1/rounds/{}/ensemble/bundle")}
EVERYBODY = {("GET", "/v1/token")}
PEOPLE = {("POST", "/v1/session")}
HOLDERS = {("POST", "/v1/token/rotate")}


def _routes(app: Any) -> Iterator[tuple[str, str]]:
    found: list[APIRoute] = []

    def walk(routes: Any) -> None:
        for route in routes:
            if isinstance(route, APIRoute):
                found.append(route)
            else:
                original = getattr(route, "original_router", None)  # newer FastAPI keeps included routers whole
                walk(original.routes if original is not None else [])

    walk(app.routes)
    for route in found:
        path = re.sub(r"{[^}]+}", "{}", route.path)
        for method in sorted(route.methods or ()):
            yield method, path


def _allowed(method: str, path: str) -> set[str]:
    key = (method, path)
    if key in DEVICE:
        return {"device"}
    if key in UPLOADERS:
        return {"device", "operator"}
    if key in JOIN:
        return {"join"}
    if key in CANDIDATES:
        return {"join", "device"}
    if key in EVERYBODY:
        return {"operator", "viewer", "device", "join"}
    if key in PEOPLE:
        return {"operator", "viewer"}
    if key in READERS | HOLDERS:
        return {"operator", "viewer", "device"}
    if method in ("GET", "HEAD") and key not in OPERATOR_ONLY_READS:
        return {"operator", "viewer"}
    return {"operator"}


@pytest.fixture(scope="module")
def tokens(shared: World) -> dict[str, str]:
    fed = shared.create()
    device = shared.enrol(fed, "d")
    viewer = shared.ok("POST", "/v1/tokens", json={"name": "v", "role": "viewer"})
    return {"operator": shared.operator, "viewer": viewer["token"], "device": device.token, "join": fed.join_token}


def guarded(app: Any) -> list[tuple[str, str]]:
    return [(m, p) for m, p in _routes(app) if p.startswith("/v1") and (m, p) not in PUBLIC]


def test_the_list_of_routes_is_the_whole_api(shared: World) -> None:
    routes = set(_routes(shared.app))
    documented = {
        (method.upper(), re.sub(r"{[^}]+}", "{}", path))
        for path, operations in shared.app.openapi()["paths"].items()
        for method in operations
    }
    assert documented <= routes
    assert routes >= DEVICE | JOIN | CANDIDATES | READERS | PUBLIC | OPERATOR_ONLY_READS
    assert len(guarded(shared.app)) >= 30


def test_every_guarded_route_refuses_who_has_no_token_or_a_false_one(shared: World) -> None:
    for method, path in guarded(shared.app):
        for token in (None, "x", "pst_op_" + "A" * 43, "pst_dev_" + "A" * 43, "pst_join_é" + "A" * 40):
            headers = {} if token is None else {"Authorization": f"Bearer {token}".encode()}
            response = shared.site.request(method, path.replace("{}", "x"), headers=headers, body=b"{}")
            assert response.status_code == 401, (method, path, token)
            assert response.headers["content-type"] == MEDIA_TYPE
            assert response.headers["www-authenticate"] == "Bearer"
            assert method == "HEAD" or response.json()["type"] == TYPE_PREFIX + "unauthorized"


@pytest.mark.parametrize("scheme", ["Basic", "Token", ""])
def test_another_scheme_is_no_token(shared: World, scheme: str) -> None:
    headers = {"Authorization": f"{scheme} {shared.operator}"}
    assert shared.site.request("GET", "/v1/federations", headers=headers).status_code == 401


@pytest.mark.parametrize("role", ["operator", "viewer", "device", "join"])
def test_every_guarded_route_refuses_the_roles_that_it_is_not_for(
    shared: World, tokens: dict[str, str], role: str
) -> None:
    for method, path in guarded(shared.app):
        body = b"{}" if method in ("POST", "PUT") else b""
        headers = {"Content-Type": "application/json"} if body else {}
        headers |= {"Accept": "application/json"}  # an event stream would go on for minutes
        response = shared.site.request(method, path.replace("{}", "x"), token=tokens[role], body=body, headers=headers)
        if role in _allowed(method, path):
            assert response.status_code != 401, (method, path, response.text)
            if (method, path) not in DEVICE | JOIN | CANDIDATES:  # those may say that 'x' is another federation
                assert response.status_code != 403, (method, path, response.text)
        else:
            assert response.status_code == 403, (method, path, response.text)
            assert response.headers["content-type"] == MEDIA_TYPE
            assert method == "HEAD" or "token" in response.json()["detail"]


def test_public_routes_need_no_token(shared: World) -> None:
    for method, path in PUBLIC | {("GET", "/healthz"), ("GET", "/docs"), ("GET", "/openapi.json")}:
        assert shared.site.request(method, path).is_success, path


def test_a_device_reads_the_models_of_its_own_federation_only(world: World) -> None:
    fed, other = world.running(["a"]), world.running(["b"])
    mine = world.assignment(fed.devices["a"])["model"]
    theirs = world.assignment(other.devices["b"])["model"]
    token = fed.devices["a"].token
    assert world.site.request("GET", mine["url"], token=token).status_code == 200
    for path in (theirs["url"], f"/v1/models/{theirs['id']}"):
        assert world.site.request("GET", path, token=token).status_code == 403
    imported = world.ok("POST", "/v1/models", body=world.forge.pack(world.forge.arrays()))
    assert world.site.request("GET", imported["url"], token=token).status_code == 403


def test_a_join_token_enrols_in_its_own_federation_only(world: World) -> None:
    fed, other = world.create(), world.create()
    response = world.site.request(
        "POST", f"/v1/federations/{other.id}/clients", token=fed.join_token, json={"name": "x", "num_samples": 1}
    )
    assert response.status_code == 403
