"""Updates that are wrong in one way each, made byte by byte for any model; the same every time.

Needs numpy alone: a library that writes sound files cannot write these.
"""

import gzip
import io
import json
import math
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Schema = dict[str, tuple[str, tuple[int, ...]]]
"""Tensor name -> dtype name and shape, in file order."""
Notes = dict[str, str]
"""What the service wants in `__metadata__`."""

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1"}

REFERENCE: Schema = {
    "conv1.weight": ("F32", (8, 1, 3, 3)),
    "conv1.bias": ("F32", (8,)),
    "bn1.weight": ("F32", (8,)),
    "bn1.bias": ("F32", (8,)),
    "bn1.running_mean": ("F32", (8,)),
    "bn1.running_var": ("F32", (8,)),
    "bn1.num_batches_tracked": ("I64", ()),
    "proj.weight": ("F32", (32, 32)),
    "fc.weight": ("F32", (10, 32)),
    "fc.bias": ("F32", (10,)),
}


@dataclass
class Entry:
    """One tensor of a file in the making."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes


def arrays(schema: Schema, seed: int = 0) -> dict[str, np.ndarray]:
    """Return plausible weights."""
    numbers = np.random.default_rng(seed)
    made = {}
    for name, (dtype, shape) in schema.items():
        if dtype[0] in "IU":
            values = np.full(shape, 120 + seed)
        elif "running_var" in name:
            values = numbers.uniform(0.5, 2.0, shape)
        else:
            values = numbers.standard_normal(shape) * 0.1
        made[name] = np.asarray(values).astype(TYPES[dtype]).reshape(shape)
    return made


def entries(schema: Schema, values: dict[str, np.ndarray] | None = None, seed: int = 1) -> list[Entry]:
    """Return the tensors of a sound file."""
    made = arrays(schema, seed) | (values or {})
    return [Entry(name, dtype, shape, made[name].tobytes()) for name, (dtype, shape) in schema.items()]


def head(tensors: list[Entry], notes: Notes | None) -> tuple[dict[str, Any], bytes]:
    """Return header and data of a file."""
    tree: dict[str, Any] = {"__metadata__": dict(notes)} if notes else {}
    data = b""
    for entry in tensors:
        tree[entry.name] = {
            "dtype": entry.dtype,
            "shape": list(entry.shape),
            "data_offsets": [len(data), len(data) + len(entry.data)],
        }
        data += entry.data
    return tree, data


def raw(header: Any, data: bytes = b"", claim: int | None = None) -> bytes:
    """Return a file of a header (JSON or bytes) and data; `claim` overrides the length that it tells."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text) if claim is None else claim) + text + data


def pack(tensors: list[Entry], notes: Notes | None = None) -> bytes:
    """Return a file."""
    return raw(*head(tensors, notes))


def sound(schema: Schema, notes: Notes, values: dict[str, np.ndarray] | None = None, seed: int = 1) -> bytes:
    """Return a correct update."""
    return pack(entries(schema, values, seed), notes)


# ------------------------------------------------------------------------------------------------------ the grid
Made = tuple[Schema, Notes]


@dataclass(frozen=True)
class Case:
    """A file and what must become of it.

    Attributes:
        statuses: HTTP statuses that are right; 200 stands for any success.
        named: one of these must be in the answer to a refusal; nothing where any will do.
        headers: of the request.
    """

    name: str
    group: str
    make: Callable[[Schema, Notes], bytes]
    statuses: tuple[int, ...]
    named: tuple[str, ...] = ()
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def what(self) -> str:
        """What is wrong with the file."""
        return (self.make.__doc__ or "").strip()


CASES: list[Case] = []


def case(group: str, *statuses: int, named: tuple[str, ...] = (), headers: dict[str, str] | None = None) -> Any:
    """Put a maker into the grid."""

    def add(make: Callable[[Schema, Notes], bytes]) -> Callable[[Schema, Notes], bytes]:
        CASES.append(Case(make.__name__, group, make, statuses or (422,), named, headers or {}))
        return make

    return add


