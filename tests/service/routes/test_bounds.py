"""Whatever a request carries has a bound, and is refused beyond it by its field's name; nothing in it steers a reader.

The fields come from the OpenAPI document, so that one that is added later is tried, too.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from contract import bounds
from tests.service.world import Fed, World

from .schemas import Place, Sent, bodies, operations, places, resolved, token_for

JSON = {"Content-Type": "application/json"}
_UPLOAD = {"Upload-Length": "5", "Tus-Resumable": "1.0.0"}
MARKED = ["a\u202eb", "a\u200bb", "a\x1b[2J", "a\nb", "\u3164"]


@pytest.fixture(scope="module")
def fed(shared: World) -> Fed:
    return shared.collecting(["a"])


@pytest.fixture(scope="module")
def document(shared: World) -> dict[str, Any]:
    found: dict[str, Any] = shared.site.request("GET", "/openapi.json").json()
    return found


def _sent(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the schemas of all that a request may carry: parameters and bodies."""
    for path, method, operation in operations(document):
        for each in operation.get("parameters", ()):
            yield f"{method} {path} {each['in']} {each['name']}", each["schema"]
        for media, content in operation.get("requestBody", {}).get("content", {}).items():
            yield f"{method} {path} {media}", content["schema"]


def _unbounded(
    document: dict[str, Any], schema: dict[str, Any], where: str, seen: frozenset[str] = frozenset()
) -> Iterator[str]:
    name = schema.get("$ref", "").rpartition("/")[2]
    if name in seen:
        return
    seen, where, schema = seen | {name} - {""}, name or where, resolved(document, schema)
    if {"enum", "const"} & schema.keys():
        return
    parts = [(where, each) for word in ("anyOf", "oneOf", "allOf") for each in schema.get(word, ())]
    kind = schema.get("type")
    if kind is None and not parts:
        yield f"{where}: anything"
    if kind in ("integer", "number"):
        ends = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")
        yield from (f"{where}: no {each[0]}" for each in ends if not schema.keys() & set(each))
    if kind == "string" and "maxLength" not in schema and schema.get("format") not in ("date-time", "binary"):
        yield f"{where}: no maxLength"  # a moment has a form; files are held to POTSTILL_MAX_UPLOAD_BYTES as they come
    if kind == "array":
        yield from () if "maxItems" in schema else (f"{where}: no maxItems",)
        parts += [(f"{where}[]", each) for each in _items(schema)]
    if kind == "object":
        yield from _open(schema, where)
        inner = schema.get("additionalProperties", True)
        parts += [(f"{where}{{}}", inner)] if isinstance(inner, dict) else []
    parts += [(f"{where}.{field}", each) for field, each in schema.get("properties", {}).items()]
    for place, each in parts:
        yield from _unbounded(document, each, place, seen)


def _items(schema: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = schema.get("prefixItems", [schema["items"]] if "items" in schema else [])
    return found


def _open(schema: dict[str, Any], where: str) -> Iterator[str]:
    """Yield what is wrong with an object that takes other keys than its fields'."""
    if schema.get("additionalProperties", True) is not False:
        if "maxProperties" not in schema:
            yield f"{where}: no maxProperties"
        if "maxLength" not in schema.get("propertyNames", {}):
            yield f"{where}: keys without maxLength"


def test_all_that_a_request_may_carry_has_a_bound(document: dict[str, Any]) -> None:
    found = {fault for where, schema in _sent(document) for fault in _unbounded(document, schema, where)}
    assert not found, "\n".join(sorted(found))


def test_the_walk_finds_what_has_none() -> None:
    inner = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"items": {"type": "integer"}, "type": "array"}},
    }
    document = {"components": {"schemas": {"X": inner}}}
    found = set(_unbounded(document, {"$ref": "#/components/schemas/X"}, "here"))
    assert found == {
        "X: no maxProperties", "X: keys without maxLength", "X.a: no maxLength",
        "X.b: no maxItems", "X.b[]: no minimum", "X.b[]: no maximum",
    }  # fmt: skip


class Try:
    """Sends one body after another."""

    def __init__(self, world: World, fed: Fed):
        self.world, self.fed, self.count = world, fed, 0

    def __call__(self, route: Sent, place: Place, value: Any, named: str = "", said: str = "") -> None:
        """Send a value at a place, which must be refused by its name."""
        self.count += 1
        token = token_for(self.world, self.fed, route.operation)
        body = json.dumps(place.wrap(value)).encode()
        response = self.world.site.request(route.method, route.path, token=token, body=body, headers=JSON)
        assert response.status_code == 422, (route.operation, place.field, response.text[:500])
        errors = {error["field"]: error["message"] for error in response.json()["errors"]}
        field = place.field + named
        found = [message for each, message in errors.items() if each == field or each.startswith(f"{field}.")]
        assert found and any(said in each for each in found), (route.operation, field, str(errors)[:500])
        assert len(response.content) < 20_000


def _item(schema: dict[str, Any]) -> Any:
    kinds = {"string": "a", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}
    return kinds[schema.get("type", "object")]


