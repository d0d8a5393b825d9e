"""Checks that every numerical rule makes of its arrays: numbers, one shape for all, finite."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from worker.parts.errors import PartError

Float = NDArray[np.float64]


def floats(name: str, values: ArrayLike, ndim: int | None = None) -> Float:
    """Return values as a float64 array.

    Args:
        name: shown in errors.
        values: an array, or nested lists of numbers.
        ndim: number of axes it must have; None for any.

    Raises:
        PartError: schema_mismatch (rows of unequal length, or another number of axes).
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise PartError("schema_mismatch", f"{name}: not an array of numbers, its rows differ in length") from error
    if ndim is not None and array.ndim != ndim:
        raise PartError("schema_mismatch", f"{name}: {ndim} axes are needed, not {array.ndim}")
    return array


def finite(name: str, array: Float) -> Float:
    """Return the array, of any shape; `name` is shown in the error.

    Raises:
        PartError: non_finite.
    """
    if not np.isfinite(array).all():
        raise PartError("non_finite", f"{name}: NaN or infinity")
    return array


def probabilities(name: str, array: Float, slack: float = 0.0) -> Float:
    """Return the array, of any shape, of numbers in [0, 1]; they may be `slack` above 1.

    Raises:
        PartError: non_finite, out_of_range.
    """
    if ((finite(name, array) < 0) | (array > 1 + slack)).any():
        raise PartError("out_of_range", f"a {name} is outside [0, 1]")
    return array


def stacked(name: str, rows: Sequence[ArrayLike]) -> Float:
    """Return one finite array [m, ...] of the clients' arrays.

    Args:
        name: shown in errors.
        rows: an array per client, all of one shape.

    Raises:
        PartError: no_participants (nobody), schema_mismatch, non_finite.
    """
    if not hasattr(rows, "__len__"):
        raise PartError("schema_mismatch", f"{name}: a single number, not one array a client")
    if len(rows) == 0:
        raise PartError("no_participants", f"{name}: there is nobody; at least one client is needed")
    arrays = [floats(f"{name} of client {index}", row) for index, row in enumerate(rows)]
    for index, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise PartError("schema_mismatch", f"{name} of client {index}: {array.shape}, not {arrays[0].shape}")
    return np.stack([finite(f"{name} of client {index}", array) for index, array in enumerate(arrays)])


def option(name: str, value: float, *, low: float = 0.0, high: float = np.inf, open_low: bool = False) -> float:
    """Return a number that lies in [low, high) and is finite; in (low, high) with `open_low`.

    Raises:
        PartError: bad_option.
    """
    if not (np.isfinite(value) and low <= value < high) or (open_low and value == low):
        bounds = f"{'above' if open_low else 'at least'} {low}" + (f" and below {high}" if np.isfinite(high) else "")
        raise PartError("bad_option", f"{name} is {value}; it must be finite, {bounds}")
    return value
