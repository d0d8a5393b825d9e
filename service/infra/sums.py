"""What a blob's bytes come to: the digest that names it, and a checksum that finds damage many times faster."""

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import xxhash

from service.infra.blobs import BLOCK


class Checksum:
    """XXH3 of bytes as they come, 128 bits. It tells damage, and nobody's intent: other bytes of the same checksum can
    be made.
    """

    def __init__(self) -> None:
        self._state = xxhash.xxh3_128()

    def update(self, block: bytes | memoryview) -> None:
        """Take some more bytes; without Python's lock, as SHA-256 does."""
        self._state.update(block)

    @property
    def value(self) -> str:
        """`xxh3-` and 32 hexadecimal digits."""
        return f"xxh3-{self._state.hexdigest()}"


class Sums:
    """Digest and checksum of bytes as they come, by one pass over them."""

    def __init__(self) -> None:
        self._digest, self._checksum, self.size = hashlib.sha256(), Checksum(), 0

    def update(self, block: bytes | memoryview) -> None:
        """Take some more bytes."""
        self._digest.update(block)
        self._checksum.update(block)
        self.size += len(block)

    @property
    def digest(self) -> str:
        """The name of a blob of these bytes."""
        return f"sha256-{self._digest.hexdigest()}"

    @property
    def checksum(self) -> str:
        """What a job compares such a blob with."""
        return self._checksum.value


def sums_of(path: Path, seen: Callable[[memoryview], object] = lambda block: None) -> Sums:
    """Return digest, checksum and size of a file; `seen` is lent its bytes in the same pass."""
    sums, buffer = Sums(), memoryview(bytearray(BLOCK))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            block = buffer[:count]
            seen(block)
            sums.update(block)
    return sums


@contextmanager
def on_disk(path: Path) -> Iterator[None]:
    """Put a file on the disk (fsync) while the block reads it; it is there when the block has ended.

    Raises:
        OSError: it cannot be put there.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="fsync") as pool:
        done = pool.submit(_put, path)
        yield
        done.result()


def _put(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
