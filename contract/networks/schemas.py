"""Operators' schemas, as torch writes them, read without torch.

``conv2d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=1) -> Tensor`` names every argument, its type
and whether it can be left out, which is all that a document's arguments are held against.
"""

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["tensor", "tensors", "int"]
"""What a node gives: a tensor, several of them (which `getitem` takes apart), or a whole number such as an edge."""

_ROW = re.compile(r"(?P<name>\w+(\.\w+)?)\((?P<arguments>.*)\) -> (?P<returns>.+)")
_ARGUMENT = re.compile(r"(?P<type>[A-Za-z]+)(?P<form>!?\??(\[\d*\])?\??) (?P<name>\w+)(?P<default>=.+)?")


@dataclass(frozen=True)
class Argument:
    """One argument of an operator.

    Attributes:
        name: as a keyword.
        type: such as `Tensor` or `SymInt`.
        listed: whether it is a list of these.
        optional: whether null may stand for it.
        gaps: whether null may stand in the list.
        spread: whether one value may stand for the whole list.
        required: whether it cannot be left out.
        keyword: whether it is given by its name alone.
        changed: whether the operator writes into it.
    """

    name: str
    type: str
    listed: bool
    optional: bool
    gaps: bool
    spread: bool
    required: bool
    keyword: bool
    changed: bool


@dataclass(frozen=True)
class Operator:
    """One row of the list: its name as a node calls it, its arguments in their order, what it gives."""

    name: str
    arguments: tuple[Argument, ...]
    gives: Kind

    @property
    def makes(self) -> bool:
        """Whether it makes a tensor of none, on whatever device it is told."""
        return self.gives == "tensor" and not any(each.type.startswith("Tensor") for each in self.arguments)


def read_schema(row: str, space: str = "") -> Operator:
    """Return an operator by its schema; `space` begins its name.

    Raises:
        ValueError: it does not read like one.
    """
    match = _ROW.fullmatch(row)
    if match is None:
        raise ValueError(f"no schema of an operator: {row!r}")
    name = match["name"] if "." in match["name"] or not space else f"{match['name']}.default"
    arguments, keyword = [], False
    for text in _split(match["arguments"]):
        if text == "*":
            keyword = True
        else:
            arguments.append(_argument(text, keyword))
    return Operator(f"{space}{name}", tuple(arguments), _kind(match["returns"]))


def _split(text: str) -> list[str]:
    """Return the arguments: commas inside brackets divide nothing."""
    return [part.strip() for part in re.split(r",(?![^\[]*\])", text) if part.strip()]


def _argument(text: str, keyword: bool) -> Argument:
    match = _ARGUMENT.fullmatch(text)
    if match is None:
        raise ValueError(f"no argument of an operator: {text!r}")
    form = match["form"].removeprefix("!")
    listed = "[" in form
    return Argument(
        name=match["name"],
        type=match["type"],
        listed=listed,
        optional=form.endswith("?"),
        gaps=listed and form.startswith("?"),
        spread=re.search(r"\d", form) is not None,
        required=match["default"] is None,
        keyword=keyword,
        changed="!" in match["form"],
    )


def _kind(returns: str) -> Kind:
    if returns.startswith("(") or returns.endswith("[]"):
        return "tensors"
    return "tensor" if returns.startswith("Tensor") else "int"
