"""Whether stored files are what their digests say: once as long as a file is the same, or while a job reads them."""

import hashlib
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from service.infra.blobs import BLOCK, BlobFault, Identity

_KEPT = 4096
_LOCKS = 64


def identity_of(found: os.stat_result) -> Identity:
    """Return what tells a file from another one of its name: a write to it, too, as the system's own clock noticed."""
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class Checked:
    """Remembers which files were read and found whole; of one process, and bounded."""

    def __init__(self) -> None:
        self._whole: OrderedDict[str, Identity] = OrderedDict()
        self._lock = threading.Lock()
        self._reading = [threading.Lock() for _ in range(_LOCKS)]

    def see(self, digest: str, identity: Identity, found: Callable[[], str], anew: bool = False) -> None:
        """See that a file is whole; of several callers at once, one reads it.

        Args:
            digest: what it should be.
            identity: which file it is.
            found: reads the file and returns its digest.
            anew: have it read although it is known.

        Raises:
            BlobFault: it is not.
        """
        if not anew and self._knows(digest, identity):
            return
        with self._reading[hash(digest) % _LOCKS]:
            if not anew and self._knows(digest, identity):
                return
            if found() != digest:
                raise BlobFault(digest, "damaged", identity)
            with self._lock:
                self._whole[digest] = identity
                while len(self._whole) > _KEPT:
                    self._whole.popitem(last=False)

    def _knows(self, digest: str, identity: Identity) -> bool:
        with self._lock:
            return self._whole.get(digest) == identity


class Inspection:
    """Reads files and compares them with their digests while a job works with them, in a thread of its own.

    Whoever has read them by then has had the same pages: the disk is asked once, and hashing holds no lock of Python's,
    so that it costs time only where no second core is free. What the job made counts after `check`, which takes files
    of its own while the thread is not through.

    Args:
        files: digest -> path; read in this order.
        on_fault: called once, when the first fault is found.
    """

    def __init__(self, files: Mapping[str, Path], on_fault: Callable[[], None] = lambda: None):
        self._left, self._on_fault = deque(files.items()), on_fault
        self._ended = threading.Event()
        self._telling = threading.Lock()
        self.faults: list[BlobFault] = []
        self._thread = threading.Thread(target=self._run, name="inspection", daemon=True)

    def __enter__(self) -> "Inspection":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def check(self) -> None:
        """Help with what is left, and wait for the end of it.

        Raises:
            BlobFaults: files are missing or damaged.
        """
        self._run()
        self._thread.join()
        if self.faults:
            raise BlobFaults(self.faults)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                digest, path = self._left.popleft()
            except IndexError:
                return
            fault = self._fault(digest, path)
            if fault is not None:
                with self._telling:
                    self.faults.append(fault)
                    first = len(self.faults) == 1
                if first:
                    self._on_fault()

    def _fault(self, digest: str, path: Path) -> BlobFault | None:
        try:
            with open(path, "rb", buffering=0) as file:
                found = digest_until(file, self._ended)
        except FileNotFoundError:
            return BlobFault(digest, "missing")
        except OSError as error:
            return BlobFault(digest, "damaged", detail=error.strerror or str(error))
        return None if found in (digest, None) else BlobFault(digest, "damaged")


class BlobFaults(Exception):
    """Files that a job reads are missing or damaged."""

    def __init__(self, faults: Iterable[BlobFault]):
        self.faults = sorted(faults, key=lambda fault: fault.digest)
        super().__init__("; ".join(str(fault) for fault in self.faults))


def digest_until(file: BinaryIO, ended: threading.Event) -> str | None:
    """Return the digest of an open file, or None when `ended` was set before its end."""
    found, block = hashlib.sha256(), bytearray(BLOCK)
    view = memoryview(block)
    while count := file.readinto(view):  # type: ignore[attr-defined]
        if ended.is_set():
            return None
        found.update(view[:count])
    return f"sha256-{found.hexdigest()}"
