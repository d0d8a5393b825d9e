"""A fuzz run of the safetensors reader: sound files, bent in their bytes, their header and their layout.

    python -m tools.fuzz.reader --seconds 60 --seed 1

Whatever comes, the reader answers with a header or a TensorError, in bounded memory; the stream and the file get one
verdict, however the stream is cut; and what is accepted, the library reads with the same values.
"""

import argparse
import json
import random
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from contract.tensors import Header, StreamCheck, TensorError, TensorFile, check_file

DTYPES = ("F64", "F32", "F16", "I64", "I32", "I16", "I8", "U8", "BOOL", "BF16")
ITEM = {"F64": 8, "F32": 4, "F16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1, "BF16": 2}
WORDS = ("", "a", "__metadata__", "dtype", "shape", "data_offsets", "running_var", "\ud800", "é", "a" * 2000, "../x")
NUMBERS: tuple[Any, ...] = (0, -1, 1, 7, 2**31, 2**53 + 1, 2**63, 2**64, 10**400, 1.5, -0.0, True, None, "1", [], {})


def sound(rng: random.Random) -> tuple[dict[str, Any], bytes]:
    """Return the header and the data of a sound file."""
    header: dict[str, Any] = {}
    data = b""
    if rng.random() < 0.5:
        header["__metadata__"] = {f"k{number}": "v" * rng.randrange(20) for number in range(rng.randrange(3))}
    for number in range(rng.randrange(5)):
        dtype = rng.choice(DTYPES)
        shape = [rng.randrange(4) for _ in range(rng.randrange(4))]
        size = int(np.prod(shape, dtype=np.int64)) * ITEM[dtype]
        name = rng.choice(("w", "bn.running_var", "counter", "ünï")) + str(number)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + size]}
        values = rng.randbytes(size) if rng.random() < 0.3 else bytes(size)
        data += values
    return header, data


def pack(header: Any, data: bytes, pad: int = 0) -> bytes:
    """Return a file of a header, which may be anything, and data."""
    head = json.dumps(header).encode() + b" " * pad
    return struct.pack("<Q", len(head)) + head + data


def _node(rng: random.Random, tree: Any) -> tuple[Any, Any] | None:
    """Return a container somewhere in a tree and a key of it."""
    places = []
    todo = [tree]
    while todo:
        node = todo.pop()
        items = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
        places += [(node, key) for key, _ in items]
        todo += [value for _, value in items if isinstance(value, dict | list)]
    return rng.choice(places) if places else None


def bend_header(rng: random.Random, header: dict[str, Any], data: bytes) -> bytes:
    """Change something in the header's tree."""
    tree = json.loads(json.dumps(header))
    for _ in range(rng.randrange(1, 3)):
        place = _node(rng, tree)
        if place is None:
            tree[rng.choice(WORDS)] = rng.choice(NUMBERS)
            continue
        node, key = place
        action = rng.randrange(4)
        if action == 0:
            del node[key]
        elif action == 1 and isinstance(node, dict):
            node[rng.choice(WORDS)] = node.pop(key)
        elif action == 2 and isinstance(node[key], int) and not isinstance(node[key], bool):
            node[key] += rng.choice((-8, -1, 1, 4, 8, 2**32))
        else:
            node[key] = rng.choice((*NUMBERS, *WORDS))
    return pack(tree, data, rng.randrange(9))


