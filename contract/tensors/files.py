"""Files of tensors: read in blocks, written tensor by tensor, so that no model has to be in memory whole."""

import json
import math
import os
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from contract.private import private
from contract.tensors.header import (
    DTYPES,
    Array,
    TensorError,
    TensorInfo,
    header_length,
    parse_header,
)
from contract.tensors.pulse import pulse

_turn = threading.Lock()
_synced_later: ContextVar[bool] = ContextVar("potstill_synced_later", default=False)
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@contextmanager
def synced_later() -> Iterator[None]:
    """Within the block, and in this thread, files are written and not put on the disk: whoever takes them does that."""
    token = _synced_later.set(True)
    try:
        yield
    finally:
        _synced_later.reset(token)


def sync(handle: int) -> None:
    """Put an open file, or a folder's names, on the disk, but within `synced_later`."""
    if not _synced_later.get():
        os.fsync(handle)


def _open(path: Path) -> int:
    """Open a file for reading; Windows has to be told that it is no text."""
    return os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))


def _read_into(fd: int, view: memoryview, position: int) -> int:
    """Fill a view with a file's bytes from a position on; return how many there were, fewer only at its end.

    Where a system cannot read at a position (Windows), threads take turns at the file's own.
    """
    if hasattr(os, "preadv"):
        return os.preadv(fd, [view], position)
    with _turn:
        os.lseek(fd, position, os.SEEK_SET)
        data = os.read(fd, len(view))
    view[: len(data)] = data
    return len(data)


def _read(fd: int, count: int) -> bytes:
    """Return a file's first bytes."""
    data = bytearray(count)
    return bytes(data[: _read_into(fd, memoryview(data), 0)])


class TensorFile:
    """An open safetensors file. Reads tensors or blocks of them by position; nothing is mapped, so a file that is cut
    under us is an error and not a crash.

    Raises:
        TensorError: the file is not sound.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self._fd = _open(self.path)
        try:
            self._size = os.fstat(self._fd).st_size
            self._resting = False
            first = _read(self._fd, 9)
            self.header = parse_header(_read(self._fd, 8 + header_length(first)), self._size)
        except BaseException:
            os.close(self._fd)
            raise

    def __enter__(self) -> "TensorFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; closing twice does no harm."""
        self._resting = False
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def rest(self) -> None:
        """Give the file descriptor back until the next read, for whoever reads more files than may be open at once."""
        if self._fd >= 0:
            self.close()
            self._resting = True

    def _wake(self) -> None:
        self._fd = _open(self.path)
        self._resting = False
        if os.fstat(self._fd).st_size != self._size:
            raise TensorError("container", "the file is not the one that was opened: its length changed")

    @property
    def names(self) -> list[str]:
        """Tensor names in file order."""
        return list(self.header.tensors)

    def info(self, name: str) -> TensorInfo:
        """Return the tensor's dtype and shape; KeyError if there is none of that name."""
        return self.header.tensors[name]

    def read_block(self, name: str, start: int, count: int, out: Array | None = None) -> Array:
        """Return `count` flat values of the tensor from flat index `start` on, in `out` if it is given.

        Args:
            name: the tensor.
            start: flat index of the first value.
            count: number of values.
            out: 1-d array of the tensor's dtype with at least `count` places; its first part is filled and returned.

        Raises:
            IndexError: the tensor has no such values.
            TensorError: container: the file became shorter since it was opened.
        """
        info = self.info(name)
        dtype = DTYPES[info.dtype]
        if not 0 <= start <= start + count <= info.numel:
            raise IndexError(f"tensor {name!r} has {info.numel} values; asked for {start} to {start + count}")
        if self._resting:
            self._wake()
        block = np.empty(count, dtype=dtype) if out is None else out[:count]
        view = block.view(np.uint8).data.cast("B")
        position = self.header.data_start + info.begin + start * dtype.itemsize
        done = 0
        while done < len(view):
            pulse()
            got = _read_into(self._fd, view[done:], position + done)
            if got == 0:
                raise TensorError("container", f"the file ended inside tensor {name!r}", tensor=name)
            done += got
        return block

    def read(self, name: str) -> Array:
        """Return the whole tensor in memory of its own; BF16 as `ml_dtypes.bfloat16`."""
        info = self.info(name)
        return self.read_block(name, 0, info.numel).reshape(info.shape)


