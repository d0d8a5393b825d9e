"""Checks of a file against what was asked for, value by value, while its bytes arrive or from the disk."""

import hashlib
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from contract.tensors.header import (
    DTYPES,
    FLOATS,
    Array,
    Header,
    TensorError,
    TensorInfo,
    check_size,
    header_length,
    parse_digests,
    parse_header,
)

_PREFIXES = ("module.", "_orig_mod.", "model.")
_SHOWN = 20


def _prefix_remedy(names: Iterable[str], manifest: Header) -> str:
    left, found = list(names), ""
    while left:
        prefix = next((each for each in _PREFIXES if all(name.startswith(each) for name in left)), None)
        if prefix is None:
            return ""
        found += prefix
        left = [name.removeprefix(prefix) for name in left]
        if set(left) & set(manifest.tensors):
            return f" Every name starts with {found!r}, which a wrapper (DataParallel, torch.compile) adds: strip it."
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
            f"tensor {name!r} has {what} at index {index}; {_remedy(name)}",
            tensor=name,
            index=index,
        )


def _remedy(name: str) -> str:
    if name in ("inputs", "labels"):  # a data set's; in the state of a module a tensor bears its part's name as well
        return "repair that sample or leave it out"
    return "check the training (learning rate, loss) before sending"


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
        self._digests: dict[str, str] = {}
        self._hash = hashlib.sha256()

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
        self._digests = parse_digests(header)
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
            if name in self._digests:
                self._hash.update(piece)
            self._position += take
            if self._position == info.end:
                self._check_digest(name)
                self._tensor = next(self._todo, None)

    def _check_digest(self, name: str) -> None:
        """Refuse a tensor whose values are not those that the sender had: a writer may have stored another order."""
        expected = self._digests.get(name)
        if expected is None:
            return
        actual, self._hash = self._hash.hexdigest(), hashlib.sha256()
        if actual != expected:
            raise TensorError(
                "values",
                f"tensor {name!r} has other values than were digested before the file was written: a writer may have "
                "stored a transposed or strided array in its memory order; make it contiguous (C order) first",
                tensor=name,
                expected=expected,
                actual=actual,
            )

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


_BLOCK = 1 << 20


def check_file(path: Path | str, manifest: Header | None = None) -> Header:
    """Return the header of a file after the same checks that an upload gets.

    Raises:
        TensorError: as `StreamCheck`.
    """
    with open(path, "rb", buffering=0) as file:
        check, buffer = StreamCheck(manifest, os.fstat(file.fileno()).st_size), memoryview(bytearray(_BLOCK))
        while count := file.readinto(buffer):
            check.feed(buffer[:count])
    return check.finish()