def _beyond(document: dict[str, Any], schema: dict[str, Any]) -> Iterator[Any]:
    """Yield values that are beyond a schema's bounds."""
    if "enum" in schema or "const" in schema:
        return
    if schema.get("type") == "string" and "maxLength" in schema:
        yield "x" * (schema["maxLength"] + 1)
    elif schema.get("type") == "array":
        yield [_item(resolved(document, _items(schema)[0]))] * (schema["maxItems"] + 1)
    elif "maxProperties" in schema:
        inner = schema["additionalProperties"]
        item = _item(resolved(document, inner).get("anyOf", [resolved(document, inner)])[0]) if inner is not True else 1
        yield {f"k{number}": item for number in range(schema["maxProperties"] + 1)}
        yield {"k" * (schema["propertyNames"]["maxLength"] + 1): item}


def test_what_is_beyond_its_bound_is_refused_by_name(shared: World, fed: Fed, document: dict[str, Any]) -> None:
    send, seen = Try(shared, fed), set()
    for route in bodies(document):
        for place in places(document, route.schema):
            key = json.dumps([place.field.rpartition(".")[2], place.options])
            if key in seen:
                continue  # the same field of the same choice, on another way
            seen.add(key)
            for value in [value for schema in place.options for value in _beyond(document, schema)]:
                send(route, place, value)
    assert send.count > 40, send.count


def test_no_text_of_any_body_steers_who_reads_it(shared: World, fed: Fed, document: dict[str, Any]) -> None:
    send, seen = Try(shared, fed), set()
    for route in bodies(document):
        for place in places(document, route.schema):
            key = json.dumps([place.field.rpartition(".")[2], place.options])
            texts = [each for each in place.options if each.get("type") == "string" and "enum" not in each]
            if key in seen or not any("const" not in each for each in texts):
                continue
            seen.add(key)
            for value in MARKED if place.field == "name" else MARKED[:2]:
                send(route, place, value)
        for place in places(document, route.schema):
            key = json.dumps([place.field, place.options])
            if key not in seen and any("propertyNames" in each for each in place.options):
                seen.add(key)
                send(route, place, {MARKED[0]: 1})
    assert send.count > 40, send.count


@pytest.mark.parametrize(
    ("options", "field", "said"),
    [
        ({"a": {"b": "x" * 1001}}, ".a.b", "1001 characters"),
        ({"a": [0, "b\u202ec"]}, ".a.1", "not seen"),
        ({"a": json.loads("[" * 20 + "]" * 20)}, ".a.0", "deeper than 16"),
        ({"a": {f"k{n}": n for n in range(65)}}, ".a", "65 entries"),
        ({"a": [0] * 100_001}, ".a", "100001 items"),
        ({"a": {"odd key": "x" * 1001}}, ".a", "'odd key': has 1001"),
        ({"a": float("nan")}, ".a", "finite"),
    ],
)  # fmt: skip
def test_options_that_hang_on_a_name_have_bounds_all_the_same(
    shared: World, fed: Fed, document: dict[str, Any], options: Any, field: str, said: str
) -> None:
    [route] = [each for each in bodies(document) if each.path == "/v1/federations"]
    send = Try(shared, fed)
    free = [
        place for place in places(document, route.schema) if place.field in ("prototypes.0.options", "recipe.options")
    ]
    for place in free:
        send(route, place, options, field, said)
    assert len({place.field for place in free}) == 2


def test_a_page_of_clients_that_say_all_they_may_comes_at_once(shared: World) -> None:
    fed = shared.create()
    capabilities = {f"{n:02}" + "k" * (bounds.NAME - 2): "é" * bounds.TEXT for n in range(32)}
    for number in range(100):
        body = {"name": f"c{number}", "num_samples": 5, "capabilities": capabilities}
        answer = shared.site.request("POST", f"/v1/federations/{fed.id}/clients", token=fed.join_token, json=body)
        assert answer.status_code == 201, answer.text
    best = min(_timed(lambda: shared.op("GET", f"/v1/federations/{fed.id}/clients?limit=100")) for _ in range(3))
    assert best < 1, best


def _timed(ask: Any) -> float:
    began = time.perf_counter()
    answer: httpx.Response = ask()
    assert len(answer.json()["items"]) == 100
    return time.perf_counter() - began


@pytest.mark.parametrize(
    ("method", "url", "headers", "field"),
    [
        ("GET", f"/v1/jobs?federation={'x' * 65}", {}, "query.federation"),
        ("GET", f"/v1/federations/{'x' * 101}", {}, "path.federation_id"),
        ("GET", "/v1/events?format=json", {"Last-Event-ID": "1" * 65}, "header.Last-Event-ID"),
        ("POST", "/v1/tokens", {"Idempotency-Key": "k" * 201}, "header.Idempotency-Key"),
        ("POST", "/v1/uploads", _UPLOAD | {"Upload-Metadata": "k" * 4097}, "header.Upload-Metadata"),
    ],
)  # fmt: skip
def test_parameters_are_refused_by_name(
    shared: World, method: str, url: str, headers: dict[str, str], field: str
) -> None:
    response = shared.op(method, url, headers=headers)
    assert response.status_code == 422
    assert field in [error["field"] for error in response.json()["errors"]], response.text
