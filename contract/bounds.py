"""How long texts, lists and mappings that are sent may be, how large numbers, and which characters people are shown.

Every text, list and mapping that a request may carry has a bound, so that what is stored,
listed and shown stays small. What was stored before a rule was there is read all the same (`contract.bodies.stored`,
which says so by its context).
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final
from unicodedata import category

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema

STORED: Final = {"stored": True}
"""Context of a validation: it was checked when it came, by the rules of that day."""

ID, NAME, MODEL_NAME, TEXT = 64, 100, 110, 1000
"""Longest id of ours; longest name of a thing; of a prototype with its group's number; longest value that is text."""
ENTRIES, DEPTH, ITEMS = 64, 16, 100_000
"""Of options that hang on a name: most entries of a mapping, levels, and items of a list, such as one a class."""
COUNT, VALUE = 2**53, 1e9
"""Largest whole number that every reader of JSON has exactly; largest value of data, norm or weight of a term."""
MOST_VALUES, MOST_OUTPUTS = 10_000_000, 2**25
"""Values of one sample; values that a network gives of one sample."""
ROUNDS, CLIENTS, STEPS = 100_000, 1_000_000, 1_000_000
"""Of a federation, and of one job."""

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Classes of characters that steer a terminal, turn the direction of what follows, or make two names look alike."""
_BLANK = "\u034f\u115f\u1160\u2800\u3164\uffa0"
"""Letters and marks by their class, and nothing on the screen: joiners and fillers of syllables, an empty Braille."""
JOINERS = "\u200c\u200d"
"""Without these some scripts cannot be written."""
_STEP = re.compile(r"[a-z_][a-z0-9_]*|[0-9]+", re.ASCII)


def unseen(text: str) -> bool:
    """Whether a text that people are shown has characters that are not seen, and steer what is."""
    return any((category(letter) in _UNSEEN and letter not in JOINERS) or letter in _BLANK for letter in text)


def _is_stored(info: ValidationInfo) -> bool:
    return info.context is STORED


class _Shown:
    """Marks a text that people are shown: it holds nothing that is not seen."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_after_validator_function(self._check, handler(source))

    @staticmethod
    def _check(value: str, info: ValidationInfo) -> str:
        if not _is_stored(info):
            check_shown(value)
        return value


def check_shown(value: str) -> None:
    """Refuse a text that people are shown and that is not what it looks like.

    Raises:
        ValueError: it holds characters that are not seen.
    """
    if unseen(value):
        raise ValueError("control characters, and others that are not seen, are not allowed")


@dataclass(frozen=True)
class AtMost:
    """Bounds a text, a list or a mapping.

    Attributes:
        most: characters, items or entries.
    """

    most: int

    _WORDS = {"string": "maxLength", "array": "maxItems", "object": "maxProperties"}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        made = handler(schema)
        return made | {self._WORDS[made["type"]]: self.most}

    def _check(self, value: Any, info: ValidationInfo) -> Any:
        if len(value) > self.most and not _is_stored(info):
            what = "characters" if isinstance(value, str) else "entries" if isinstance(value, dict) else "items"
            raise ValueError(f"has {len(value)} {what}, and may have {self.most}")
        return value


SHOWN: Final = _Shown()
Id = Annotated[str, AtMost(ID), SHOWN]
"""An id that the service gave, or a name that is as short."""
Reference = Annotated[str, AtMost(MODEL_NAME), SHOWN]
"""The id or name of something that is there."""
Label = Annotated[str, Field(min_length=1), AtMost(NAME), SHOWN]
"""A name that may have any character that is seen, such as a class's or a capability's."""
Text = Annotated[str, AtMost(TEXT), SHOWN]
"""A value that is text."""


class _Free:
    """Marks a mapping whose fields hang on a name that stands beside it: whatever they are, they have bounds."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        names = {"type": "string", "maxLength": NAME}
        return handler(schema) | {"maxProperties": ENTRIES, "propertyNames": names}

    @staticmethod
    def _check(value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if not _is_stored(info):
            for path, fault in _faults(value, DEPTH):
                where = ".".join(path)
                raise ValueError(f"{where}: {fault}" if where else fault)
        return value


Fault = tuple[tuple[str, ...], str]


def _faults(value: Any, levels: int) -> Iterator[Fault]:
    """Yield what is too large or too long in free JSON, and where."""
    if not levels:
        yield (), f"is nested deeper than {DEPTH} levels"
    elif isinstance(value, str):
        yield from (((), fault) for fault in _text_faults(value, TEXT))
    elif isinstance(value, Mapping):
        yield from _mapping_faults(value, levels - 1)
    elif isinstance(value, list | tuple):
        if len(value) > ITEMS:
            yield (), f"has {len(value)} items, and may have {ITEMS}"
        for number, inner in enumerate(value):
            yield from _below(str(number), _faults(inner, levels - 1))
    elif isinstance(value, float) and not math.isfinite(value):
        yield (), "is no finite number"


def _mapping_faults(value: Mapping[Any, Any], levels: int) -> Iterator[Fault]:
    if len(value) > ENTRIES:
        yield (), f"has {len(value)} entries, and may have {ENTRIES}"
    for key, inner in value.items():
        yield from (((), f"a name {fault}") for fault in _text_faults(str(key), NAME))
        yield from _below(str(key), _faults(inner, levels))


def _below(step: str, found: Iterator[Fault]) -> Iterator[Fault]:
    """Yield faults with the step that leads to them; one that is no word goes into the message."""
    for path, fault in found:
        if _STEP.fullmatch(step):
            yield (step, *path), fault
        else:
            yield (), f"{step!r}: {'.'.join(path)}{': ' if path else ''}{fault}"


def _text_faults(text: str, most: int) -> Iterator[str]:
    if len(text) > most:
        yield f"has {len(text)} characters, and may have {most}"
    elif unseen(text):
        yield "has control characters, or others that are not seen"


DataValue = Annotated[float, Field(ge=-VALUE, le=VALUE)]
FREE: Final = _Free()
FreeOptions = Annotated[dict[str, Any], FREE]
"""Options of something that is named beside them, which knows what they may be."""
