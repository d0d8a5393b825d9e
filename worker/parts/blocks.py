"""Rules driven on models' files, block by block: memory is bounded whatever the size and number of files.

A rule is a function of one block of values, and knows no file. `reduce_files` gives it all files' values at once; what
takes one file after another is in `worker.parts.folding`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

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
)
from contract.updates import MODEL_KEYS
from worker.parts.arrays import Float
from worker.parts.errors import PartError
from worker.parts.rooms import room

BUDGET = 1 << 22
"""Values held at once over all files: 32 MiB of float64."""
MOST_OPEN = 32
"""Files that are kept open; of more, each is opened for its block: a process may open 1024, often fewer."""


def everything(name: str) -> bool:
    """Keep every tensor."""
    return True


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


class BadResult(PartError):
    """A rule made no values of a model: NaN of finite ones, or another number of them."""


@dataclass(frozen=True)
class Block:
    """A run of flat values of one tensor, with the tensor's dtype and whether it is a parameter."""

    name: str
    start: int
    count: int
    dtype: str
    parameter: bool

    @property
    def floating(self) -> bool:
        """Whether the tensor holds floats."""
        return self.dtype in FLOATS


def parameters(header: Header) -> list[str]:
    """Return the names of a model's parameters: floating, and not named buffers by the file's metadata."""
    buffers = header.buffers
    return [name for name, info in header.tensors.items() if info.dtype in FLOATS and name not in buffers]


