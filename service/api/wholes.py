"""A network that lies in two blobs as one answer: a header, then the bytes of both, as they are."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from contract.whole import head_of, joined
from service.infra.blobs import BlobStore

Parts = tuple[tuple[str, int, int], ...]
"""Digest of a blob, and where in it the bytes of tensors begin and end; they follow in this order."""
_MOST = 1024
_KNOWN: dict[Parts, str] = {}
"""Digests of whole files by what they are made of, from which they follow: any replica would find the same."""


@dataclass(frozen=True)
class Whole:
    """The file of a whole network, which is stored nowhere.

    Attributes:
        head: its first bytes.
        parts: what follows.
    """

    head: bytes
    parts: Parts

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self.head) + sum(end - begin for _, begin, end in self.parts)

    def read(self, blobs: BlobStore, start: int, end: int) -> Iterator[bytes]:
        """Yield the file's bytes from `start` up to, without, `end`."""
        if start < len(self.head):
            yield self.head[start : min(end, len(self.head))]
        at = len(self.head)
        for digest, begin, stop in self.parts:
            low, high = max(start, at), min(end, at + stop - begin)
            if low < high:
                yield from blobs.read(digest, begin + low - at, begin + high - at)
            at += stop - begin


def lay_out(blobs: BlobStore, moving: str, base: str) -> Whole:
    """Return the file of the network whose trained tensors and whose base are blobs of these digests.

    Raises:
        BlobFault: one is damaged or missing.
    """
    found = [(digest, blobs.header(digest)) for digest in (base, moving)]
    whole = joined(found[1][1], found[0][1])
    parts = tuple((digest, header.data_start, header.total_size) for digest, header in found)
    return Whole(head_of(whole), parts)


def digest_of(blobs: BlobStore, whole: Whole) -> str:
    """Return the digest of a whole network's file; it is read for that once, and the last are remembered."""
    found = _KNOWN.get(whole.parts)
    if found is None:
        digest = hashlib.sha256()
        for piece in whole.read(blobs, 0, whole.size):
            digest.update(piece)
        found = _KNOWN[whole.parts] = f"sha256-{digest.hexdigest()}"
        while len(_KNOWN) > _MOST:
            _KNOWN.pop(next(iter(_KNOWN)), None)
    return found
