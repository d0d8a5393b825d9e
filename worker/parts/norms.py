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

    @property
    def finite(self) -> bool:
        """Whether all vectors are; their norms may be too large for a number all the same."""
        return bool(np.isfinite(self._scale).all())

    def values(self) -> Float:
        """Return the norms [m] of finite vectors; the largest number there is for one that has none."""
        with np.errstate(over="ignore"):
            return np.asarray(np.minimum(self._scale * np.sqrt(self._squares), np.finfo(np.float64).max))

    def shares(self, length: float) -> Float:
        """Return min(1, length / norm) [m] of finite vectors, also for norms that have no number; 1 for a norm of 0."""
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            return np.asarray(np.minimum(length / self._scale / np.sqrt(self._squares), 1.0))
