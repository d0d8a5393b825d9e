"""Means of models by weight, and who counts in them (FedAvg; FedDF Alg. 1 line 6). numpy only.

Symbols: m clients, n_k samples of client k, theta_k its tensors.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from contract.tensors import DTYPES, FLOATS, Array, Header
from worker.parts.arrays import floats
from worker.parts.blocks import Block, Source, everything
from worker.parts.distances import Meter
from worker.parts.errors import PartError
from worker.parts.folding import Accumulator, fold_files
from worker.parts.rooms import wide_room

IntRule = Literal["max", "round_mean"]


def contributors(weights: Sequence[float]) -> list[int]:
    """Return the indices of the clients that count.

    Raises:
        PartError: bad_weight (negative or not finite), no_positive_weight.
    """
    values = floats("weights", weights, 1)
    if not np.isfinite(values).all() or (values < 0).any():
        raise PartError("bad_weight", "a weight is negative or not finite; weights are numbers of samples")
    kept = [int(i) for i in np.flatnonzero(values > 0)]
    if not kept:
        raise PartError("no_positive_weight", "no client has a positive weight; there is nothing to average")
    return kept


def shares(weights: Sequence[float]) -> list[float]:
    """Return each client's part of the average, n_k / sum n; the sum is 1.

    Raises:
        PartError: as `contributors`.
    """
    contributors(weights)
    values = np.asarray(weights, dtype=np.float64)
    return [float(value) for value in values / values.sum()]


def ordered(sources: Sequence[Source]) -> list[Source]:
    """Return the sources that count, by name: any order of arrival gives the same bytes.

    Raises:
        PartError: as `contributors`.
    """
    kept = contributors([source.weight for source in sources])
    return sorted((sources[i] for i in kept), key=lambda source: source.name)


def named(sources: Sequence[Source]) -> list[tuple[str, Path]]:
    """Return the sources' files with what errors call them."""
    return [(f"update of {source.name}", source.path) for source in sources]


# ------------------------------------------------------------------------------------------------- one block of values
class _FloatMean:
    """Sum of w_k theta_k in float64, divided by sum w at the end: m equal clients give exactly their own values."""

    def __init__(self, dtype: np.dtype[Any]):
        self._dtype = dtype
        self._total: Array | None = None
        self._wide: Array | None = None
        self._weight = 0.0
        self._first: Array | None = None

    def add(self, values: Array, weight: float) -> None:
        if self._wide is None:
            self._wide = wide_room("unmeasured", values.size).reshape(values.shape)
        wide = self._wide
        wide[:] = values
        with np.errstate(all="ignore"):
            total = wide.sum()  # over any NaN or infinity it is not finite; the converse needs the slow look
        self.add_widened(values, wide, weight, bool(np.isfinite(total)))

    def add_widened(self, values: Array, wide: Array, weight: float, finite: bool) -> None:
        if not finite and not np.isfinite(wide).all():
            raise PartError("non_finite", "NaN or infinity")
        wide *= weight
        if self._total is None:  # not zeros + ...: that would turn -0.0 into 0.0
            self._total, self._first = (
                wide_room("total", len(wide)),
                values.copy() if self._dtype == np.float64 else None,
            )
            self._total[:] = wide
        else:
            self._total += wide
            self._first = None
        self._weight += weight

    def result(self) -> Array:
        if self._first is not None:  # one client in float64: w x / w need not be x
            return self._first
        assert self._total is not None
        self._total /= self._weight
        if not np.isfinite(self._total).all():
            raise PartError("non_finite", "the average overflows float64; the values are too large to be weights")
        return self._total.astype(self._dtype)


class _IntMax:
    """Elementwise maximum in the tensor's own integer type, OR for bool: exact, and independent of order."""

    def __init__(self) -> None:
        self._best: Array | None = None

    def add(self, values: Array, weight: float) -> None:
        self._best = values.copy() if self._best is None else np.maximum(self._best, values)

    def result(self) -> Array:
        assert self._best is not None
        return self._best


class _IntRoundMean:
    """Mean of integers, rounded half to even, in Python's unbounded integers; the weights are whole numbers."""

    def __init__(self, dtype: np.dtype[Any]):
        self._dtype = dtype
        self._total: Array | None = None
        self._weight = 0

    def add(self, values: Array, weight: float) -> None:
        if weight != int(weight):
            raise PartError("bad_weight", "a rounded mean of integers needs whole numbers as weights")
        part = values.astype(object) * int(weight)
        self._total = part if self._total is None else self._total + part
        self._weight += int(weight)

    def result(self) -> Array:
        assert self._total is not None
        floor, rest = self._total // self._weight, self._total % self._weight
        up = np.asarray((2 * rest > self._weight) | ((2 * rest == self._weight) & (floor % 2 == 1)))
        return np.asarray(floor + up.astype(object)).astype(self._dtype)


def accumulator(dtype: str, int_rule: IntRule = "max") -> Accumulator:
    """Return the mean of one block, to which clients are added one after another with their weights.

    Floating values become sum_k n_k theta_k / sum n, summed in float64; integers the elementwise maximum, bools the OR.

    Args:
        dtype: the tensor's, by its name in a file.
        int_rule: 'max', or 'round_mean' for the n_k mean of integers rounded half to even.

    Raises:
        PartError: bad_option.
    """
    if int_rule not in ("max", "round_mean"):
        raise PartError("bad_option", f"int_rule {int_rule!r} is not known; use 'max' or 'round_mean'")
    if dtype in FLOATS:
        return _FloatMean(DTYPES[dtype])
    if int_rule == "round_mean" and dtype != "BOOL":
        return _IntRoundMean(DTYPES[dtype])
    return _IntMax()


# --------------------------------------------------------------------------------------------------------------- files
def average_files(
    sources: Sequence[Source],
    output: Path,
    *,
    base: Header | None = None,
    only: Callable[[str], bool] = everything,
    int_rule: IntRule = "max",
    on_source: Callable[[], None] = lambda: None,
    meter: Meter | None = None,
) -> list[str]:
    """Write the weighted average of the sources' files and return who contributed.

    Parameters and BatchNorm statistics alike are averaged, as `accumulator` says. The result has the base's tensor
    order, dtypes and buffer list.

    Args:
        sources: the clients' files; any order gives the same bytes.
        output: file to write.
        base: header of the model they started from; default the first source's.
        only: which tensors are averaged; the others are not looked at.
        int_rule: as in `accumulator`.
        on_source: called often, as in `fold_files`; what it raises ends the job.
        meter: measures the files that contribute on their way, at most `MOST_OPEN`.

    Raises:
        PartError: no_positive_weight, bad_weight, schema_mismatch or non_finite; errors name client and tensor.
    """
    counted = ordered(sources)

    def start(block: Block) -> Accumulator:
        mean = accumulator(block.dtype, int_rule)
        return meter.beside(mean, block) if meter is not None and isinstance(mean, _FloatMean) else mean

    fold_files(counted, output, start, base, only, on_source, None if meter is None else meter.cut)
    return [source.name for source in counted]
