"""What clients say of a few samples of each set, kept as they label so that nobody is asked twice."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

import numpy as np

from contract.wire.federations import Task
from contract.wire.plans import Explain
from worker.parts.arrays import Float
from worker.parts.votes import Ints

SAMPLES = 256
"""Of a set are looked at, evenly spaced."""
MOST = 1 << 23
"""Logits of all clients and sets together: 64 MiB of float64."""
FEWEST = 32
"""Of fewer samples nothing can be said."""


def rows_of(samples: int, clients: int, classes: int) -> Ints | None:
    """Return which samples of a set are looked at; None where that would be too much to keep.

    Args:
        samples: S > 0.
        clients: that say something of them.
        classes: C.
    """
    count = min(SAMPLES, samples, MOST // max(1, clients * classes))
    if count < min(FEWEST, samples):
        return None
    return np.arange(count, dtype=np.int64) * samples // count


@dataclass(frozen=True)
class Together:
    """What an ensemble made of a set.

    Attributes:
        names: of its m teachers.
        weights: [m, S].
        classes: the pseudo-labels' [S].
    """

    names: list[str]
    weights: Float
    classes: Ints


@dataclass
class Heard:
    """What is kept.

    Attributes:
        rows: set -> which of its samples [P].
        said: set -> client -> logits [P, C].
        ensembles: set -> what the teachers say together.
    """

    rows: dict[str, Ints]
    said: dict[str, dict[str, Float]] = field(default_factory=dict)
    ensembles: dict[str, Together] = field(default_factory=dict)

    @classmethod
    def of(cls, explain: Explain, task: Task, sets: Mapping[str, int], clients: int) -> Optional["Heard"]:
        """Return what listens to clients; None where a round is not explained by votes, or has no classes to vote for.

        Args:
            explain: the plan's.
            task: the federation's.
            sets: set -> S.
            clients: how many there are at most.
        """
        if explain != "votes" or task.kind != "classification":
            return None
        found = {name: rows_of(samples, clients, task.num_classes) for name, samples in sets.items()}
        return cls({name: rows for name, rows in found.items() if rows is not None})

    def take(self, name: str, client: str, start: int, logits: Float) -> None:
        """Take what a client says of the samples from `start` on: logits [B, C]."""
        rows = self.rows.get(name)
        if rows is None:
            return
        first, last = np.searchsorted(rows, [start, start + len(logits)])
        if first == last:
            return
        kept = self.said.setdefault(name, {})
        if client not in kept:
            kept[client] = np.full((len(rows), logits.shape[1]), np.nan)
        kept[client][first:last] = logits[rows[first:last] - start]

    def whole(self, name: str) -> dict[str, Float]:
        """Return the clients of which all is known, with their logits [P, C], by name."""
        said = self.said.get(name, {})
        return {client: said[client] for client in sorted(said) if np.isfinite(said[client]).all()}
