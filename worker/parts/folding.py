"""Models folded block by block: a rule takes one file after another, in memory of a few blocks.

Where the files are few, threads do blocks side by side; each value's sum is in the order of the files all the same.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import Protocol

import numpy as np

from contract.tensors import DTYPES, Array, Header, TensorFile
from worker.parts import blocks
from worker.parts.blocks import Block, Source, check, everything, header_of, model_writer, pieces, subset
from worker.parts.errors import PartError
from worker.parts.rooms import forget, reused, room
from worker.parts.side_by_side import THREADS, in_order

FOLDED = 1 << 24
"""Values that `fold_files` accumulates in one pass over more than `blocks.MOST_OPEN` files: 128 MiB of float64."""
FOLDED_BLOCK = 1 << 17
"""Values that it reads at once: their sum, a mebibyte, stays in the processor's cache."""
SMALL = 1 << 21
"""Values of all files that are folded by one thread: sooner than two have begun."""


class Accumulator(Protocol):
    """A rule that takes one model's block after another, in memory of one block."""

    def add(self, values: Array, weight: float) -> None:
        """Take the next model's values [count], which are lent for the call; what it counts is above 0."""

    def result(self) -> Array:
        """Return the values [count] of the result, in the models' dtype."""


def fold_files(
    sources: Sequence[Source],
    output: Path,
    start: Callable[[Block], Accumulator],
    base: Header | None = None,
    only: Callable[[str], bool] = everything,
    on_source: Callable[[], None] = lambda: None,
    cut: Callable[[Header], Iterator[Block]] | None = None,
) -> None:
    """Write the model that an accumulator makes of each block.

    Up to `MOST_OPEN` files stay open and give one block in turn, so that its sum never leaves the processor's cache;
    threads do blocks side by side. Of more, one is open at a time and gives many blocks.

    Memory: a few blocks read, and accumulators of as many, or of `FOLDED` values where there are more files.

    Args:
        sources: one at least, with positive weights, added in this order.
        output: the file to make.
        start: block -> an accumulator for it; called from several threads, for each block in one of them.
        base: the tensors; those of the first file by default.
        only: which of them; the others are not looked at.
        on_source: called before a file is read, or a block of all files; what it raises ends the job.
        cut: cuts the model into blocks, in file order; by default of `FOLDED_BLOCK` values.

    Raises:
        PartError: schema_mismatch, and what the accumulators raise; it names client and tensor.
    """
    base = subset(header_of(sources[0].path) if base is None else base, only)
    cut_up = pieces(base, FOLDED_BLOCK) if cut is None else cut(base)
    with ExitStack() as kept:
        kept.callback(forget)
        files = []
        for source in sources:
            file = TensorFile(source.path)
            with file if len(sources) > blocks.MOST_OPEN else nullcontext(kept.enter_context(file)):
                check(f"update of {source.name!r}", file.header, base, only)
            if len(sources) <= blocks.MOST_OPEN:
                files.append(file)
        writer = kept.enter_context(model_writer(output, base))
        if len(sources) > blocks.MOST_OPEN:
            made = _passes(_runs(cut_up, FOLDED), sources, start, on_source)
        else:
            threads = THREADS if sum(info.numel for info in base.tensors.values()) * len(files) > SMALL else 1
            runs = _runs(cut_up, FOLDED_BLOCK)
            made = in_order(lambda run: _folded(run, sources, files, start), runs, on_source, threads)
        for run, folded in kept.enter_context(closing(made)):
            for block, values in zip(run, folded, strict=True):
                writer.write(block.name, values)


def _passes(
    runs: Iterable[list[Block]],
    sources: Sequence[Source],
    start: Callable[[Block], Accumulator],
    on_source: Callable[[], None],
) -> Generator[tuple[list[Block], Iterable[Array]]]:
    for run in runs:
        yield run, _one_pass(run, sources, start, on_source)


def _folded(
    run: Sequence[Block], sources: Sequence[Source], files: Sequence[TensorFile], start: Callable[[Block], Accumulator]
) -> list[Array]:
    """Return the blocks' results; of each, one file after another gives its values."""
    found = []
    with reused():
        for block in run:
            total, lent = start(block), room("lent", block.count, DTYPES[block.dtype])
            for source, file in zip(sources, files, strict=True):
                _add(total, source, block, file.read_block(block.name, block.start, block.count, lent))
            found.append(total.result())
    return found


def _add(total: Accumulator, source: Source, block: Block, values: Array) -> None:
    try:
        total.add(values, source.weight)
    except PartError as error:
        where = f"update of {source.name!r}, tensor {block.name!r}: {error.detail}"
        raise PartError(error.code, where) from error


def _runs(cut_up: Iterable[Block], most: int) -> Iterator[list[Block]]:
    """Put blocks into runs of one, or of `most` values; each run is one pass over the files."""
    run: list[Block] = []
    held = 0
    for block in cut_up:
        if run and held + block.count > most:
            yield run
            run, held = [], 0
        run.append(block)
        held += block.count
    if run:
        yield run


def _one_pass(
    run: Sequence[Block],
    sources: Sequence[Source],
    start: Callable[[Block], Accumulator],
    on_source: Callable[[], None],
) -> Iterator[Array]:
    """Read every file once and yield the blocks' results; each accumulator is let go when its result is taken."""
    sums = [start(block) for block in run]
    lent = {block.dtype: np.empty(0, DTYPES[block.dtype]) for block in run}
    for block in run:
        if block.count > len(lent[block.dtype]):
            lent[block.dtype] = np.empty(block.count, DTYPES[block.dtype])
    for source in sources:
        on_source()
        with TensorFile(source.path) as file:
            for block, total in zip(run, sums, strict=True):
                _add(total, source, block, file.read_block(block.name, block.start, block.count, lent[block.dtype]))
    sums.reverse()
    while sums:
        yield sums.pop().result()
