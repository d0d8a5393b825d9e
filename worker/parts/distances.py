"""How far updates lie from the model that they started from, and which lie far from the others' (no update is changed).

Symbols: w the round's model, w_k the update of client k, both over the parameters: buffers are no part of any distance.
Norms are Euclidean, in the parameters' own unit.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np

from contract.tensors import Array, Header
from worker.parts.arrays import Float
from worker.parts.blocks import Block, Readers, Source, blocks, header_of, parameters
from worker.parts.folding import Accumulator
from worker.parts.rooms import wide_room

FACTOR = 5.0
"""An outlier lies more than so many spreads off the median (modified z-score of Iglewicz and Hoaglin 1993: 3.5)."""
LEAST_SPREAD = math.log(1.25)
"""Of logarithms. Clients that are alike to a per cent are none the worse for one that is five per cent off."""
FEW = 4
"""Fewer have no spread to speak of: of them only a ratio of norms beyond `LOW` and `HIGH` stands out."""
LOW, HIGH = 0.5, 2.0
NEAR = 0.01
"""Of the median distance. Whoever has little data lies nearer than others; this near lies who sends the model back."""
_MAD = 1.4826
"""Median absolute deviation -> standard deviation, of a normal distribution."""
_LARGEST = float(np.finfo(np.float64).max)
"""Infinity is no JSON, and a round's figures are."""
_FILES = 4
"""Blocks are as large as of so many files, whoever else takes part: a client's figures are its own."""
_PART = 1 << 17
"""Values that are squared and added at once: a mebibyte, so that what is done to them takes long beside the word to do
it, which one thread can give at a time."""


@dataclass(frozen=True)
class Distance:
    """Where one update lies.

    Attributes:
        base: ||w||.
        norm: ||w_k||.
        distance: ||w_k - w||; the largest number there is where it is beyond.
    """

    base: float
    norm: float
    distance: float

    @property
    def norm_ratio(self) -> float | None:
        """||w_k|| / ||w||, the largest number there is where it is beyond; None where w is zero."""
        return self._of_base(self.norm)

    @property
    def relative(self) -> float | None:
        """||w_k - w|| / ||w||, the largest number there is where it is beyond; None where w is zero."""
        return self._of_base(self.distance)

    def _of_base(self, length: float) -> float | None:
        return min(length / self.base, _LARGEST) if self.base > 0 else None


def measure_files(
    sources: Sequence[Source], base: Path, on_source: Callable[[], None] = lambda: None
) -> dict[str, Distance]:
    """Return where each source lies, in one pass over the files and in memory of two blocks, whatever their number.

    Each one's figures depend on its file and the model's only. One that is not finite has none.

    Args:
        sources: files with the model's tensors; weights are not looked at.
        base: file of the round's model w; its metadata names the buffers.
        on_source: called before each block; what it raises ends the job.

    Raises:
        PartError: schema_mismatch, naming the file.
    """
    header = header_of(base)
    trained = frozenset(parameters(header))
    sums = np.zeros((len(sources), 2))
    whole = 0.0
    files = [(f"update of {source.name}", source.path) for source in sources]
    with Readers([("the round's model", base)], header) as model, Readers(files, header) as updates:
        for block in blocks(header, _FILES, trained.__contains__):
            on_source()
            start = model.floats(block)[0]
            whole += _squares(start)
            with np.errstate(invalid="ignore", over="ignore"):
                for sum_, piece in zip(sums, updates.pieces(block), strict=True):
                    sum_ += _lengths(piece, start)
    return _placed([source.name for source in sources], sums, whole)


class Widening(Accumulator, Protocol):
    """An accumulator of floats that is spared what somebody else has done already."""

    def add_widened(self, values: Array, wide: Array, weight: float, finite: bool) -> None:
        """Take values, and the same as float64 to be changed; `finite` says that all are, else it is not known."""


class Meter:
    """Measures files as `measure_files` does, bit for bit, while a mean reads them: blocks come to both.

    Args:
        base: file of the round's model w, open for the length of the block.
    """

    def __init__(self, base: Path):
        self._header = header_of(base)
        self._model = Readers([("the round's model", base)], self._header)
        self._parts: dict[Block, Float] = {}

    def __enter__(self) -> "Meter":
        return self

    def __exit__(self, *error: object) -> None:
        self._model.__exit__(None, None, None)

    def cut(self, header: Header) -> Iterator[Block]:
        """Cut a model into blocks whose sums can be added up to those that `measure_files` has."""
        for block in blocks(header, _FILES):
            yield from _halved(block)

    def beside(self, mean: Widening, block: Block) -> Accumulator:
        """Return an accumulator that is `mean` and measures what comes to it; of parameters only. From any thread."""
        if not block.parameter:
            return mean
        start = self._model.floats(block, into=wide_room("start", block.count)[np.newaxis])[0]
        return _Measured(mean, start, partial(self._parts.__setitem__, block))

    def found(self, names: Sequence[str]) -> dict[str, Distance]:
        """Return where each file lies, by the names of all in the order in which they came; after the last block."""
        sums = np.zeros((len(names) + 1, 2))
        for block in blocks(self._header, _FILES, frozenset(parameters(self._header)).__contains__):
            with np.errstate(invalid="ignore", over="ignore"):
                sums += _joined(block.count, (self._parts[part] for part in _halved(block)))
        return _placed(names, sums[1:], sums[0, 0])


