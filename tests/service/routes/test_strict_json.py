"""JSON is read as it is written: of every field of every body, a value of another type is refused by the field's name.

The fields come from the OpenAPI document, so that one that is added later is tried, too.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.service.world import Fed, World

from .schemas import bodies, resolved

JSON = {"Content-Type": "application/json"}
Wrap = Callable[[Any], Any]
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


class Place(NamedTuple):
    field: str
    types: tuple[str, ...]
    wrap: Wrap


def _leaf(schema: dict[str, Any]) -> str | None:
    if "const" in schema or "enum" in schema:
        value = schema["const"] if "const" in schema else schema["enum"][0]
        return {str: "string", int: "integer", bool: "boolean"}[type(value)]
    found: str | None = schema.get("type")
    return found


def _places(document: dict[str, Any], schema: dict[str, Any], field: str, wrap: Wrap) -> Iterator[Place]:
    options = [resolved(document, each) for each in schema.get("anyOf", schema.get("oneOf", [schema]))]
    types = tuple(sorted({found for each in options if (found := _leaf(each)) not in (None, "null")}))
    if types and field:
        yield Place(field, types, wrap)
    for each in options:
        said = each.get("properties", {})
        kind = said.get("kind", {}).get("const")
        fixed = {} if kind is None else {"kind": kind}
        for name, inner in said.items():
            if name == "kind" and kind is not None and len(options) > 1:
                continue  # it tells which of the choices is meant; see test_contracts' tags

            def place(value: Any, name: str = name, fixed: dict[str, Any] = fixed) -> Any:
                return wrap(fixed | {name: value})

            yield from _places(document, resolved(document, inner), f"{field}.{name}".lstrip("."), place)
        if isinstance(inner := each.get("items"), dict):
            yield from _places(document, resolved(document, inner), f"{field}.0", lambda value: wrap([value]))
        if isinstance(inner := each.get("additionalProperties"), dict):
            yield from _places(document, resolved(document, inner), f"{field}.key", lambda value: wrap({"key": value}))


@pytest.fixture(scope="module")
def fed(shared: World) -> Fed:
    return shared.collecting(["a"])


def test_every_field_of_every_body_is_read_strictly(shared: World, fed: Fed) -> None:
    document = shared.site.request("GET", "/openapi.json").json()
    tokens = {
        "enrol_client": fed.join_token,
        "put_declaration": fed.devices["a"].token,
        "post_heartbeat": fed.devices["a"].token,
        "staging": fed.devices["a"].token,
        "secure": fed.devices["a"].token,
    }
    tried: set[str] = set()
    for route in bodies(document):
        token = next((each for name, each in tokens.items() if name in route.operation), shared.operator)
        for place in _places(document, route.schema, "", lambda value: value):
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
