"""Fuse: clients' weights -> one set of weights. numpy only; files are read in pieces, never whole.

Symbols: m clients, n_k samples of client k, theta_k its tensors.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from contract.tensors import (
    DTYPES,
    FLOATS,
    Array,
    Header,
    TensorError,
    TensorFile,
    TensorWriter,
    compare,
    dtype_name,
)
from contract.updates import MODEL_KEYS
from worker.parts.arrays import floats
from worker.parts.errors import PartError

IntRule = Literal["max", "round_mean"]
PASS_VALUES = 1 << 24
"""Values that are accumulated in one pass over the clients: 128 MiB of float64, whatever their number."""
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Source:
    """One client's file and what it counts.

    Attributes:
        name: shown in errors; sources are processed in the order of their names.
        path: safetensors file.
        weight: n_k (or 1 for a uniform mean); 0 keeps the file from being read at all.
    """

    name: str
    path: Path
    weight: float


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


# ------------------------------------------------------------------------------------------------- one block of values
class _Sum(Protocol):
    def add(self, values: Array, weight: float) -> None: ...

    def result(self) -> Array: ...


class _FloatMean:
    """Sum of w_k theta_k in float64, divided by sum w at the end: m equal clients give exactly their own values."""

    def __init__(self, dtype: np.dtype[Any]):
        self._dtype = dtype
        self._total: Array | None = None
        self._weight = 0.0
        self._first: Array | None = None

    def add(self, values: Array, weight: float) -> None:
        wide = values.astype(np.float64)
        if not np.isfinite(wide).all():
            raise PartError("non_finite", "NaN or infinity")
        if self._total is None:  # not zeros + ...: that would turn -0.0 into 0.0
            self._total, self._first = wide * weight, values.copy() if self._dtype == np.float64 else None
        else:
            self._total += wide * weight
            self._first = None
        self._weight += weight

    def result(self) -> Array:
        if self._first is not None:  # one client in float64: w x / w need not be x
            return self._first
        assert self._total is not None
        mean = self._total / self._weight
        if not np.isfinite(mean).all():
            raise PartError("non_finite", "the average overflows float64; the values are too large to be weights")
        return mean.astype(self._dtype)


class _IntMax:
    """Elementwise maximum in the tensor's own integer type, OR for bool: exact, and independent of order."""

    def __init__(self, dtype: np.dtype[Any]):
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


def _sum_for(dtype: str, int_rule: IntRule) -> _Sum:
    if int_rule not in ("max", "round_mean"):
        raise PartError("bad_option", f"int_rule {int_rule!r} is not known; use 'max' or 'round_mean'")
    if dtype in FLOATS:
        return _FloatMean(DTYPES[dtype])
    if int_rule == "round_mean" and dtype != "BOOL":
        return _IntRoundMean(DTYPES[dtype])
    return _IntMax(DTYPES[dtype])


# --------------------------------------------------------------------------------------------------------- whole files
@dataclass(frozen=True)
class _Piece:
    name: str
    start: int
    count: int
    dtype: str


def _pieces(header: Header) -> Iterator[_Piece]:
    for name, info in header.tensors.items():
        for start in range(0, info.numel, _BLOCK):
            yield _Piece(name, start, min(_BLOCK, info.numel - start), info.dtype)


def _passes(header: Header) -> Iterator[list[_Piece]]:
    """Cut a model into runs of pieces that fit the accumulator; each run is one pass over the clients' files."""
    run: list[_Piece] = []
    held = 0
    for piece in _pieces(header):
        if run and held + piece.count > PASS_VALUES:
            yield run
            run, held = [], 0
        run.append(piece)
        held += piece.count
    if run:
        yield run


def _check_schema(source: Source, base: Header) -> None:
    try:
        with TensorFile(source.path) as file:
            compare(file.header, base)
    except TensorError as error:
        raise PartError("schema_mismatch", f"update of {source.name!r}: {error.detail}") from error


