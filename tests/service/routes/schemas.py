"""The OpenAPI document as a walk through it: bodies, their fields, and what may stand in each."""

from collections.abc import Iterator
from typing import Any, NamedTuple

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
