"""Safetensors files without torch: one reader for checking an upload and for averaging it.

What was checked is what is averaged: the service checks while bytes arrive (`StreamCheck`), the worker opens the same
file with the same parser (`TensorFile`). The library's own reader is not used here because it accepts a repeated key,
wants the whole file before it says anything, and dies with bare KeyErrors on dtypes that numpy does not know.

Format: 8 bytes little-endian header length, a JSON object, then the tensors' bytes, contiguous, in C order.
https://github.com/huggingface/safetensors#format
"""

import json
import math
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MAX_HEADER_BYTES = 2 * 1024 * 1024
MAX_TENSORS = 20_000
MAX_NAME = 512
MAX_RANK = 16
BUFFERS_KEY = "potstill.buffers"

DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype("<u1"),
    "I8": np.dtype("<i1"),
    "I16": np.dtype("<i2"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
FLOATS = frozenset({"F16", "BF16", "F32", "F64"})


class TensorError(Exception):
    """A file that cannot be taken.

    Attributes:
        code: 'container' (not a sound safetensors file), 'tensors' (not the tensors that were asked for) or
            'values' (a value that cannot be used).
        detail: what is wrong and what to do, for a person.
        members: the same for a program: `tensor`, `expected`, `actual`, …
    """

    def __init__(self, code: str, detail: str, **members: Any):
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.members = members


@dataclass(frozen=True)
class TensorInfo:
    """One tensor: dtype name, shape, and where its bytes are, counted from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.end - self.begin

    @property
    def numel(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Header:
    """A parsed header; `tensors` is in file order."""

    tensors: dict[str, TensorInfo]
    metadata: dict[str, str] = field(default_factory=dict)
    data_start: int = 0

    @property
    def data_bytes(self) -> int:
        """Bytes of all tensors."""
        return max((info.end for info in self.tensors.values()), default=0)

    @property
    def total_size(self) -> int:
        """Size of the whole file in bytes."""
        return self.data_start + self.data_bytes

    @property
    def buffers(self) -> frozenset[str]:
        """Names of the tensors that are buffers, as far as the file tells."""
        try:
            names = json.loads(self.metadata.get(BUFFERS_KEY, "[]"))
        except ValueError:
            return frozenset()
        return frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()


# ---------------------------------------------------------------------------------------------- reading the header
_SIGNS: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "a zip archive, such as torch.save and numpy.savez write"),
    (b"\x1f\x8b", "gzip-compressed data"),
    (b"\x80\x02", "a Python pickle"),
    (b"\x80\x03", "a Python pickle"),
    (b"\x80\x04", "a Python pickle"),
    (b"\x80\x05", "a Python pickle"),
    (b"\x93NUMPY", "a numpy array file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"version ", "a Git LFS pointer, not the file itself"),
    (b"<", "an HTML or XML page"),
    (b"{", "JSON text"),
)


def _container(detail: str, **members: Any) -> TensorError:
    return TensorError("container", detail, **members)


def _sniff(first: bytes | bytearray) -> None:
    """Refuse by name what is often sent by mistake.

    A sound file's ninth byte is `{` and its length field is small, so its first bytes never look like these signs
    except by a header length that happens to spell one: only a length out of bounds, or no `{`, is sniffed.
    """
    for sign, what in _SIGNS:
        if first.startswith(sign):
            raise _container(f"this is {what}; only safetensors is taken (safetensors.torch.save_file writes it)")


def header_length(first: bytes | bytearray) -> int:
    """Return the length of the JSON header that the first 8 bytes announce.

    Raises:
        TensorError: no header can be there; the message names common mistakes (pickle, gzip, HTML, LFS pointer).
    """
    if len(first) < 8:
        raise _container(
            f"the file has {len(first)} bytes, a safetensors file at least 10", expected=10, actual=len(first)
        )
    length = int(struct.unpack("<Q", first[:8])[0])
    if length < 2 or length > MAX_HEADER_BYTES or (len(first) > 8 and first[8:9] != b"{"):
        _sniff(first)
    if length < 2 or length > MAX_HEADER_BYTES:
        raise _container(
            f"the header claims {length} bytes; between 2 and {MAX_HEADER_BYTES} are taken. The file is damaged or "
            "not a safetensors file",
            expected=MAX_HEADER_BYTES,
            actual=length,
        )
    if len(first) > 8 and first[8:9] != b"{":
        raise _container("the header does not start with '{': the file is damaged or not a safetensors file")
    return length


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise _container(f"{key[:MAX_NAME]!r} appears twice in the header", tensor=key[:MAX_NAME])
        result[key] = value
    return result


def _not_a_number(text: str) -> Any:
    raise _container(f"the header holds {text}, which is not JSON")


def _decode(raw: bytes) -> dict[str, Any]:
    try:
        tree = json.loads(raw.decode("utf-8"), object_pairs_hook=_no_duplicates, parse_constant=_not_a_number)
    except TensorError:
        raise
    except RecursionError:
        raise _container("the header is nested too deeply") from None
    except ValueError as error:  # also UnicodeDecodeError
        raise _container(f"the header is not JSON in UTF-8: {error}") from None
    if not isinstance(tree, dict):
        raise _container("the header is not a JSON object")
    return tree


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_text(value: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in value)


def _tensor_info(name: str, entry: Any) -> TensorInfo:
    if not 0 < len(name) <= MAX_NAME:
        raise _container(f"a tensor name has {len(name)} characters; 1 to {MAX_NAME} are taken", tensor=name[:MAX_NAME])
    if not _is_text(name):
        raise _container("a tensor name holds half of a surrogate pair, which is not text", tensor=ascii(name))
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise _container(f"tensor {name!r}: the entry must have exactly dtype, shape and data_offsets", tensor=name)
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise TensorError(
            "tensors",
            f"tensor {name!r}: dtype {str(dtype)[:32]!r} is not supported; send one of {', '.join(DTYPES)}",
            tensor=name,
            expected=list(DTYPES),
            actual=str(dtype)[:32],
        )
    if not isinstance(shape, list) or len(shape) > MAX_RANK or not all(_is_count(edge) for edge in shape):
        raise _container(f"tensor {name!r}: the shape must be a list of whole numbers", tensor=name)
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_count(edge) for edge in offsets):
        raise _container(f"tensor {name!r}: data_offsets must be two whole numbers", tensor=name)
    info = TensorInfo(dtype, tuple(shape), offsets[0], offsets[1])
    needed = info.numel * DTYPES[dtype].itemsize
    if info.nbytes != needed:
        raise _container(
            f"tensor {name!r}: shape {list(shape)} of {dtype} needs {needed} bytes, the offsets give {info.nbytes}",
            tensor=name,
            expected=needed,
            actual=info.nbytes,
        )
    return info


def _check_layout(tensors: dict[str, TensorInfo]) -> None:
    """Offsets must follow one another without a hole or a shared byte."""
    end, before = 0, ""
    for name, info in tensors.items():
        if info.begin < end:
            raise _container(
                f"tensors {before!r} and {name!r} share bytes; give each its own copy", tensor=name, other=before
            )
        if info.begin > end:
            raise _container(
                f"tensor {name!r} starts at {info.begin}; the bytes from {end} on belong to no tensor",
                tensor=name,
                expected=end,
                actual=info.begin,
            )
        end, before = info.end, name


def parse_header(first: bytes, total_size: int | None = None) -> Header:
    """Parse the start of a file: at least 8 bytes and the whole header.

    Args:
        first: the first bytes of the file; more than the header does no harm.
        total_size: size of the whole file in bytes, if it is known: then it must fit exactly.

    Raises:
        TensorError: with code 'container', or 'tensors' for a dtype that is not supported.
    """
    length = header_length(first)
    if len(first) < 8 + length:
        received = len(first) if total_size is None else total_size
        raise _container(
            f"the file ends inside its header: {8 + length} bytes were needed, {received} were there",
            expected=8 + length,
            actual=received,
        )
    tree = _decode(first[8 : 8 + length])
    metadata = tree.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _container("__metadata__ must map strings to strings")
    if not all(_is_text(key) and _is_text(value) for key, value in metadata.items()):
        raise _container("__metadata__ holds half of a surrogate pair, which is not text")
    if len(tree) > MAX_TENSORS:
        raise _container(
            f"{len(tree)} tensors; at most {MAX_TENSORS} are taken", expected=MAX_TENSORS, actual=len(tree)
        )
    infos = {name: _tensor_info(name, entry) for name, entry in tree.items()}
    ordered = dict(sorted(infos.items(), key=lambda item: (item[1].begin, item[1].end)))
    header = Header(ordered, metadata, 8 + length)
    _check_layout(ordered)
    if total_size is not None:
        check_size(header, total_size)
    return header


def check_size(header: Header, total_size: int) -> None:
    """Refuse a file of another size than its header describes."""
    if total_size != header.total_size:
        fate = "cut short" if total_size < header.total_size else "followed by bytes that belong to no tensor"
        raise _container(
            f"the file is {fate}: its header describes {header.total_size} bytes, {total_size} were there",
            expected=header.total_size,
            actual=total_size,
        )


# ------------------------------------------------------------------------------------------ against what was asked for
_PREFIXES = ("module.", "_orig_mod.", "model.")
_SHOWN = 20


def _prefix_remedy(names: Iterable[str], manifest: Header) -> str:
    names = list(names)
    for prefix in _PREFIXES:
        stripped = {name.removeprefix(prefix) for name in names}
        if names and all(name.startswith(prefix) for name in names) and stripped & set(manifest.tensors):
            return f" Every name starts with {prefix!r}, which a wrapper (DataParallel, torch.compile) adds: strip it."
    return ""


def compare(header: Header, manifest: Header) -> None:
    """Refuse a file whose tensors are not exactly the manifest's: names, shapes and dtypes.

    Raises:
        TensorError: code 'tensors'; members `missing`, `unknown`, `mismatched` (20 of each at most, with counts) and
            `tensor`, the first one at fault.
    """
    missing = [name for name in manifest.tensors if name not in header.tensors]
    unknown = [name for name in header.tensors if name not in manifest.tensors]
    mismatched = [
        name
        for name, info in header.tensors.items()
        if name in manifest.tensors
        and (info.shape, info.dtype) != (manifest.tensors[name].shape, manifest.tensors[name].dtype)
    ]
    if not (missing or unknown or mismatched):
        return
    parts, members = [], {}
    if mismatched:
        name = mismatched[0]
        want, got = manifest.tensors[name], header.tensors[name]
        parts.append(
            f"tensor {name!r} is {got.dtype} {list(got.shape)}, wanted is {want.dtype} {list(want.shape)}"
            + (f" (and {len(mismatched) - 1} more differ)" if len(mismatched) > 1 else "")
        )
        members = {
            "expected": {"dtype": want.dtype, "shape": list(want.shape)},
            "actual": {"dtype": got.dtype, "shape": list(got.shape)},
        }
    for what, names in (("missing", missing), ("unknown", unknown)):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            parts.append(f"{what}: {', '.join(repr(name) for name in names[:3])}{more}")
    raise TensorError(
        "tensors",
        f"the tensors do not match the model that was sent out: {'; '.join(parts)}."
        + _prefix_remedy(header.tensors, manifest),
        tensor=(mismatched or missing or unknown)[0],
        missing=missing[:_SHOWN],
        unknown=unknown[:_SHOWN],
        mismatched=mismatched[:_SHOWN],
        counts={"missing": len(missing), "unknown": len(unknown), "mismatched": len(mismatched)},
        **members,
    )


# ---------------------------------------------------------------------------------------------------------- the values
def _bad_index(values: Array, dtype: str) -> int | None:
    """Return the index of the first value that is not finite, or None."""
    if dtype == "BF16":
        bad = (values.view(np.uint16) & 0x7F80) == 0x7F80
        return int(bad.argmax()) if bad.any() else None
    with np.errstate(all="ignore"):
        if math.isfinite(float(values.sum(dtype=np.float64 if dtype == "F64" else np.float32))):
            return None  # a sum over any NaN or infinity is not finite; the converse needs the slow look
        bad = ~np.isfinite(values)
    return int(bad.argmax()) if bad.any() else None


def check_values(name: str, info: TensorInfo, values: Array, offset: int = 0) -> None:
    """Refuse values that no model may have: NaN, infinity, a negative running variance, a bool that is neither 0 nor 1.

    Args:
        name: the tensor.
        info: its dtype and shape.
        values: flat values of it, from `offset` on; BOOL as bytes.
        offset: flat index of the first of them.

    Raises:
        TensorError: code 'values', naming the tensor and the index.
    """
    found: int | None = None
    what = "NaN or infinity"
    if info.dtype in FLOATS:
        found = _bad_index(values, info.dtype)
        if found is None and name.rpartition(".")[2] == "running_var" and bool((values < 0).any()):
            found, what = int((values < 0).argmax()), "a negative running variance"
    elif info.dtype == "BOOL" and bool((values > 1).any()):
        found, what = int((values > 1).argmax()), "a byte that is neither 0 nor 1"
    if found is not None:
        index = [int(i) for i in np.unravel_index(offset + found, info.shape)] if info.shape else []
        raise TensorError(
            "values",
            f"tensor {name!r} has {what} at index {index}; check the training (learning rate, loss) before sending",
            tensor=name,
            index=index,
        )


class StreamCheck:
    """Checks a file while its bytes arrive, in pieces of any size; holds the header and less than one value.

    Args:
        manifest: header that the tensors must match; None takes any tensors.
        total_size: announced size in bytes, if there is one.
    """

    def __init__(self, manifest: Header | None = None, total_size: int | None = None):
        self.header: Header | None = None
        self.received = 0
        self._manifest = manifest
        self._total = total_size
        self._head = bytearray()
        self._carry = b""
        self._todo: Iterator[tuple[str, TensorInfo]] = iter(())
        self._tensor: tuple[str, TensorInfo] | None = None
        self._position = 0  # bytes of data seen, counted from data_start

    def feed(self, chunk: bytes | bytearray | memoryview) -> bool:
        """Take the next bytes; return True once, when the header has just been understood.

        Raises:
            TensorError: as soon as something wrong is certain.
        """
        self.received += len(chunk)
        if self.header is not None:
            self._values(memoryview(chunk))
            return False
        self._head += chunk
        if len(self._head) < 9:
            return False
        length = header_length(self._head)
        if len(self._head) < 8 + length:
            return False
        header = parse_header(bytes(self._head[: 8 + length]), self._total)
        if self._manifest is not None:
            compare(header, self._manifest)
        self.header = header
        rest = memoryview(bytes(self._head[8 + length :]))
        self._head = bytearray()
        self._todo = iter([(name, info) for name, info in header.tensors.items() if info.nbytes])
        self._tensor = next(self._todo, None)
        self._values(rest)
        return True

    def _values(self, data: memoryview) -> None:
        while data:
            if self._tensor is None:
                assert self.header is not None
                check_size(self.header, self.received)
                return
            name, info = self._tensor
            take = min(len(data), info.end - self._position)
            piece, data = data[:take], data[take:]
            self._scan(name, info, piece)
            self._position += take
            if self._position == info.end:
                self._tensor = next(self._todo, None)

    def _scan(self, name: str, info: TensorInfo, piece: memoryview) -> None:
        if info.dtype not in FLOATS and info.dtype != "BOOL":
            return
        dtype = np.dtype(np.uint8) if info.dtype == "BOOL" else DTYPES[info.dtype]
        offset = (self._position - len(self._carry) - info.begin) // dtype.itemsize
        raw: bytes | memoryview = piece
        if self._carry:
            raw = self._carry + bytes(piece)
        whole = len(raw) - len(raw) % dtype.itemsize
        self._carry = bytes(raw[whole:])
        if whole:
            check_values(name, info, np.frombuffer(raw[:whole], dtype=dtype), offset)

    def finish(self) -> Header:
        """Say that no more bytes come; return the header.

        Raises:
            TensorError: the file is cut short.
        """
        if self.header is None:
            return parse_header(bytes(self._head), self.received)  # raises: it is shorter than its header
        check_size(self.header, self.received)
        return self.header


# ------------------------------------------------------------------------------------------------------ whole files
class TensorFile:
    """An open safetensors file. Reads tensors or blocks of them with `pread`; nothing is mapped, so a file that is cut
    under us is an error and not a crash.

    Raises:
        TensorError: the file is not sound.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self._fd = os.open(self.path, os.O_RDONLY)
        try:
            size = os.fstat(self._fd).st_size
            first = os.pread(self._fd, 9, 0)
            self.header = parse_header(os.pread(self._fd, 8 + header_length(first), 0), size)
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
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

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
        """
        info = self.info(name)
        dtype = DTYPES[info.dtype]
        if not 0 <= start <= start + count <= info.numel:
            raise IndexError(f"tensor {name!r} has {info.numel} values; asked for {start} to {start + count}")
        block = np.empty(count, dtype=dtype) if out is None else out[:count]
        view = block.view(np.uint8).data.cast("B")
        position = self.header.data_start + info.begin + start * dtype.itemsize
        done = 0
        while done < len(view):
            got = os.preadv(self._fd, [view[done:]], position + done)
            if got == 0:
                raise _container(f"the file ended inside tensor {name!r}", tensor=name)
            done += got
        return block

    def read(self, name: str) -> Array:
        """Return the whole tensor in memory of its own; BF16 as `ml_dtypes.bfloat16`."""
        info = self.info(name)
        return self.read_block(name, 0, info.numel).reshape(info.shape)


_BLOCK = 1 << 20


def check_file(path: Path | str, manifest: Header | None = None) -> Header:
    """Return the header of a file after the same checks that an upload gets.

    Raises:
        TensorError: as `StreamCheck`.
    """
    with open(path, "rb") as file:
        check = StreamCheck(manifest, os.fstat(file.fileno()).st_size)
        while chunk := file.read(_BLOCK):
            check.feed(chunk)
    return check.finish()


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
        tree: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
        end = 0
        self._left: dict[str, int] = {}
        for name, (dtype, shape) in infos.items():
            begin, end = end, end + math.prod(shape) * DTYPES[dtype].itemsize
            tree[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
            self._left[name] = end - begin
        self._dtypes = {name: DTYPES[dtype] for name, (dtype, _) in infos.items()}
        head = json.dumps(tree, separators=(",", ":"), ensure_ascii=False).encode()
        head += b" " * (-(8 + len(head)) % 8)
        self._file = open(path, "wb")  # noqa: SIM115 - closed by close()
        self._file.write(struct.pack("<Q", len(head)) + head)

    def write(self, name: str, values: Array) -> None:
        """Write the next values of tensor `name`; tensors come in the order of the header.

        Raises:
            ValueError: another tensor's turn, another dtype, or more values than its shape has.
        """
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
        """Finish the file and put it on the disk (fsync).

        Raises:
            ValueError: values are missing; the file is unusable.
        """
        missing = [name for name, left in self._left.items() if left]
        if not missing:
            self._file.flush()
            os.fsync(self._file.fileno())
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