class _Measured:
    """A mean of one block, and the squares of ||w||, ||w_k|| and ||w_k - w|| of it."""

    def __init__(self, mean: Widening, start: Float, tell: Callable[[Float], None]):
        self._mean, self._start, self._tell = mean, start, tell
        self._wide, self._room = wide_room("wide", len(start)), wide_room("square", len(start))
        self._found = [(float(np.square(start, out=self._room).sum()), 0.0)]

    def add(self, values: Array, weight: float) -> None:
        wide, room = self._wide, self._room
        wide[:] = values
        with np.errstate(invalid="ignore", over="ignore"):
            norm = float(np.square(wide, out=room).sum())
            np.subtract(wide, self._start, out=room)
            self._found.append((norm, float(np.square(room, out=room).sum())))
        self._mean.add_widened(values, wide, weight, math.isfinite(norm))

    def result(self) -> Array:
        self._tell(np.array(self._found))
        return self._mean.result()


def _half(count: int) -> int:
    """Return where numpy cuts values that it adds (pairwise summation)."""
    return count // 2 - count // 2 % 8


def _halved(block: Block) -> Iterator[Block]:
    """Cut a block in two, and those again, until they are of `_PART` values at most."""
    if block.count <= _PART:
        yield block
        return
    half = _half(block.count)
    yield from _halved(replace(block, count=half))
    yield from _halved(replace(block, start=block.start + half, count=block.count - half))


def _joined(count: int, parts: Iterator[Float]) -> Float:
    """Add up what was found of the blocks that `_halved` makes of one of `count` values, as numpy would."""
    if count <= _PART:
        return next(parts)
    first = _joined(_half(count), parts)
    return first + _joined(count - _half(count), parts)


def _placed(names: Sequence[str], sums: Float, whole: float) -> dict[str, Distance]:
    """Return where files lie of the squares of ||w_k|| and ||w_k - w|| [m, 2] and of ||w||."""
    length = _root(whole)
    return {
        name: Distance(length, _root(norm), _root(distance))
        for name, (norm, distance) in zip(names, sums, strict=True)
        if not math.isnan(norm + distance)
    }


def _lengths(values: Array, start: Float) -> Float:
    """Return the squares of ||w_k|| and ||w_k - w|| [2] of one block.

    Halves are added as numpy adds them itself (pairwise summation), so that the sum is that of the block as a whole.
    """
    if len(values) > _PART:
        half = _half(len(values))
        return _lengths(values[:half], start[:half]) + _lengths(values[half:], start[half:])
    wide = values.astype(np.float64)
    norm = _squares(wide)
    return np.array([norm, _squares(np.subtract(wide, start, out=wide))])


def _squares(values: Float) -> float:
    return float(np.square(values).sum())


def _root(squares: float) -> float:
    return min(math.sqrt(squares), _LARGEST)


def scores(values: Sequence[float]) -> Float:
    """Return how many spreads [m] each value's logarithm lies off the median of all, with its sign.

    The spread is the median absolute deviation, scaled as a standard deviation, and `LEAST_SPREAD` at least.

    Args:
        values: [m] of at least 0; a zero counts as the smallest number there is.
    """
    logs = np.log(np.maximum(np.asarray(values, dtype=np.float64), np.finfo(np.float64).tiny))
    off = logs - np.median(logs)
    return np.asarray(off / max(_MAD * float(np.median(np.abs(off))), LEAST_SPREAD))


def outliers(found: Mapping[str, Distance], *, starts_at_model: bool = True) -> dict[str, str]:
    """Return the clients whose update lies far from the others', with the reason in words; judged by norm and distance.

    Args:
        found: of the clients that trained one model.
        starts_at_model: updates start from w. Otherwise the norms of few clients say nothing.
    """
    if len(found) < FEW:
        ratios = {client: each.norm_ratio for client, each in found.items()}
        return {
            client: _norm(ratio, None)
            for client, ratio in ratios.items()
            if starts_at_model and ratio is not None and not LOW <= ratio <= HIGH
        }
    norms, far = scores([each.norm for each in found.values()]), scores([each.distance for each in found.values()])
    norm, distance = (float(np.median([getattr(each, of) for each in found.values()])) for of in ("norm", "distance"))
    reasons = {}
    for (client, each), by_norm, by_distance in zip(found.items(), norms, far, strict=True):
        unit = each.base if each.base > 0 else 1.0
        if abs(by_norm) > FACTOR:
            reasons[client] = _norm(each.norm / unit, norm / unit)
        elif by_distance > FACTOR or each.distance < NEAR * distance:
            own, others = each.distance / unit, distance / unit
            reasons[client] = f"it lies {own:.3g} of the model's norm off, the median {others:.3g}"
    return reasons


def _norm(ratio: float, median: float | None) -> str:
    low = ratio < (LOW if median is None else median)
    others = "" if median is None else f", the median {median:.3g}"
    return f"its norm is {ratio:.3g} of the model's{others}" + (
        ": does it hold the difference from the model, instead of the weights?" if low else ""
    )


def too_far(found: Mapping[str, Distance], most: float) -> dict[str, str]:
    """Return the clients whose relative distance is above `most`, with the reason; nobody where w is zero.

    Args:
        most: of ||w_k - w|| / ||w||.
    """
    return {
        client: f"it lies {each.relative:.3g} of the model's norm off, and rounds.max_distance is {most:g}"
        for client, each in found.items()
        if each.relative is not None and each.relative > most
    }
