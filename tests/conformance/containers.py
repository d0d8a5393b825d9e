"""Files that are wrong in one way each: what holds the tensors is damaged, or is something else altogether."""

import gzip
import io
import json
import math
import os
import pickle
import struct
import zipfile
from typing import Any

import numpy as np

from tests.conformance.case import Cases
from tests.conformance.files import (
    TYPES,
    Notes,
    Schema,
    arrays,
    changed,
    entries,
    head,
    matrix,
    raw,
    sound,
    vector,
)

CASES = Cases()


@CASES.add("control", 200)
def plain(s: Schema, n: Notes) -> bytes:
    """a correct update"""
    return sound(s, n)


@CASES.add("control", 200)
def padded_header(s: Schema, n: Notes) -> bytes:
    """correct; the header ends in 4096 blanks"""
    tree, data = head(entries(s), n)
    return raw(json.dumps(tree).encode() + b" " * 4096, data)


@CASES.add("control", 200)
def header_in_another_order(s: Schema, n: Notes) -> bytes:
    """correct; the header lists the tensors in another order than the data has them"""
    tree, data = head(entries(s), n)
    return raw(dict(reversed(tree.items())), data)


@CASES.add("control", 200)
def all_zero(s: Schema, n: Notes) -> bytes:
    """correct; every float is zero"""
    zeros = {k: np.zeros(sh, TYPES[d]) for k, (d, sh) in s.items() if d == "F32" and "running_var" not in k}
    return sound(s, n, zeros)


@CASES.add("container")
def empty_body(s: Schema, n: Notes) -> bytes:
    """zero bytes"""
    return b""


@CASES.add("container")
def seven_bytes(s: Schema, n: Notes) -> bytes:
    """shorter than the length prefix"""
    return b"\x08" + bytes(6)


@CASES.add("container")
def cut_in_the_header(s: Schema, n: Notes) -> bytes:
    """ends inside the header"""
    return sound(s, n)[:40]


