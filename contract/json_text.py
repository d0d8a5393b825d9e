"""JSON from outside: an object says each of its keys once.

Python takes the last of two, other readers the first: two programs would read one text as two things.
"""

import json
from collections.abc import Callable
from typing import Any

from contract.bounds import NAME, unseen


class RepeatedKey(ValueError):
    """A key stands twice in one object.

    Attributes:
        key: which, as it can be told.
        value: what it says the second time.
    """

    def __init__(self, key: str, value: Any):
        self.key, self.value = shown(key), value
        super().__init__(f"the key {self.key!r} is there twice; keep one of them")


def shown(text: str) -> str:
    """Return a key or a step of a path as it can be told: it may be a whole book, or steer who reads it."""
    text = text if len(text) <= NAME else f"{text[:NAME]}…"
    return repr(text)[1:-1] if unseen(text) else text


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise RepeatedKey(key, value)
        found[key] = value
    return found


def read_json(text: str | bytes | bytearray, constant: Callable[[str], Any] | None = None) -> Any:
    """Return what JSON says.

    Args:
        text: in UTF-8, if it is bytes.
        constant: what becomes of NaN, Infinity and -Infinity, which are no JSON; by default the numbers.

    Raises:
        RepeatedKey: an object says a key twice.
        ValueError: it is no JSON, or is nested too deeply to read.
    """
    if not isinstance(text, str):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"it is not UTF-8 from byte {error.start} on") from None
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
