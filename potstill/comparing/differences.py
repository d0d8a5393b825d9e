"""In which parts recipes and plans differ."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Difference:
    """A part that is not the same everywhere.

    Attributes:
        part: its place, with dots: `recipe.distil.temperature`.
        values: of each that is compared, in their order; None where one has no such part.
    """

    part: str
    values: Sequence[Any]


def leaves(tree: Any, place: str = "") -> dict[str, Any]:
    """Return what a document holds, by place; what is null is left out, lists of plain values are one value.

    Items of a list are called by their `name`, where all have one, else by their number.
    """
    if isinstance(tree, list) and any(isinstance(each, dict) for each in tree):
        named = all(isinstance(each, dict) and "name" in each for each in tree)
        tree = {str(each["name"]) if named else str(at): each for at, each in enumerate(tree, start=1)}
    if not isinstance(tree, dict):
        return {} if tree is None else {place: tree}
    found: dict[str, Any] = {}
    for name, value in tree.items():
        found |= leaves(value, f"{place}.{name}" if place else name)
    return found


def differences(documents: Sequence[dict[str, Any]]) -> list[Difference]:
    """Return the parts in which documents differ, in their order; what is the same in all is left out."""
    told = [leaves(each) for each in documents]
    places = dict.fromkeys(place for each in told for place in each)
    order = {name: at for at, name in enumerate(dict.fromkeys(place.split(".")[0] for place in places))}
    found = [Difference(place, [each.get(place) for each in told]) for place in places]
    unlike = [each for each in found if len({json.dumps(value, sort_keys=True) for value in each.values}) > 1]
    return sorted(unlike, key=lambda each: order[each.part.split(".")[0]])


def shown(value: Any) -> str:
    """Return a part's value as people read it."""
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