def head_bytes(infos: Mapping[str, tuple[str, tuple[int, ...]]], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return what a file of these tensors begins with: the length of its header, and the header."""
    tree: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name, (dtype, shape) in infos.items():
        begin, end = end, end + math.prod(shape) * DTYPES[dtype].itemsize
        tree[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    head = json.dumps(tree, separators=(",", ":"), ensure_ascii=False).encode()
    head += b" " * (-(8 + len(head)) % 8)
    return struct.pack("<Q", len(head)) + head


class TensorWriter:
    """Writes a safetensors file tensor by tensor, in pieces, so that a model never has to be in memory whole.

    The same tensors and metadata give the same bytes. Values are written in C order whatever the array's layout.

    Args:
        path: the file to make.
        infos: name -> (dtype name, shape), in the order in which they will be written.
        metadata: strings for `__metadata__`.
    """

    def __init__(
        self,
        path: Path | str,
        infos: Mapping[str, tuple[str, tuple[int, ...]]],
        metadata: Mapping[str, str] | None = None,
    ):
        self._left = {name: math.prod(shape) * DTYPES[dtype].itemsize for name, (dtype, shape) in infos.items()}
        self._dtypes = {name: DTYPES[dtype] for name, (dtype, _) in infos.items()}
        self._file = open(path, "wb", opener=private)  # noqa: SIM115 - closed by close()
        self._file.write(head_bytes(infos, metadata))

    def write(self, name: str, values: Array) -> None:
        """Write the next values of tensor `name`; tensors come in the order of the header.

        Raises:
            ValueError: another tensor's turn, another dtype, or more values than its shape has.
        """
        pulse()
        turn = next((key for key, left in self._left.items() if left), None)
        data = np.asarray(values, order="C")
        if data.dtype != self._dtypes[name]:
            raise ValueError(f"tensor {name!r}: got {data.dtype}, announced was {self._dtypes[name]}")
        if data.nbytes == 0:
            return
        if name != turn or data.nbytes > self._left[name]:
            raise ValueError(f"tensor {name!r}: out of turn ({turn!r} is due) or longer than announced")
        self._file.write(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)
        self._left[name] -= data.nbytes

    def close(self) -> None:
        """Finish the file and put it on the disk (fsync), but within `synced_later`.

        Raises:
            ValueError: values are missing; the file is unusable.
        """
        missing = [name for name, left in self._left.items() if left]
        if not missing:
            self._file.flush()
            sync(self._file.fileno())
        self._file.close()
        if missing:
            raise ValueError(f"no values were written for {missing[:3]}")

    def __enter__(self) -> "TensorWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._file.close()


def dtype_name(array: Array) -> str:
    """Return the safetensors name of an array's dtype.

    Raises:
        TensorError: a dtype that is not supported.
    """
    name = _NAMES.get(array.dtype.newbyteorder("<") if array.dtype.byteorder == ">" else array.dtype)
    if name is None:
        raise TensorError("tensors", f"dtype {array.dtype} is not supported; use one of {', '.join(DTYPES)}")
    return name


def write_file(path: Path | str, arrays: Mapping[str, Array], metadata: Mapping[str, str] | None = None) -> None:
    """Write arrays as a safetensors file, in the order given, on the disk when it returns."""
    infos = {name: (dtype_name(array), tuple(array.shape)) for name, array in arrays.items()}
    with TensorWriter(path, infos, metadata) as writer:
        for name, array in arrays.items():
            writer.write(name, array.astype(DTYPES[infos[name][0]], copy=False))