def _one_pass(
    pieces: list[_Piece], sources: Sequence[Source], int_rule: IntRule, on_source: Callable[[], None]
) -> Iterator[Array]:
    """Read every source once and yield the pieces' results; each sum is let go when its result is taken."""
    sums = [_sum_for(piece.dtype, int_rule) for piece in pieces]
    for source in sources:
        on_source()
        with TensorFile(source.path) as file:
            for piece, total in zip(pieces, sums, strict=True):
                try:
                    total.add(file.read_block(piece.name, piece.start, piece.count), source.weight)
                except PartError as error:
                    where = f"update of {source.name!r}, tensor {piece.name!r}: {error.detail}"
                    raise PartError(error.code, where) from error
    sums.reverse()
    while sums:
        yield sums.pop().result()


def average_files(
    sources: Sequence[Source],
    output: Path,
    *,
    base: Header | None = None,
    int_rule: IntRule = "max",
    on_source: Callable[[], None] = lambda: None,
) -> list[str]:
    """Write the weighted average of the sources' files (FedAvg; FedDF Alg. 1 line 6) and return who contributed.

    Floating tensors, parameters and BatchNorm statistics alike, become sum_k n_k theta_k / sum n, summed in float64;
    integer buffers the elementwise maximum, bool buffers the OR. The result has the base's tensor order, dtypes and
    buffer list. Memory: one accumulator of `PASS_VALUES` and one block, whatever the number of clients.

    Args:
        sources: the clients' files; any order gives the same bytes.
        output: file to write.
        base: header of the model they started from; default the first source's.
        int_rule: 'max', or 'round_mean' for the n_k mean rounded half to even.
        on_source: called before each reading of a source; what it raises ends the job.

    Raises:
        PartError: no_positive_weight, bad_weight, schema_mismatch or non_finite; errors name client and tensor.
    """
    kept = contributors([source.weight for source in sources])
    ordered = sorted((sources[i] for i in kept), key=lambda source: source.name)
    if base is None:
        with TensorFile(ordered[0].path) as first:
            base = first.header
    for source in ordered:
        _check_schema(source, base)
    infos = {name: (info.dtype, info.shape) for name, info in base.tensors.items()}
    metadata = {key: value for key, value in base.metadata.items() if key in MODEL_KEYS}
    with TensorWriter(output, infos, metadata) as writer:
        for pieces in _passes(base):
            for piece, values in zip(pieces, _one_pass(pieces, ordered, int_rule, on_source), strict=True):
                writer.write(piece.name, values)
    return [source.name for source in ordered]


@dataclass(frozen=True)
class Average:
    """A weighted average in memory.

    Attributes:
        state: its tensors, with the inputs' dtypes.
        total: sum of the weights.
        contributors: indices of the states that counted.
    """

    state: dict[str, Array]
    total: float
    contributors: list[int]


def average_arrays(
    states: Sequence[Mapping[str, Array]], weights: Sequence[float], *, int_rule: IntRule = "max"
) -> Average:
    """Return the weighted average of states in memory: the rule of `average_files`, in the order given.

    Raises:
        PartError: as `average_files`.
    """
    if len(states) != len(weights):
        raise PartError("schema_mismatch", f"{len(states)} states but {len(weights)} weights")
    kept = contributors(weights)
    first = states[kept[0]]
    layout = {name: (array.shape, array.dtype) for name, array in first.items()}
    for i in kept:
        if {name: (array.shape, array.dtype) for name, array in states[i].items()} != layout:
            raise PartError("schema_mismatch", f"state {i} has other tensors than state {kept[0]}")
    result: dict[str, Array] = {}
    for name, array in first.items():
        try:
            total = _sum_for(dtype_name(array), int_rule)
        except TensorError as error:
            raise PartError("schema_mismatch", f"tensor {name!r}: {error.detail}") from error
        for i in kept:
            total.add(states[i][name], float(weights[i]))
        result[name] = total.result()
    return Average(result, float(sum(weights[i] for i in kept)), kept)