def matrix(schema: Schema) -> str:
    """Return the first float tensor of two axes or more."""
    return next(name for name, (dtype, shape) in schema.items() if dtype == "F32" and len(shape) >= 2)


def vector(schema: Schema) -> str:
    """Return the first float tensor of one axis."""
    return next(name for name, (dtype, shape) in schema.items() if dtype == "F32" and len(shape) == 1)


def like(schema: Schema, part: str) -> str:
    """Return the first tensor whose name has a part; any vector where there is none."""
    return next((name for name in schema if part in name), vector(schema))


def poked(schema: Schema, notes: Notes, name: str, value: float, at: int = 0) -> bytes:
    """Return a file with one value replaced."""
    values = arrays(schema, 1)
    values[name].reshape(-1)[at] = value
    return sound(schema, notes, values)


def changed(schema: Schema, notes: Notes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """Return a file whose header was changed."""
    tree, data = head(entries(schema), notes)
    change(tree)
    return raw(tree, data)


def replaced(schema: Schema, notes: Notes, name: str, dtype: str, shape: tuple[int, ...], data: bytes) -> bytes:
    """Return a file with one tensor replaced."""
    return pack([Entry(name, dtype, shape, data) if e.name == name else e for e in entries(schema)], notes)


def _size(shape: tuple[int, ...]) -> int:
    return math.prod(shape)


@case("control", 200)
def plain(s: Schema, n: Notes) -> bytes:
    """a correct update"""
    return sound(s, n)


@case("control", 200)
def padded_header(s: Schema, n: Notes) -> bytes:
    """correct; the header ends in 4096 blanks"""
    tree, data = head(entries(s), n)
    return raw(json.dumps(tree).encode() + b" " * 4096, data)


@case("control", 200)
def header_in_another_order(s: Schema, n: Notes) -> bytes:
    """correct; the header lists the tensors in another order than the data has them"""
    tree, data = head(entries(s), n)
    return raw(dict(reversed(tree.items())), data)


@case("control", 200)
def all_zero(s: Schema, n: Notes) -> bytes:
    """correct; every float is zero"""
    zeros = {k: np.zeros(sh, TYPES[d]) for k, (d, sh) in s.items() if d == "F32" and "running_var" not in k}
    return sound(s, n, zeros)


@case("container")
def empty_body(s: Schema, n: Notes) -> bytes:
    """zero bytes"""
    return b""


@case("container")
def seven_bytes(s: Schema, n: Notes) -> bytes:
    """shorter than the length prefix"""
    return b"\x08" + bytes(6)


@case("container")
def cut_in_the_header(s: Schema, n: Notes) -> bytes:
    """ends inside the header"""
    return sound(s, n)[:40]


@case("container")
def cut_in_half(s: Schema, n: Notes) -> bytes:
    """ends in the middle of the data"""
    body = sound(s, n)
    return body[: len(body) * 2 // 3]


@case("container")
def one_byte_short(s: Schema, n: Notes) -> bytes:
    """the last byte is missing"""
    return sound(s, n)[:-1]


@case("container")
def bytes_behind(s: Schema, n: Notes) -> bytes:
    """16 bytes after the last tensor"""
    return sound(s, n) + b"\xaa" * 16


@case("container")
def length_of_all_ones(s: Schema, n: Notes) -> bytes:
    """the header claims 2**64 - 1 bytes"""
    return raw(*head(entries(s), n), claim=2**64 - 1)


@case("container")
def length_of_90_mb(s: Schema, n: Notes) -> bytes:
    """the header claims 90 MB"""
    return raw(*head(entries(s), n), claim=90_000_000)


@case("container")
def length_too_short(s: Schema, n: Notes) -> bytes:
    """the header claims 8 bytes less than it has"""
    body = raw(*head(entries(s), n))
    return struct.pack("<Q", struct.unpack("<Q", body[:8])[0] - 8) + body[8:]


@case("container")
def length_big_endian(s: Schema, n: Notes) -> bytes:
    """the length is written the other way round"""
    body = sound(s, n)
    return body[:8][::-1] + body[8:]


@case("container")
def hole(s: Schema, n: Notes) -> bytes:
    """64 bytes between two tensors belong to none"""
    tree, data = head(entries(s), n)
    names = [name for name in tree if name != "__metadata__"]
    at = tree[names[2]]["data_offsets"][0]
    for name in names[2:]:
        tree[name]["data_offsets"] = [edge + 64 for edge in tree[name]["data_offsets"]]
    return raw(tree, data[:at] + b"\xbb" * 64 + data[at:])


@case("container")
def shared_bytes(s: Schema, n: Notes) -> bytes:
    """two tensors own the same bytes"""
    first = vector(s)
    other = next((k for k, v in s.items() if v == s[first] and k != first), first)

    def share(tree: dict[str, Any]) -> None:
        tree[other]["data_offsets"] = list(tree[first]["data_offsets"])
        tree[other + ".copy"] = dict(tree[first])

    return changed(s, n, share)


@case("container")
def offsets_behind_the_end(s: Schema, n: Notes) -> bytes:
    """the last tensor lies behind the end of the file"""

    def move(tree: dict[str, Any]) -> None:
        last = list(tree)[-1]
        tree[last]["data_offsets"] = [edge + 1_000_000 for edge in tree[last]["data_offsets"]]

    return changed(s, n, move)


@case("container")
def offsets_that_do_not_fit_the_shape(s: Schema, n: Notes) -> bytes:
    """a shape needs twice the bytes that the offsets give"""
    name = matrix(s)
    return changed(s, n, lambda tree: tree[name].update(shape=[2 * s[name][1][0], *s[name][1][1:]]))


@case("container")
def offsets_missing(s: Schema, n: Notes) -> bytes:
    """a tensor has no offsets"""
    return changed(s, n, lambda tree: tree[list(tree)[-1]].pop("data_offsets"))


@case("container")
def a_name_twice(s: Schema, n: Notes) -> bytes:
    """a tensor is in the header twice, with other bytes each time"""
    tree, data = head(entries(s), n)
    name = vector(s)
    size = _size(s[name][1]) * 4
    again = {"dtype": "F32", "shape": list(s[name][1]), "data_offsets": [len(data), len(data) + size]}
    text = json.dumps(tree)[:-1] + f", {json.dumps(name)}: {json.dumps(again)}}}"
    return raw(text.encode(), data + np.full(size // 4, 9.0, "<f4").tobytes())


@case("container")
def header_not_utf8(s: Schema, n: Notes) -> bytes:
    """a tensor's name holds the byte 0xff"""
    tree, data = head(entries(s), n)
    name = json.dumps(vector(s)).encode()
    return raw(json.dumps(tree).encode().replace(name, name[:-1] + b'\xff"'), data)


@case("container")
def header_is_a_list(s: Schema, n: Notes) -> bytes:
    """the header is a JSON array"""
    return raw(b'[{"name": "fc.bias"}]')


@case("container")
def header_is_noise(s: Schema, n: Notes) -> bytes:
    """the header is no JSON"""
    return raw(bytes(range(32, 96)), bytes(64))


@case("container")
def header_nested_deeply(s: Schema, n: Notes) -> bytes:
    """200,000 arrays inside one another"""
    return raw(b'{"__metadata__":' + b"[" * 200_000 + b"]" * 200_000 + b"}")


class Canary:
    """Unpickling this makes a folder in the reader's working directory."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("PICKLE_WAS_EXECUTED",)


@case("disguise", 415, 422)
def pickle_in_a_zip(s: Schema, n: Notes) -> bytes:
    """what torch.save writes, with a pickle that would run code"""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in (("data.pkl", pickle.dumps({"a": Canary()}, 2)), ("version", b"3\n")):
            archive.writestr(zipfile.ZipInfo(f"archive/{name}", (1980, 1, 1, 0, 0, 0)), data)
    return buffer.getvalue()


@case("disguise", 415, 422)
def pickle_bare(s: Schema, n: Notes) -> bytes:
    """a pickle that would run code"""
    return pickle.dumps({"a": Canary()}, 2)


@case("disguise", 415, 422)
def numpy_archive(s: Schema, n: Notes) -> bytes:
    """an .npz"""
    buffer = io.BytesIO()
    np.savez(buffer, **{name.replace(".", "_"): value for name, value in arrays(s, 1).items()})
    return buffer.getvalue()


@case("disguise")
def lfs_pointer(s: Schema, n: Notes) -> bytes:
    """a Git LFS pointer in place of the file"""
    return b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d" * 32 + b"\nsize 12345678\n"


@case("disguise")
def html_page(s: Schema, n: Notes) -> bytes:
    """a proxy's error page"""
    return b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>nginx</body></html>\r\n"


@case("disguise", 413, 415, headers={"Content-Encoding": "gzip"})
def gzip_bomb(s: Schema, n: Notes) -> bytes:
    """64 KiB of gzip that unfold to 64 MiB"""
    return gzip.compress(bytes(64 << 20), mtime=0)


@case("disguise", 200, 415, 422)
def gzip_without_a_word(s: Schema, n: Notes) -> bytes:
    """a gzip of a correct file, without Content-Encoding"""
    return gzip.compress(sound(s, n), mtime=0)


@case("values", named=("{matrix}",))
def one_nan(s: Schema, n: Notes) -> bytes:
    """one NaN in one weight"""
    return poked(s, n, matrix(s), np.nan, 7)


@case("values", named=("{vector}",))
def one_infinity(s: Schema, n: Notes) -> bytes:
    """one infinity in one bias"""
    return poked(s, n, vector(s), np.inf)


@case("values", named=("{vector}",))
def last_value_nan(s: Schema, n: Notes) -> bytes:
    """the last value of a bias is NaN"""
    return poked(s, n, vector(s), np.nan, -1)


@case("values", named=("running_var",))
def negative_variance(s: Schema, n: Notes) -> bytes:
    """a BatchNorm running variance below zero"""
    return poked(s, n, like(s, "running_var"), -0.01)


@case("keys", 200, 422, named=("module.",))
def prefix_of_data_parallel(s: Schema, n: Notes) -> bytes:
    """every name starts with 'module.'"""
    return pack([Entry(f"module.{e.name}", e.dtype, e.shape, e.data) for e in entries(s)], n)


@case("keys", 200, 422, named=("_orig_mod.",))
def prefix_of_compile(s: Schema, n: Notes) -> bytes:
    """every name starts with '_orig_mod.'"""
    return pack([Entry(f"_orig_mod.{e.name}", e.dtype, e.shape, e.data) for e in entries(s)], n)


@case("keys", named=("{matrix}",))
def weight_missing(s: Schema, n: Notes) -> bytes:
    """a weight is missing"""
    return pack([e for e in entries(s) if e.name != matrix(s)], n)


@case("keys", named=("running_mean",))
def buffer_missing(s: Schema, n: Notes) -> bytes:
    """a BatchNorm buffer is missing"""
    return pack([e for e in entries(s) if e.name != like(s, "running_mean")], n)


@case("keys", named=("head.extra",))
def tensor_too_many(s: Schema, n: Notes) -> bytes:
    """a tensor that the model does not have"""
    return pack([*entries(s), Entry("head.extra", "F32", (4,), bytes(16))], n)


@case("keys")
def name_is_a_path(s: Schema, n: Notes) -> bytes:
    """a tensor called ../../../../tmp/pwned"""
    return pack([*entries(s), Entry("../../../../tmp/pwned", "F32", (1,), bytes(4))], n)


@case("keys")
def name_is_html(s: Schema, n: Notes) -> bytes:
    """a tensor called <img src=x onerror=alert(1)>"""
    return pack([*entries(s), Entry("<img src=x onerror=alert(1)>", "F32", (1,), bytes(4))], n)


@case("keys")
def no_tensors(s: Schema, n: Notes) -> bytes:
    """a container without a tensor"""
    return pack([], n)


@case("shapes", named=("{matrix}",))
def flattened(s: Schema, n: Notes) -> bytes:
    """a weight with all its values on one axis"""
    name = matrix(s)
    return replaced(s, n, name, "F32", (_size(s[name][1]),), arrays(s, 1)[name].tobytes())


@case("shapes", named=("{matrix}",))
def broadcastable(s: Schema, n: Notes) -> bytes:
    """a weight with one row, which numpy would spread over all of them"""
    name = matrix(s)
    shape = (1, *s[name][1][1:])
    return replaced(s, n, name, "F32", shape, np.ones(shape, "<f4").tobytes())


@case("shapes", named=("{vector}",))
def one_value_for_all(s: Schema, n: Notes) -> bytes:
    """a bias with one value"""
    return replaced(s, n, vector(s), "F32", (1,), bytes(4))


@case("shapes", named=("{last}",))
def other_classes(s: Schema, n: Notes) -> bytes:
    """a head for another number of classes"""
    name = list(s)[-1]
    shape = (s[name][1][0] - 3, *s[name][1][1:])
    return replaced(s, n, name, "F32", shape, bytes(4 * _size(shape)))


@case("shapes", named=("num_batches_tracked",))
def scalar_became_empty(s: Schema, n: Notes) -> bytes:
    """a counter of shape []  comes as [0]"""
    return replaced(s, n, like(s, "num_batches_tracked"), "I64", (0,), b"")


@case("shapes", 200, 422, named=("num_batches_tracked",))
def scalar_became_vector(s: Schema, n: Notes) -> bytes:
    """a counter of shape [] comes as [1]"""
    return replaced(s, n, like(s, "num_batches_tracked"), "I64", (1,), bytes(8))


@case("shapes", named=("{matrix}",))
def empty_tensor(s: Schema, n: Notes) -> bytes:
    """a weight without a row"""
    name = matrix(s)
    return replaced(s, n, name, "F32", (0, *s[name][1][1:]), b"")


@case("dtypes", named=("F24",))
def unknown_dtype(s: Schema, n: Notes) -> bytes:
    """a dtype that does not exist"""
    return changed(s, n, lambda tree: tree[matrix(s)].update(dtype="F24"))


@case("dtypes", 200, 422, named=("BF16",))
def bfloat16(s: Schema, n: Notes) -> bytes:
    """all floats as bfloat16"""
    made = []
    for e in entries(s):
        upper = np.frombuffer(e.data, "<u2")[1::2].tobytes() if e.dtype == "F32" else e.data
        made.append(Entry(e.name, "BF16" if e.dtype == "F32" else e.dtype, e.shape, upper))
    return pack(made, n)


@case("dtypes", 200, 422, named=("F8_E4M3",))
def float8(s: Schema, n: Notes) -> bytes:
    """one weight as float8"""
    name = matrix(s)
    return replaced(s, n, name, "F8_E4M3", s[name][1], b"\x38" * _size(s[name][1]))


@case("dtypes", 200, 422, named=("F64",))
def float64(s: Schema, n: Notes) -> bytes:
    """all floats as float64"""
    wide = arrays(s, 1)
    return pack(
        [
            Entry(e.name, "F64", e.shape, wide[e.name].astype("<f8").tobytes()) if e.dtype == "F32" else e
            for e in entries(s)
        ],
        n,
    )


@case("dtypes", named=("num_batches_tracked",))
def counter_as_float(s: Schema, n: Notes) -> bytes:
    """an integer counter comes as the float 120.5"""
    name = like(s, "num_batches_tracked")
    return replaced(s, n, name, "F32", s[name][1], np.full(s[name][1], 120.5, "<f4").tobytes())
