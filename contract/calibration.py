"""Calibration: whether a network is as often right as it says."""

import numpy as np
from numpy.typing import NDArray

from contract.measures import Float64, softmax


class Calibration:
    """Expected calibration error sum_m |B_m| / n |acc(B_m) - conf(B_m)| (Guo et al. 2017, eq. 3).

    Sample i is in bin m of M where the largest of its probabilities lies in ((m - 1) / M, m / M].

    Args:
        bins: M.
    """

    def __init__(self, bins: int):
        self._bins = bins
        self._count, self._right, self._sure = np.zeros(bins), np.zeros(bins), np.zeros(bins)

    def add(self, outputs: Float64, labels: NDArray[np.int64]) -> None:
        """Take logits [B, C] and labels [B]."""
        probabilities = softmax(outputs)
        sure = probabilities.max(axis=1)
        where = np.clip(np.ceil(sure * self._bins).astype(np.int64) - 1, 0, self._bins - 1)
        self._count += np.bincount(where, minlength=self._bins)
        self._right += np.bincount(where, outputs.argmax(axis=1) == labels, minlength=self._bins)
        self._sure += np.bincount(where, sure, minlength=self._bins)

    def value(self) -> float:
        """Return the error, in [0, 1]; 0 where nothing was added."""
        return float(np.abs(self._right - self._sure).sum() / max(self._count.sum(), 1.0))
