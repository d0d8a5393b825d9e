"""What tables of the docs are written with."""

import json
from collections.abc import Iterable
from typing import Any


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    lines = [list(head), ["---"] * len(list(head)), *(list(row) for row in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def number(value: float) -> str:
    """Return a bound as it is read: whole ones without a point."""
    return str(int(value)) if value == int(value) else f"{value:g}"


def bounds(field: dict[str, Any]) -> str:
    """Return the interval of a field of a JSON schema; empty where it has no bound."""
    low, high = field.get("minimum", field.get("exclusiveMinimum")), field.get("maximum", field.get("exclusiveMaximum"))
    if low is None and high is None:
        return ""
    left = "(" if low is None or "exclusiveMinimum" in field else "["
    right = ")" if high is None or "exclusiveMaximum" in field else "]"
    return f"{left}{'-∞' if low is None else number(low)}, {'∞' if high is None else number(high)}{right}"


def shown(value: Any) -> str:
    """Return a value as JSON has it, in code."""
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def cell(text: str) -> str:
    """Return a text as a cell takes it."""
    return " ".join(text.split()).replace("|", "\\|")
