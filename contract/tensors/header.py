"""The header of a safetensors file: bounded, strict, and the same for an upload and for an average."""

import math
import re
import struct
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from contract.json_text import RepeatedKey, read_json

Array = NDArray[Any]

MAX_HEADER_BYTES = 2 * 1024 * 1024
MAX_TENSORS = 20_000
MAX_NAME = 512
MAX_RANK = 16
METADATA = "__metadata__"
BUFFERS_KEY = "potstill.buffers"
DIGESTS_KEY = "potstill.digests"
"""Metadata: JSON, name -> SHA-256 in hex of a tensor's values in C order, made before the file was written."""

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

    @cached_property
    def buffers(self) -> frozenset[str]:
        """Names of the tensors that are buffers: those that the file names, and those that bear a name of BatchNorm's.

        A file that somebody else wrote names none, and a server's optimiser that steps a variance makes it negative.
        """
        try:
            names = read_json(self.metadata.get(BUFFERS_KEY, "[]"))
        except ValueError:
            names = []
        told = {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
        return frozenset(told | {name for name in self.tensors if name.rpartition(".")[2] in _STATISTICS})


def parse_digests(header: Header) -> dict[str, str]:
    """Return the digests of values that a file brings along, by tensor.

    Raises:
        TensorError: code 'container': no JSON object of hex digests of the file's own tensors.
    """
    text = header.metadata.get(DIGESTS_KEY)
    if text is None:
        return {}
    try:
        digests = read_json(text)
    except RepeatedKey as error:
        raise _container(f"__metadata__ {DIGESTS_KEY!r}: {error}") from None
    except ValueError:
        digests = None
    if not isinstance(digests, dict):
        raise _container(f"__metadata__ {DIGESTS_KEY!r} must be a JSON object of tensor names and SHA-256 digests")
    for name, digest in digests.items():
        if name not in header.tensors:
            raise _container(
                f"{DIGESTS_KEY} names {name[:MAX_NAME]!r}, which is not in the file", tensor=name[:MAX_NAME]
            )
        if not isinstance(digest, str) or not _HEX.fullmatch(digest):
            raise _container(f"{DIGESTS_KEY}: tensor {name!r} needs 64 hexadecimal digits", tensor=name)
    return digests


_HEX = re.compile(r"[0-9a-f]{64}")
_STATISTICS = frozenset({"running_mean", "running_var", "num_batches_tracked"})
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


def _not_a_number(text: str) -> Any:
    raise _container(f"the header holds {text}, which is not JSON")


def _decode(raw: bytes) -> dict[str, Any]:
    try:
        tree = read_json(raw.decode("utf-8"), _not_a_number)
    except RepeatedKey as error:
        kind = "tensor" if isinstance(error.value, dict) and error.key != METADATA else "field"
        detail = f"{kind} {error.key!r} appears twice in the header; keep one of them"
        raise _container(detail, **{kind: error.key}) from None
    except ValueError as error:  # also UnicodeDecodeError
        raise _container(f"the header is not JSON in UTF-8: {error}") from None
    if not isinstance(tree, dict):
        raise _container("the header is not a JSON object")
    return tree


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_text(value: str) -> bool:
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)


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


def _metadata(given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        raise _container("__metadata__ must map strings to strings", field=METADATA)
    for key, value in given.items():
        field = key[:MAX_NAME].encode(errors="backslashreplace").decode()
        if not isinstance(value, str):
            raise _container(f"__metadata__ must map strings to strings; send {field!r} as text", field=field)
        if not (_is_text(key) and _is_text(value)):
            raise _container(f"__metadata__ {field!r} holds half of a surrogate pair, which is not text", field=field)
    return given


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
    metadata = _metadata(tree.pop(METADATA, {}))
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
    """Refuse a file of another size, in bytes, than its header describes.

    Raises:
        TensorError: container.
    """
    if total_size != header.total_size:
        fate = "cut short" if total_size < header.total_size else "followed by bytes that belong to no tensor"
        raise _container(
            f"the file is {fate}: its header describes {header.total_size} bytes, {total_size} were there; "
            "send it whole, and nothing else",
            expected=header.total_size,
            actual=total_size,
        )
