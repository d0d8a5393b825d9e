"""What all parts of the bench share: two sides that take turns, and the figure that comes out."""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rich.progress import Progress

T = TypeVar("T")


@dataclass(frozen=True)
class Taken:
    """What a side measured of its work: seconds on the clock, a rate, or a size; and processor time where it is known.

    Where others keep the machine busy the clock says little of a few repetitions, and processor time much.
    """

    value: float
    processor: float | None = None


Side = Callable[[], Taken]
"""Does the work once."""


@dataclass(frozen=True)
class Pairs:
    """What both sides measured, repetition by repetition, in turns."""

    ours: list[Taken] = field(default_factory=list)
    other: list[Taken] = field(default_factory=list)

    @classmethod
    def of(cls, ours: Iterable[float], other: Iterable[float]) -> "Pairs":
        """Return them of bare values."""
        return cls([Taken(value) for value in ours], [Taken(value) for value in other])

    def values(self) -> tuple[list[float], list[float]]:
        """Return both sides' values."""
        return [each.value for each in self.ours], [each.value for each in self.other]

    def processor(self) -> list[float]:
        """Return how many times as much processor time ours takes, pair by pair; none where it is not known."""
        pairs = zip(self.ours, self.other, strict=True)
        return [a.processor / b.processor for a, b in pairs if a.processor is not None and b.processor]


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    Attributes:
        what: was measured.
        unit: of both; one that ends in '/s' is better where it is more, any other where it is less.
        against: what the other side is.
        pairs: what was measured.
        limit: of the ratio, where there is one.
    """

    what: str
    unit: str
    against: str
    pairs: Pairs
    limit: float | None = None

    @property
    def ratios(self) -> list[float]:
        """How many times as slow, or as large, ours is, pair by pair: above 1 ours is the worse."""
        pairs = zip(*self.pairs.values(), strict=True)
        return [theirs / ours if self.unit.endswith("/s") else ours / theirs for ours, theirs in pairs]

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        (ours, other), ratios, processor = self.pairs.values(), self.ratios, self.pairs.processor()
        return {
            "what": self.what,
            "unit": self.unit,
            "ours": statistics.median(ours),
            "against": self.against,
            "other": statistics.median(other),
            "ratio": statistics.median(ratios),
            "ratios": [min(ratios), max(ratios)],
            "processor_ratio": statistics.median(processor) if processor else None,
            "repetitions": len(ratios),
            "limit": self.limit,
        }


@dataclass
class Bench:
    """One run of the bench: how large it is, where its files lie, and who is told how far it is.

    Attributes:
        quick: smaller models and fewer repetitions.
        folder: empty, for the files of one part.
        clients: most devices of the part that looks at growth.
        progress: bars.
    """

    quick: bool
    folder: Path
    clients: int = 1000
    progress: Progress | None = None

    def pick(self, full: T, quick: T) -> T:
        """Return what the run's size says."""
        return quick if self.quick else full

    def track(self, what: str, times: int) -> Iterator[int]:
        """Count to `times` under a bar of its own."""
        if self.progress is None:
            yield from range(times)
            return
        bar = self.progress.add_task(what, total=times)
        for number in range(times):
            yield number
            self.progress.advance(bar)
        self.progress.remove_task(bar)

    def turns(self, what: str, ours: Side, other: Side, times: int) -> Pairs:
        """Let both sides work so many times, in turns: whatever else the machine does meets both.

        Who begins changes from pair to pair, for the second finds the memory that the first has left.
        """
        found = Pairs()
        for number in self.track(what, times):
            order = ((found.ours, ours), (found.other, other))
            for taken, work in order if number % 2 == 0 else reversed(order):
                taken.append(work())
        return found


def timed(work: Callable[[], object]) -> Side:
    """Return a side that is measured in seconds, and in those of this process's processors."""

    def side() -> Taken:
        begun, before = time.perf_counter(), time.process_time()
        work()
        return Taken(time.perf_counter() - begun, time.process_time() - before)

    return side
