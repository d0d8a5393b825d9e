"""Norms of vectors that are too long, or whose values are too large, for a sum of squares."""

import numpy as np

from worker.parts.arrays import Float


class Norms:
    """Euclidean norms of vectors that come in pieces, scaled by their largest value: squares of 1e200 would overflow.

    Args:
        vectors: their number m.
    """

    def __init__(self, vectors: int):
        self._scale, self._squares = np.zeros(vectors), np.zeros(vectors)

    def add(self, piece: Float) -> None:
        """Take the next values [m, n] of each."""
        largest = np.maximum(self._scale, np.abs(piece).max(axis=1, initial=0.0))
        by = np.where(largest > 0, largest, 1.0)
        with np.errstate(invalid="ignore"):  # of an infinite value; `values` says so
            self._squares = self._squares * (self._scale / by) ** 2 + ((piece / by[:, None]) ** 2).sum(axis=1)
        self._scale = largest

    def values(self) -> Float:
        """Return the norms [m]; infinite, or NaN, where they have no number."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(self._scale * np.sqrt(self._squares))
