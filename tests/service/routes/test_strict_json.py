"""JSON is read as it is written: of every field of every body, a value of another type is refused by the field's name.

The fields come from the OpenAPI document, so that one that is added later is tried, too.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.service.world import Fed, World

from .schemas import bodies, places, token_for

JSON = {"Content-Type": "application/json"}
WRONG: dict[str, list[Any]] = {
    "integer": [True, "1", 1.5, 1.0, float("nan")],
    "number": [True, "1", float("inf")],
    "boolean": [1, "true"],
    "string": [1, True],
    "array": [1, "x"],
    "object": [1, "x"],
}
FITS: dict[str, Callable[[Any], bool]] = {
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in (int, float) and abs(value) < float("inf"),
    "boolean": lambda value: type(value) is bool,
    "string": lambda value: type(value) is str,
    "array": lambda value: type(value) is list,
    "object": lambda value: type(value) is dict,
}


@pytest.fixture(scope="module")
def fed(shared: World) -> Fed:
    return shared.collecting(["a"])


def test_every_field_of_every_body_is_read_strictly(shared: World, fed: Fed) -> None:
    document = shared.site.request("GET", "/openapi.json").json()
    tried: set[str] = set()
    for route in bodies(document):
        token = token_for(shared, fed, route.operation)
        for place in places(document, route.schema):
            tried.add(place.field)
            for value in [value for kind in place.types for value in WRONG[kind]]:
                if any(FITS[kind](value) for kind in place.types):
                    continue
                body = json.dumps(place.wrap(value)).encode()
                response = shared.site.request(route.method, route.path, token=token, body=body, headers=JSON)
                assert response.status_code == 422, (route.operation, place.field, value, response.text)
                named = [error["field"] for error in response.json()["errors"]]
                assert place.field in named, (route.operation, place.field, value, response.text)
    wanted = {"num_samples", "seed", "rounds.total", "local.epochs", "step", "recipe.distil.schedule.epochs"}
    assert wanted <= tried and len(tried) > 150, len(tried)


@pytest.mark.parametrize(
    "query",
    ["audit?limit=5.0", "audit?limit=1_0", "audit?limit=%2B5", "federations?limit=1e1", "federations?limit=true",
     "events?format=json&after=1.0", "events?format=json&limit=%205"],
)  # fmt: skip
def test_a_number_of_a_query_is_digits(shared: World, query: str) -> None:
    response = shared.op("GET", f"/v1/{query}")
    name = query.rpartition("&")[2].rpartition("?")[2].partition("=")[0]
    assert (response.status_code, response.json()["field"]) == (422, f"query.{name}")
    assert shared.op("GET", "/v1/audit?limit=05").is_success


@pytest.mark.parametrize("wait", ["nan", "inf", "1e1", "%201", "1_0"])
def test_a_wait_is_digits(shared: World, fed: Fed, wait: str) -> None:
    response = shared.site.request("GET", f"/v1/assignment?wait={wait}", token=fed.devices["a"].token)
    assert (response.status_code, response.json()["field"]) == (422, "query.wait")


@pytest.mark.parametrize(
    ("method", "url", "body"),
    [
        ("POST", "/v1/tokens", b'{"name": "a", "role": "viewer", "role": "operator"}'),
        ("PATCH", "/v1/federations/{fed}/plan", b'{"local": {"epochs": 1, "role": 2, "role": 3}}'),
        ("POST", "/v1/federations/{fed}/clients", b'{"name": "a", "capabilities": {"role": 1, "role": 1}}'),
        ("POST", "/v1/tokens", b'{"name": "' + b"x" * 70_000 + b'", "role": 1, "role": 2}'),
    ],
)  # fmt: skip
def test_a_key_stands_once(shared: World, fed: Fed, method: str, url: str, body: bytes) -> None:
    tokens = len(shared.ok("GET", "/v1/tokens?limit=500")["items"])
    response = shared.op(method, url.format(fed=fed.id), body=body, headers=JSON)
    answer = response.json()
    assert (response.status_code, answer["field"], answer["errors"][0]["field"]) == (422, "role", "role")
    assert answer["detail"] == "the key 'role' is there twice; keep one of them"
    assert len(shared.ok("GET", "/v1/tokens?limit=500")["items"]) == tokens
