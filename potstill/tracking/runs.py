"""A run as programs that compare runs see it, and what writes it there."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Scalar = str | int | float | bool


@dataclass(frozen=True)
class Point:
    """A round's figures by name; `seconds` since 1970 is when it was over, None for now."""

    round: int
    figures: Mapping[str, float]
    seconds: float | None = None


@dataclass(frozen=True)
class TrackedRun:
    """A federation, or one recipe with one seed.

    Attributes:
        key: by which it is found again, whatever it is called.
        group: those that belong together.
        name: of it in its group.
        parameters: what it was made with, by dotted names.
    """

    key: str
    group: str
    name: str
    parameters: Mapping[str, Scalar] = field(default_factory=dict)


class Sink(Protocol):
    """A place for runs. What is there already is not written again: the same call twice is the same as once."""

    def write(self, run: TrackedRun, points: Iterable[Point]) -> int:
        """Write what is not there; return how many rounds had something new."""

    def end(self, run: TrackedRun, *, failed: bool = False) -> None:
        """Say that nothing more will come of a run."""


def flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Scalar]]:
    """Yield the leaves of a tree by dotted names; lists as text, what is not set not at all."""
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from flat(value, f"{name}.")
        elif isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
            yield from flat({str(number): each for number, each in enumerate(value)}, f"{name}.")
        elif isinstance(value, str | int | float):
            yield name, value
        elif value is not None:
            yield name, str(value)
