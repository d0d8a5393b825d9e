"""Walks through the OpenAPI document: the schemas in it, and which of its components they refer to."""

from collections.abc import Iterable, Iterator
from typing import Any

Schema = dict[str, Any]
REFERENCE = "#/components/schemas/"


def dicts(value: Any) -> Iterator[Schema]:
    """Yield all objects of the document that may be schemas; examples and defaults are values."""
    if isinstance(value, dict):
        yield value
        for key, inner in value.items():
            if key == "properties" and isinstance(inner, dict):
                for each in inner.values():  # its keys are names of fields, whatever they read like
                    yield from dicts(each)
            elif key not in ("example", "examples", "default", "const", "enum"):
                yield from dicts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from dicts(inner)


def named(value: Any) -> set[str]:
    """Return the components that something refers to, also by what tells choices apart."""
    texts: Iterable[Any] = (text for each in dicts(value) for text in each.values())
    return {text.removeprefix(REFERENCE) for text in texts if isinstance(text, str) and text.startswith(REFERENCE)}