def bend_bytes(rng: random.Random, header: dict[str, Any], data: bytes) -> bytes:
    """Flip, insert, cut or repeat bytes anywhere."""
    body = bytearray(pack(header, data, rng.randrange(9)))
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(body) + 1)
        action = rng.randrange(5)
        if action == 0 and at < len(body):
            body[at] ^= 1 << rng.randrange(8)
        elif action == 1:
            body[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif action == 2:
            del body[at : at + rng.randrange(1, 17)]
        elif action == 3:
            del body[at:]
        else:
            body[at:at] = body[at : at + rng.randrange(1, 33)]
    return bytes(body)


def bend_prefix(rng: random.Random, header: dict[str, Any], data: bytes) -> bytes:
    """Lie about the header's length."""
    body = pack(header, data)
    length = struct.unpack("<Q", body[:8])[0]
    lie = rng.choice(
        (0, 1, 2**64 - 1, 2**63, 90_000_000, length - 1, length + 1, length + len(data), rng.getrandbits(64))
    )
    return struct.pack("<Q", max(0, lie)) + body[8:]


def bend_text(rng: random.Random, header: dict[str, Any], data: bytes) -> bytes:
    """Write a header that no JSON writer would."""
    text = json.dumps(header).encode()
    odd = rng.choice(
        (
            b'{"a":' * 5000 + b"1" + b"}" * 5000,
            text[:-1] + (b"," if header else b"") + b'"x":NaN}',
            text.replace(b"{", b'{"__metadata__":{},', 1),
            text + b"\x00\x00",
            text.replace(b"F32", b"F\xff2"),
            b"\xef\xbb\xbf" + text,
            text.replace(b"[", b"[[", 1),
            text[:-1] + (b"," if header else b"") + text[1:],
        )
    )
    return struct.pack("<Q", len(odd)) + odd + data


def nothing(rng: random.Random, header: dict[str, Any], data: bytes) -> bytes:
    """Leave the file sound."""
    return pack(header, data, rng.randrange(9))


Bend = Callable[[random.Random, dict[str, Any], bytes], bytes]
BENDS: tuple[Bend, ...] = (nothing, bend_header, bend_header, bend_bytes, bend_bytes, bend_prefix, bend_text)


def verdict(act: Callable[[], Header]) -> tuple[str, Header | None]:
    """Return 'ok' or the refusal's code; anything but a TensorError passes through and ends the run."""
    try:
        return "ok", act()
    except TensorError as error:
        return error.code, None


def stream(body: bytes, rng: random.Random, announce: bool) -> Header:
    """Check a body as an upload is, cut anywhere."""
    check = StreamCheck(None, len(body) if announce else None)
    position = 0
    while position < len(body):
        step = rng.choice((1, 7, 64, 1000, len(body)))
        check.feed(body[position : position + step])
        position += step
    return check.finish()


def library_agrees(path: Path, header: Header) -> None:
    """What we accept, the library reads, with the same names, shapes and bytes."""
    with TensorFile(path) as mine, safe_open(path, framework="np") as theirs:
        assert sorted(theirs.keys()) == sorted(header.tensors)
        for name, info in header.tensors.items():
            part = theirs.get_slice(name)
            assert (tuple(part.get_shape()), part.get_dtype()) == (info.shape, info.dtype), name
            if info.dtype != "BF16":  # the library's numpy side has none
                assert theirs.get_tensor(name).tobytes() == np.ascontiguousarray(mine.read(name)).tobytes(), name


def one(rng: random.Random, path: Path) -> tuple[str, str]:
    """Try one file; return how it was bent and its verdict."""
    bend = rng.choice(BENDS)
    body = bend(rng, *sound(rng))
    path.write_bytes(body)
    by_file, header = verdict(lambda: check_file(path))
    for announce in (True, False):
        by_stream, _ = verdict(lambda announce=announce: stream(body, rng, announce))  # type: ignore[misc]
        alike = by_stream == by_file if announce else (by_stream == "ok") == (by_file == "ok")  # bad in two ways
        assert alike, f"stream {by_stream}, file {by_file}: {body[:300]!r}"
    if header is not None:
        try:
            library_agrees(path, header)
        except SafetensorError as error:
            raise AssertionError(f"accepted here, refused by the library ({error}): {body[:300]!r}") from error
    return bend.__name__, by_file


def fuzz(seed: int, seconds: float = 0.0, count: int = 0) -> Counter[tuple[str, str]]:
    """Try files until the time or the count is used up; return (kind of bend, verdict) -> how often."""
    rng, seen = random.Random(seed), Counter[tuple[str, str]]()
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.safetensors"
        while sum(seen.values()) < count or time.monotonic() < end:
            state = rng.getstate()
            try:
                seen[one(rng, path)] += 1
            except BaseException:
                print(f"seed {seed}, file {sum(seen.values())}: {path.read_bytes()[:400]!r} (state {hash(state)})")
                raise
    return seen


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    seen = fuzz(arguments.seed, arguments.seconds)
    for (bend, said), times in sorted(seen.items()):
        print(f"{bend:12} {said:10} {times:8}")
    print(f"{sum(seen.values())} files, none of them answered by anything but a verdict")


if __name__ == "__main__":
    main()
