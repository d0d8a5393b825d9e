"""What clients' models say of a few samples, beside what the samples are: agreement, by class and beyond chance.

Symbols: n clients, P samples, C classes; a vote is the class of the largest logit.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker.parts.arrays import Float

Ints = NDArray[np.int64]
LEAST_ROOM = 0.02
"""Between chance and the most that a client's votes could agree: one that always says the same has none."""
SURE = 3.0
"""Standard errors that agreement must lie below what is asked of it."""


@dataclass(frozen=True)
class Agreement:
    """How one client's votes agree with what the samples are.

    Attributes:
        share: of the samples on which it agrees.
        by_class: share of each class's samples on which it agrees; None for a class that has no samples.
        beyond_chance: kappa / kappa_max (Cohen 1960; Dunn 1989): 0 where its votes agree no more often than as many
            votes for each class would by chance, 1 where it agrees as often as they can, below 0 where less than by
            chance. A client that knows two classes of ten and always votes for one of these is not the worse for it.
            None where its votes leave no room between the two.
        error: standard error of `beyond_chance` where votes agree by chance.
    """

    share: float
    by_class: list[float | None]
    beyond_chance: float | None
    error: float | None


def votes_of(logits: Float) -> Ints:
    """Return the votes [..., P] of logits [..., P, C]."""
    return np.asarray(logits.argmax(axis=-1), dtype=np.int64)


def agreement(votes: Ints, classes: Ints, count: int) -> Agreement:
    """Return how a client's votes [P] agree with the samples' classes [P] of `count`; P is at least 1."""
    right = votes == classes
    share = float(right.mean())
    there = np.bincount(classes, minlength=count)
    hits = np.bincount(classes[right], minlength=count)
    by_class = [float(hit / total) if total else None for hit, total in zip(hits, there, strict=True)]
    voted, found = np.bincount(votes, minlength=count) / len(votes), there / len(votes)
    chance, most = float(voted @ found), float(np.minimum(voted, found).sum())
    room = most - chance
    if room < LEAST_ROOM:
        return Agreement(share, by_class, None, None)
    error = float(np.sqrt(chance * (1 - chance) / len(votes))) / room
    return Agreement(share, by_class, (share - chance) / room, error)


def consensus(votes: Ints, weights: Float, count: int) -> Ints:
    """Return the class that most of the others say, for each client [n, P]; of equals the first.

    Args:
        votes: [n, P], n at least 2.
        weights: what each client counts [n].
        count: C.
    """
    tally = np.zeros((votes.shape[1], count))
    rows = np.arange(votes.shape[1])
    for vote, weight in zip(votes, weights, strict=True):
        tally[rows, vote] += weight
    found = np.empty_like(votes)
    for index, (vote, weight) in enumerate(zip(votes, weights, strict=True)):
        tally[rows, vote] -= weight
        found[index] = tally.argmax(axis=1)
        tally[rows, vote] += weight
    return found


def trust_by_class(weights: Float, classes: Ints, count: int) -> list[list[float | None]]:
    """Return each teacher's mean weight [n][C] on the samples that became a class; None for a class of none.

    Args:
        weights: [n, S], summing to 1 over the teachers.
        classes: [S], of pseudo-labels.
        count: C.
    """
    there = np.bincount(classes, minlength=count)
    means = [np.bincount(classes, weights=row, minlength=count) for row in weights]
    return [[float(sum_ / total) if total else None for sum_, total in zip(row, there, strict=True)] for row in means]


def decided(weights: Float) -> Float:
    """Return the share of the samples on which each teacher counts most [n]; of equals, all of them in equal parts.

    Args:
        weights: [n, S].
    """
    most = weights >= weights.max(axis=0) - 1e-12
    return np.asarray((most / most.sum(axis=0)).mean(axis=1))
