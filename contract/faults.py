"""What is wrong with a body, in the words of who wrote it: by its own path, without a word of our validators.

Where several things may stand in one place (a choice, a recipe by name or in full, a number or `all`), validation says
for which of them it looked; who sent the body has no such names in it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from contract.json_text import shown

_PREFIXED = re.compile(r"([a-z_][a-z0-9_]*(?:\.[\w-]+)*): (.+)", re.DOTALL)
"""A validator that looks at several fields names the one at fault before a colon: `min_updates: more than …`."""

_SHOULD = "Input should be "


class Fault(NamedTuple):
    """One thing that is wrong: where, with dots between the steps (empty for the whole), and what."""

    field: str
    message: str


def faults_of(error: ValidationError, given: Any = None) -> list[Fault]:
    """Return what is wrong with `given`; without it, places are taken as they are."""
    return faults(error.errors(include_url=False), given)


def faults(errors: Iterable[ErrorDetails], given: Any) -> list[Fault]:
    """Return what is wrong with `given`, one line a field.

    Args:
        errors: as pydantic, or FastAPI, found them.
        given: what was validated.
    """
    found: dict[str, list[str]] = {}
    for error in errors:
        path, message = _told(error, given)
        messages = found.setdefault(".".join(path), [])
        if message not in messages:
            messages.append(message)
    return [Fault(field, _joined(messages)) for field, messages in found.items()]


def _told(error: ErrorDetails, given: Any) -> tuple[list[str], str]:
    path = _path(error["loc"], given, error["type"] == "missing")
    kind, message, context = error["type"], error["msg"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return path, "there is no such field"
    if kind == "missing":
        return path, "is missing"
    if kind == "union_tag_not_found":
        return [*path, _tag(context)], "is missing"
    if kind == "union_tag_invalid":
        tag = str(context["tag"])[:64]
        return [*path, _tag(context)], f"{_SHOULD}one of {context['expected_tags']}, not {tag!r}"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return path, f"{_SHOULD}an object"
    if kind == "value_error":
        message = message.removeprefix("Value error, ")
        match = _PREFIXED.fullmatch(message)
        if match:
            return [*path, *match[1].split(".")], match[2]
    return path, message


def _tag(context: Mapping[str, Any]) -> str:
    return str(context.get("discriminator", "kind")).strip("'")


def _path(steps: Sequence[str | int], given: Any, missing: bool) -> list[str]:
    """Keep the steps that lead somewhere in what was given; the others are names of ours."""
    if given is None:
        return [shown(str(step)) for step in steps]
    path, here = [], given
    for number, step in enumerate(steps):
        if isinstance(here, Mapping) and step in here:
            here = here[str(step)]
        elif isinstance(here, Sequence) and not isinstance(here, str) and isinstance(step, int) and step < len(here):
            here = here[step]
        elif not (missing and number == len(steps) - 1):
            continue
        path.append(shown(str(step)))
    return path


def _joined(messages: list[str]) -> str:
    """Return the message; where any of several things may stand in a place, that it should be one of them.

    What is wrong with one of them is told first: the others were not meant.
    """
    reasons = [message for message in messages if not message.startswith(_SHOULD)]
    if reasons:
        return reasons[0]
    first, *others = messages
    return " or ".join([first, *(message.removeprefix(_SHOULD) for message in others)])
