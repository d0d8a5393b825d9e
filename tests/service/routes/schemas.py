"""The OpenAPI document as a walk through it: bodies, their fields, and what may stand in each."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.service.world import Fed, World

Wrap = Callable[[Any], Any]
METHODS = ("get", "put", "post", "delete", "patch")


class Sent(NamedTuple):
    """A route that takes JSON."""

    operation: str
    method: str
    path: str
    schema: dict[str, Any]


def resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema; where it names one, that one with what stands beside the name."""
    while "$ref" in schema:
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]] | beside
    return schema


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield path, method and operation."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method in METHODS:
                yield path, method, operation


def bodies(document: dict[str, Any]) -> Iterator[Sent]:
    """Yield the routes that take JSON."""
    for path, method, operation in operations(document):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if content is not None:
            schema = resolved(document, content["schema"])
            yield Sent(operation["operationId"], method.upper(), path, schema)


class Place(NamedTuple):
    """A field of a body, or what a list or mapping in it holds.

    Attributes:
        field: its path, as answers name it.
        types: that may stand there.
        options: the schemas of what may.
        wrap: from a value there to the body.
    """

    field: str
    types: tuple[str, ...]
    options: list[dict[str, Any]]
    wrap: Wrap


def _leaf(schema: dict[str, Any]) -> str | None:
    if "const" in schema or "enum" in schema:
        value = schema["const"] if "const" in schema else schema["enum"][0]
        return {str: "string", int: "integer", bool: "boolean"}[type(value)]
    found: str | None = schema.get("type")
    return found


def _same(value: Any) -> Any:
    return value


def places(document: dict[str, Any], schema: dict[str, Any], field: str = "", wrap: Wrap = _same) -> Iterator[Place]:
    """Yield the fields of a body, however deep."""
    options = [resolved(document, each) for each in schema.get("anyOf", schema.get("oneOf", [schema]))]
    types = tuple(sorted({found for each in options if (found := _leaf(each)) not in (None, "null")}))
    if types and field:
        yield Place(field, types, options, wrap)
    for each in options:
        said = each.get("properties", {})
        kind = said.get("kind", {}).get("const")
        fixed = {} if kind is None else {"kind": kind}
        for name, inner in said.items():
            if name == "kind" and kind is not None and len(options) > 1:
                continue  # it tells which of the choices is meant; see test_contracts' tags

            def place(value: Any, name: str = name, fixed: dict[str, Any] = fixed) -> Any:
                return wrap(fixed | {name: value})

            yield from places(document, resolved(document, inner), f"{field}.{name}".lstrip("."), place)
        if isinstance(inner := each.get("items"), dict):
            yield from places(document, resolved(document, inner), f"{field}.0", lambda value: wrap([value]))
        if isinstance(inner := each.get("additionalProperties"), dict):
            yield from places(document, resolved(document, inner), f"{field}.key", lambda value: wrap({"key": value}))


def token_for(world: World, fed: Fed, operation: str) -> str:
    """Return the token of who may call a route: the join token, device `a`'s or the operator's."""
    if operation.startswith("enrol_client"):
        return fed.join_token
    by_device = ("put_declaration", "post_heartbeat", "stage_file", "put_keys", "put_shares", "put_confirmation")
    return fed.devices["a"].token if operation.startswith((*by_device, "put_revelation")) else world.operator
