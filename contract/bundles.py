"""What leaves the service as one file: a tar of texts and of the blobs that they name.

A round's, for a replay, has its document of provenance; an ensemble's says who predicts together.
"""

import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

DOCUMENT = "provenance.json"
ENSEMBLE = "ensemble.json"
README = "README.md"
BLOB = re.compile(r"blobs/(sha256-[0-9a-f]{64})")
"""Name of a blob in a bundle; the group is its digest."""


def inputs_and_outputs(document: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """Return the digests of what a document's publication was made from, and of what was made."""
    made = document["outputs"]
    inputs = {each["digest"] for each in document["inputs"]}
    return inputs, {*made["models"].values(), *(made["state"] or {}).values()}


def length(texts: Mapping[str, bytes], sizes: Mapping[str, int]) -> int:
    """Return the bytes of a bundle.

    Args:
        texts: by name.
        sizes: digest -> bytes, of the blobs.
    """
    whole = _used(texts, sizes) + 2 * tarfile.BLOCKSIZE  # two empty blocks are the end
    return whole + -whole % tarfile.RECORDSIZE


def pieces(
    texts: Mapping[str, bytes], sizes: Mapping[str, int], read: Callable[[str], Iterable[bytes]]
) -> Iterator[bytes]:
    """Yield a bundle in pieces no larger than a text or those of `read`, so that none is ever in memory.

    Args:
        texts: by name; they come first, in their order.
        sizes: digest -> bytes, of the blobs.
        read: gives the bytes of a blob, in pieces.

    Raises:
        OSError: a blob has another size than was said.
    """
    for name, text in texts.items():
        yield from _member(name, len(text), (text,))
    for digest, size in sorted(sizes.items()):
        yield from _member(f"blobs/{digest}", size, read(digest))
    yield bytes(length(texts, sizes) - _used(texts, sizes))


def _used(texts: Mapping[str, bytes], sizes: Mapping[str, int]) -> int:
    stored = [*(len(text) for text in texts.values()), *sizes.values()]
    return sum(tarfile.BLOCKSIZE + size + -size % tarfile.BLOCKSIZE for size in stored)


def _member(name: str, size: int, content: Iterable[bytes]) -> Iterator[bytes]:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o600
    yield entry.tobuf(tarfile.GNU_FORMAT)
    found = 0
    for piece in content:
        found += len(piece)
        yield piece
    if found != size:
        raise OSError(f"{name}: {found} bytes were there, {size} were announced")
    yield bytes(-size % tarfile.BLOCKSIZE)