@CASES.add("container")
def cut_in_half(s: Schema, n: Notes) -> bytes:
    """ends in the middle of the data"""
    body = sound(s, n)
    return body[: len(body) * 2 // 3]


@CASES.add("container")
def one_byte_short(s: Schema, n: Notes) -> bytes:
    """the last byte is missing"""
    return sound(s, n)[:-1]


@CASES.add("container")
def bytes_behind(s: Schema, n: Notes) -> bytes:
    """16 bytes after the last tensor"""
    return sound(s, n) + b"\xaa" * 16


@CASES.add("container")
def length_of_all_ones(s: Schema, n: Notes) -> bytes:
    """the header claims 2**64 - 1 bytes"""
    return raw(*head(entries(s), n), claim=2**64 - 1)


@CASES.add("container")
def length_of_90_mb(s: Schema, n: Notes) -> bytes:
    """the header claims 90 MB"""
    return raw(*head(entries(s), n), claim=90_000_000)


@CASES.add("container")
def length_too_short(s: Schema, n: Notes) -> bytes:
    """the header claims 8 bytes less than it has"""
    body = raw(*head(entries(s), n))
    return struct.pack("<Q", struct.unpack("<Q", body[:8])[0] - 8) + body[8:]


@CASES.add("container")
def length_big_endian(s: Schema, n: Notes) -> bytes:
    """the length is written the other way round"""
    body = sound(s, n)
    return body[:8][::-1] + body[8:]


@CASES.add("container")
def hole(s: Schema, n: Notes) -> bytes:
    """64 bytes between two tensors belong to none"""
    tree, data = head(entries(s), n)
    names = [name for name in tree if name != "__metadata__"]
    at = tree[names[2]]["data_offsets"][0]
    for name in names[2:]:
        tree[name]["data_offsets"] = [edge + 64 for edge in tree[name]["data_offsets"]]
    return raw(tree, data[:at] + b"\xbb" * 64 + data[at:])


@CASES.add("container")
def shared_bytes(s: Schema, n: Notes) -> bytes:
    """two tensors own the same bytes"""
    first = vector(s)
    other = next((k for k, v in s.items() if v == s[first] and k != first), first)

    def share(tree: dict[str, Any]) -> None:
        tree[other]["data_offsets"] = list(tree[first]["data_offsets"])
        tree[other + ".copy"] = dict(tree[first])

    return changed(s, n, share)


@CASES.add("container")
def offsets_behind_the_end(s: Schema, n: Notes) -> bytes:
    """the last tensor lies behind the end of the file"""

    def move(tree: dict[str, Any]) -> None:
        last = list(tree)[-1]
        tree[last]["data_offsets"] = [edge + 1_000_000 for edge in tree[last]["data_offsets"]]

    return changed(s, n, move)


@CASES.add("container")
def offsets_that_do_not_fit_the_shape(s: Schema, n: Notes) -> bytes:
    """a shape needs twice the bytes that the offsets give"""
    name = matrix(s)
    return changed(s, n, lambda tree: tree[name].update(shape=[2 * s[name][1][0], *s[name][1][1:]]))


@CASES.add("container")
def offsets_missing(s: Schema, n: Notes) -> bytes:
    """a tensor has no offsets"""
    return changed(s, n, lambda tree: tree[list(tree)[-1]].pop("data_offsets"))


@CASES.add("container")
def a_name_twice(s: Schema, n: Notes) -> bytes:
    """a tensor is in the header twice, with other bytes each time"""
    tree, data = head(entries(s), n)
    name = vector(s)
    size = math.prod(s[name][1]) * 4
    again = {"dtype": "F32", "shape": list(s[name][1]), "data_offsets": [len(data), len(data) + size]}
    text = json.dumps(tree)[:-1] + f", {json.dumps(name)}: {json.dumps(again)}}}"
    return raw(text.encode(), data + np.full(size // 4, 9.0, "<f4").tobytes())


@CASES.add("container")
def header_not_utf8(s: Schema, n: Notes) -> bytes:
    """a tensor's name holds the byte 0xff"""
    tree, data = head(entries(s), n)
    name = json.dumps(vector(s)).encode()
    return raw(json.dumps(tree).encode().replace(name, name[:-1] + b'\xff"'), data)


@CASES.add("container")
def header_is_a_list(s: Schema, n: Notes) -> bytes:
    """the header is a JSON array"""
    return raw(b'[{"name": "fc.bias"}]')


@CASES.add("container")
def header_is_noise(s: Schema, n: Notes) -> bytes:
    """the header is no JSON"""
    return raw(bytes(range(32, 96)), bytes(64))


@CASES.add("container")
def header_nested_deeply(s: Schema, n: Notes) -> bytes:
    """200,000 arrays inside one another"""
    return raw(b'{"__metadata__":' + b"[" * 200_000 + b"]" * 200_000 + b"}")


class Canary:
    """Unpickling this makes a folder in the reader's working directory."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("PICKLE_WAS_EXECUTED",)


@CASES.add("disguise", 415, 422)
def pickle_in_a_zip(s: Schema, n: Notes) -> bytes:
    """what torch.save writes, with a pickle that would run code"""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in (("data.pkl", pickle.dumps({"a": Canary()}, 2)), ("version", b"3\n")):
            archive.writestr(zipfile.ZipInfo(f"archive/{name}", (1980, 1, 1, 0, 0, 0)), data)
    return buffer.getvalue()


@CASES.add("disguise", 415, 422)
def pickle_bare(s: Schema, n: Notes) -> bytes:
    """a pickle that would run code"""
    return pickle.dumps({"a": Canary()}, 2)


@CASES.add("disguise", 415, 422)
def numpy_archive(s: Schema, n: Notes) -> bytes:
    """an .npz"""
    buffer = io.BytesIO()
    renamed: dict[str, Any] = {name.replace(".", "_"): value for name, value in arrays(s, 1).items()}
    np.savez(buffer, **renamed)
    return buffer.getvalue()


@CASES.add("disguise")
def lfs_pointer(s: Schema, n: Notes) -> bytes:
    """a Git LFS pointer in place of the file"""
    return b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d" * 32 + b"\nsize 12345678\n"


@CASES.add("disguise")
def html_page(s: Schema, n: Notes) -> bytes:
    """a proxy's error page"""
    return b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>nginx</body></html>\r\n"


@CASES.add("disguise", 413, 415, headers={"Content-Encoding": "gzip"})
def gzip_bomb(s: Schema, n: Notes) -> bytes:
    """64 KiB of gzip that unfold to 64 MiB"""
    return gzip.compress(bytes(64 << 20), mtime=0)


@CASES.add("disguise", 200, 415, 422)
def gzip_without_a_word(s: Schema, n: Notes) -> bytes:
    """a gzip of a correct file, without Content-Encoding"""
    return gzip.compress(sound(s, n), mtime=0)
