"""A machine's copies of blobs: fetched once, checked, bounded, and never taken away from a job that reads them.

Several workers of one machine share a folder. A copy that is in use is locked (flock, shared) for as long as it is: the
file may be mapped by a child that opens it later by its name. Fetching and evicting hold the lock of the copy's shard,
so no two processes fetch one blob at a time and nothing is evicted between its arrival and its use.
"""

import contextlib
import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from contract.private import FILE, private, private_folder
from service.infra.blobs import hex_of

log = logging.getLogger(__name__)
Fill = Callable[[Path], int]  # writes a blob to a path, checked and on the disk; returns its size


class DiskCache:
    """A folder of copies.

    Args:
        root: the folder; made if it is not there.
        limit_bytes: what the copies may take up; those in use count, but stay in any case.
        temp: gives fresh paths on the same disk.
    """

    def __init__(self, root: Path, limit_bytes: int, temp: Callable[[], Path]):
        self.root, self._limit, self._temp = root, limit_bytes, temp
        self._locks = root / "locks"
        private_folder(root)
        private_folder(self._locks)

    def path(self, digest: str) -> Path:
        """Return where the copy of a blob is, if it is there."""
        name = hex_of(digest)
        return self.root / name[:2] / name

    @contextlib.contextmanager
    def _shard(self, name: str, wait: bool = True) -> Iterator[None]:
        """Hold a shard's lock.

        Raises:
            BlockingIOError: somebody else has it, and `wait` is False.
        """
        with open(self._locks / name[:2], "w", encoding="utf-8", opener=private) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            yield

    @contextlib.contextmanager
    def held(self, digest: str, size: Callable[[], int], fill: Fill) -> Iterator[Path]:
        """Have a copy for the length of the block, fetched if it is not there."""
        path = self.path(digest)
        with self._shard(path.name):
            if not path.exists():
                self.make_room(size())
                self._fetch(path, fill)
            os.utime(path)  # the most recently used is evicted last
            file = open(path, "rb")  # noqa: SIM115 - closed below, after the shard is free again
            fcntl.flock(file, fcntl.LOCK_SH)
        try:
            yield path
        finally:
            file.close()

    def _fetch(self, path: Path, fill: Fill) -> None:
        temp = self._temp()
        try:
            fill(temp)
            self._place(temp, path)
        finally:
            temp.unlink(missing_ok=True)

    def _place(self, temp: Path, path: Path) -> None:
        private_folder(path.parent)
        os.chmod(temp, FILE)
        os.replace(temp, path)

    def adopt(self, temp: Path, digest: str) -> None:
        """Make a finished file, whose digest this is, a copy; it leaves its old place."""
        path = self.path(digest)
        self.make_room(temp.stat().st_size)
        with self._shard(path.name):
            if not path.exists():
                self._place(temp, path)

    def _copies(self) -> list[tuple[float, int, Path]]:
        found = []
        for path in self.root.glob("[0-9a-f][0-9a-f]/*"):
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                found.append((stat.st_mtime, stat.st_size, path))
        return sorted(found)

    def make_room(self, size: int) -> None:
        """Evict the copies that were used longest ago until so many bytes fit, as far as nobody uses them."""
        copies = self._copies()
        excess = sum(taken for _, taken, _ in copies) + size - self._limit
        for _, taken, path in copies:
            if excess <= 0:
                return
            if self._evict(path):
                excess -= taken
        if excess > 0:
            log.warning("the copies of blobs in use exceed the cache's limit by %d bytes", excess)

    def _evict(self, path: Path) -> bool:
        with (
            contextlib.suppress(BlockingIOError, FileNotFoundError),
            self._shard(path.name, wait=False),
            open(path, "rb") as file,
        ):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
            return True
        return False

    def forget(self, digests: set[str]) -> None:
        """Remove copies, unless they are in use."""
        for digest in digests:
            self._evict(self.path(digest))

    def batches(self, size: int) -> Iterator[set[str]]:
        """Yield the digests of all copies, in batches."""
        names = [f"sha256-{path.name}" for _, _, path in self._copies()]
        for start in range(0, len(names), size):
            yield set(names[start : start + size])
