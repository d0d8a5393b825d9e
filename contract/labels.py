"""Labels of a data set: whole numbers from 0, of any numeric dtype. What is not one is never made one by rounding."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_CLASSES = 100_000
"""Classes that a task may have; a label is below."""
BFLOAT16 = "are bfloat16, which has no whole numbers between 256 and 258; send them as int64, or values as float32"
"""Why such labels are refused wherever they come."""


def not_whole(labels: NDArray[Any]) -> list[tuple[NDArray[np.bool_], str]]:
    """Return the rule of all labels that count, for devices and server data: what breaks it, with the remedy.

    Args:
        labels: [...], any kind of number; whole numbers of each are taken, and are the same as int64.
    """
    if labels.dtype.kind != "f":
        return []
    return [
        (~np.isfinite(labels), "every sample needs a class; leave out those without"),
        (labels != np.floor(labels), "labels with fractions are scores, no classes; send whole numbers from 0"),
    ]


def class_numbers(labels: NDArray[np.generic], samples: int) -> NDArray[np.int64]:
    """Return labels [N] of any kind of number as class numbers [N]; whole floats (1.0) may stand for them.

    Args:
        labels: as they were given.
        samples: N.

    Raises:
        ValueError: names the first label that is no class number, and the remedy.
    """
    if labels.dtype.kind not in "biuf":
        raise ValueError(
            f"labels are no numbers ({labels.dtype}); number the classes from 0, such as "
            "numpy.unique(labels, return_inverse=True)[1]"
        )
    if labels.ndim != 1:
        remedy = "; one-hot labels become that by argmax(1)" if labels.ndim == 2 and labels.shape[1] > 1 else ""
        raise ValueError(f"labels have shape {list(labels.shape)}; send one a sample, shape [{samples}]{remedy}")
    if len(labels) != samples:
        raise ValueError(f"there are {len(labels)} labels for {samples} inputs; pair them one to one")
    numbers = labels.astype(np.float64)
    for wrong, remedy in (
        *not_whole(labels),
        (numbers < 0, "labels start at 0"),
        (numbers >= MOST_CLASSES, f"labels are class numbers from 0, below {MOST_CLASSES}"),
    ):
        if wrong.any():
            index = int(np.argmax(wrong))
            raise ValueError(f"label {index} is {numbers[index]:g}; {remedy}")
    return labels.astype(np.int64)
