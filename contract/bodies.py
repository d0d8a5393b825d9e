"""What every body of the contract has in common: JSON is read as it is written, and nothing is guessed.

A number is a number: no text that looks like one, no `true`. A whole number is written in digits, so `12.0` and `1e3`
are refused where one is meant; where any number may stand, a whole one may. NaN and infinity are no JSON. What was
stored before a rule was there is read all the same (`stored`).
"""

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Strict, TypeAdapter

from contract.bounds import STORED

Made = TypeVar("Made")

LISTED = Strict(False)
"""``Annotated[tuple[float, float], LISTED]``: a tuple in Python, a list in JSON; what it holds is as strict as ever."""

_DIGITS = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?", re.ASCII)


class Body(BaseModel):
    """Base of all bodies and of their parts."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Part(Body):
    """Base of what bodies are made of: values never change."""

    model_config = ConfigDict(frozen=True)


def _number(value: Any) -> Any:
    if isinstance(value, bool | float):
        raise ValueError("Input should be a valid integer")
    return value


WHOLE = BeforeValidator(_number)
"""``Annotated[Literal[1, 2], WHOLE]``: to Python, and so to a `Literal`, `True` and `1.0` are 1."""


def _in_digits(value: Any) -> Any:
    if isinstance(value, str) and not _DIGITS.fullmatch(value):
        raise ValueError("Input should be a number in digits")
    return value


def _in_whole_digits(value: Any) -> Any:
    if isinstance(value, str) and "." in value:
        raise ValueError("Input should be a whole number in digits")
    return _in_digits(value)


QUERY_NUMBER, QUERY_COUNT = BeforeValidator(_in_digits), BeforeValidator(_in_whole_digits)
"""Of numbers in a query, which are text: `0.5` and `12`; Python would take ` 1_000 `, `1e3` and `nan`, too."""


def _texts(value: Any) -> Any:
    if isinstance(value, str):
        raise ValueError(f"Input should be a list of texts: {json.dumps([value if len(value) <= 64 else 'fc.*'])}")
    return value


TEXTS = BeforeValidator(_texts)
"""``Annotated[list[Pattern], TEXTS]``: a text in the list's place is refused with the list that it would be."""


def stored(kind: type[Made] | TypeAdapter[Made], value: str | bytes | Mapping[str, Any]) -> Made:
    """Return what was checked when it came, by the rules of that day, and is read again: JSON text, or what it says."""
    adapter = kind if isinstance(kind, TypeAdapter) else TypeAdapter(kind)
    if isinstance(value, str | bytes):
        return adapter.validate_json(value, strict=False, context=STORED)
    return adapter.validate_python(value, strict=False, context=STORED)