def blocks(header: Header, files: int, only: Callable[[str], bool] = everything) -> Iterator[Block]:
    """Cut a model into blocks, such that a block of each of `files` files fits `BUDGET`.

    Args:
        header: the model.
        files: number of files that are read side by side.
        only: which tensors; all by default.
    """
    return pieces(header, max(BUDGET // max(files, 1), 1024), only)


def pieces(header: Header, size: int, only: Callable[[str], bool] = everything) -> Iterator[Block]:
    """Cut a model into blocks of `size` values at most, in file order."""
    trained = frozenset(parameters(header))
    for name, info in header.tensors.items():
        if only(name):
            for start in range(0, info.numel, size):
                count = min(size, info.numel - start)
                yield Block(name, start, count, info.dtype, name in trained)


def header_of(path: Path) -> Header:
    """Return a file's header."""
    with TensorFile(path) as file:
        return file.header


class Readers:
    """Files of models with the tensors of `base`, open or opened as they are read.

    Args:
        files: (name shown in errors, path), read in this order.
        base: header that each file must have.
        exactly: refuse further tensors; otherwise they are not looked at.

    Raises:
        PartError: schema_mismatch.
    """

    def __init__(self, files: Sequence[tuple[str, Path]], base: Header, *, exactly: bool = False):
        self._names = [name for name, _ in files]
        with ExitStack() as stack:
            self._files = []
            for name, path in files:
                file = stack.enter_context(TensorFile(path))
                check(repr(name), file.header, base, everything if exactly else base.tensors.__contains__)
                self._files.append(file)
                if len(files) > MOST_OPEN:
                    file.rest()
            self._stack = stack.pop_all()

    def __enter__(self) -> "Readers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def __len__(self) -> int:
        return len(self._files)

    def raw(self, block: Block, prefix: str = "") -> list[Array]:
        """Return each file's values [count], as they are; of the tensor `prefix` + the block's name."""
        return list(self.pieces(block, prefix))

    def pieces(self, block: Block, prefix: str = "", lent: Array | None = None) -> Iterator[Array]:
        """Yield what `raw` returns, one file after another; all in `lent` [count], if that is given."""
        for file in self._files:
            yield file.read_block(prefix + block.name, block.start, block.count, lent)
            if len(self._files) > MOST_OPEN:
                file.rest()

    def floats(self, block: Block, prefix: str = "", into: Float | None = None) -> Float:
        """Return all files' values as float64 [m, count]; in `into`, if that is given.

        Raises:
            PartError: non_finite, naming file and tensor.
        """
        values = np.empty((len(self._files), block.count)) if into is None else into
        for index, piece in enumerate(self.pieces(block, prefix, room("piece", block.count, DTYPES[block.dtype]))):
            values[index] = piece
            if not np.isfinite(values[index]).all():
                where = f"{self._names[index]!r}, tensor {prefix + block.name!r}"
                raise PartError("non_finite", f"{where}: NaN or infinity")
        return values


def subset(header: Header, only: Callable[[str], bool]) -> Header:
    """Return the header of some of a model's tensors."""
    return Header({name: info for name, info in header.tensors.items() if only(name)}, header.metadata)


def check(whose: str, header: Header, base: Header, only: Callable[[str], bool]) -> None:
    """Refuse a file some of whose tensors are not those of `base`.

    Raises:
        PartError: schema_mismatch, beginning with `whose`.
    """
    try:
        compare(subset(header, only), base)
    except TensorError as error:
        raise PartError("schema_mismatch", f"{whose}: {error.detail}") from error


def narrow(name: str, values: Float, dtype: str) -> Array:
    """Return values of any shape in a file's dtype.

    Raises:
        BadResult: a value is NaN, which no sound rule makes of finite ones.
        PartError: non_finite, when a value does not fit.
    """
    if np.isnan(values).any():
        raise BadResult("non_finite", f"tensor {name!r}: the result is NaN or too large for {dtype}")
    with np.errstate(over="ignore", invalid="ignore"):
        result = values.astype(DTYPES[dtype])
    if not np.isfinite(result.astype(np.float64)).all():
        raise PartError("non_finite", f"tensor {name!r}: the result is NaN or too large for {dtype}")
    return result


def integers(values: Sequence[Array]) -> Array:
    """Return the elementwise maximum of integers, OR of bools: what every mean does with counters and masks."""
    best = values[0].copy()
    for other in values[1:]:
        np.maximum(best, other, out=best)
    return best


def largest_but(values: Sequence[Array], cut: int) -> Array:
    """Return the largest integers when the `cut` largest are left out, so that as many liars cannot set them.

    Exact in their own type; of bools, whether more than `cut` are true.
    """
    return np.asarray(np.sort(np.stack(values), axis=0)[len(values) - 1 - cut])


def model_writer(path: Path, base: Header) -> TensorWriter:
    """Return a writer of a model with the tensors and buffers of `base`."""
    metadata = {key: value for key, value in base.metadata.items() if key in MODEL_KEYS}
    return TensorWriter(path, {name: (info.dtype, info.shape) for name, info in base.tensors.items()}, metadata)


Rule = Callable[[Block, Float], Float]
"""(block, the files' values [m, count]) -> values [count] of the result."""


def reduce_files(
    files: Sequence[tuple[str, Path]],
    output: Path,
    rule: Rule,
    base: Header | None = None,
    of_integers: Callable[[Sequence[Array]], Array] = integers,
) -> None:
    """Write the model whose floats are `rule` of the files' floats, and whose integers are `of_integers` of theirs.

    Args:
        files: (name, path), one at least.
        output: the file to make.
        rule: called block by block, in file order.
        base: the tensors; those of the first file by default.
        of_integers: the files' values, each [count] -> [count]; their maximum by default.

    Raises:
        PartError: no_participants, schema_mismatch, non_finite, and what the rule raises.
    """
    if not files:
        raise PartError("no_participants", "there is no file; at least one is needed")
    header = header_of(files[0][1]) if base is None else base
    with Readers(files, header) as readers, model_writer(output, header) as writer:
        for block in blocks(header, len(files)):
            if block.floating:
                values = rule(block, readers.floats(block))
                if values.shape != (block.count,):
                    what = f"tensor {block.name!r}: the rule gave shape {list(values.shape)} for {block.count} values"
                    raise BadResult("schema_mismatch", what)
                writer.write(block.name, narrow(block.name, values, block.dtype))
            else:
                writer.write(block.name, of_integers(readers.raw(block)))


def like(header: Header, names: Mapping[str, str], dtype: str | None = None) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return writer infos for tensors shaped like those of `header`.

    Args:
        header: the model.
        names: new name -> name in `header`, in file order.
        dtype: of all of them; None: F64 for F64, else F32.
    """
    result = {}
    for new, old in names.items():
        info = header.tensors[old]
        result[new] = (dtype or ("F64" if info.dtype == "F64" else "F32"), info.shape)
    return result
