"""How sure a mean over seeds is."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

CONFIDENCE = 0.95
SAID = "mean over seeds, with the 95 % confidence interval of the mean"


def half_width(values: NDArray[Any] | Sequence[Any]) -> NDArray[Any]:
    """Return half the confidence interval of the mean over the first axis, by Student's t.

    t(n - 1, 0.975) s / sqrt(n), s the standard deviation with n - 1 below: where seeds scatter normally, the mean
    of all seeds lies within it in 95 % of the cases. Float64, the shape without the first axis; zero of one value.

    Args:
        values: [n] or [n, ...].
    """
    found = np.asarray(values, np.float64)
    count = len(found)
    if count < 2:
        return np.zeros(found.shape[1:])
    quantile = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2))
    width: NDArray[Any] = quantile * found.std(axis=0, ddof=1) / np.sqrt(count)
    return width
