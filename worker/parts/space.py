"""Room for numbers of a whole data set: in memory, or in a file where they are many."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

HELD = 2**28
"""Bytes that are held in memory; what is larger lies on the disk, and the system keeps of it what it has room for."""


def is_held(shape: tuple[int, ...], dtype: DTypeLike) -> bool:
    """Whether an array of this shape and type is held in memory."""
    return math.prod(shape) * np.dtype(dtype).itemsize <= HELD


def space(shape: tuple[int, ...], dtype: DTypeLike, path: Path) -> NDArray[Any]:
    """Return an array of zeros.

    Args:
        shape: its shape.
        dtype: its type.
        path: of the file, where it needs one. It has no name any longer when this returns: it goes with the array.
    """
    if is_held(shape, dtype):
        return np.zeros(shape, dtype)
    made = np.memmap(path, dtype=dtype, mode="w+", shape=shape)
    path.unlink()
    return made
