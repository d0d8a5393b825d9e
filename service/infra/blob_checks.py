"""Whether stored files are what their digests say: once as long as a file is the same, or while a job reads them."""

import logging
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol

from service.infra.blobs import BLOCK, BlobFault, Identity
from service.infra.sums import Checksum, Sums

log = logging.getLogger(__name__)
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


class _Summing(Protocol):
    def update(self, block: memoryview) -> None: ...


class Inspection:
    """Reads files and compares them with their checksums while a job works with them, in a thread of its own.

    Whoever has read them by then has had the same pages: the disk is asked once, and summing holds no lock of Python's,
    so that it costs time only where no second core is free. A file whose checksum is not known, or is another one, is
    compared with its digest, which decides. What the job made counts after `check`, which takes files of its own while
    the thread is not through.

    Args:
        files: digest -> path; read in this order.
        on_fault: called once, when the first fault is found.
        checksums: digest -> checksum, of those files of which it is known.

    Attributes:
        faults: what was found missing or damaged.
        mended: digest -> checksum of whole files of which it was not known, or wrong.
    """

    def __init__(
        self,
        files: Mapping[str, Path],
        on_fault: Callable[[], None] = lambda: None,
        checksums: Mapping[str, str] | None = None,
    ):
        self._left, self._on_fault, self._checksums = deque(files.items()), on_fault, checksums or {}
        self._ended = threading.Event()
        self._telling = threading.Lock()
        self.faults: list[BlobFault] = []
        self.mended: dict[str, str] = {}
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
                return self._difference(digest, file)
        except FileNotFoundError:
            return BlobFault(digest, "missing")
        except OSError as error:
            return BlobFault(digest, "damaged", detail=error.strerror or str(error))

    def _difference(self, digest: str, file: BinaryIO) -> BlobFault | None:
        """Compare an open file with its checksum, and with its digest where that says nothing or no."""
        known = self._checksums.get(digest)
        if known is not None:
            checksum = Checksum()
            if not self._summed(file, checksum) or checksum.value == known:
                return None
            file.seek(0)
        sums = Sums()
        if not self._summed(file, sums):
            return None
        if sums.digest != digest:
            return BlobFault(digest, "damaged")
        if sums.checksum != known:
            if known is not None:
                log.warning("%s is whole, and its checksum in the database was wrong: it is mended", digest)
            self.mended[digest] = sums.checksum
        return None

    def _summed(self, file: BinaryIO, into: "_Summing") -> bool:
        """Read a file to its end; return False when nobody wants to know any more."""
        block = memoryview(bytearray(BLOCK))
        while count := file.readinto(block):  # type: ignore[attr-defined]
            if self._ended.is_set():
                return False
            into.update(block[:count])
        return True


class BlobFaults(Exception):
    """Files that a job reads are missing or damaged."""

    def __init__(self, faults: Iterable[BlobFault]):
        self.faults = sorted(faults, key=lambda fault: fault.digest)
        super().__init__("; ".join(str(fault) for fault in self.faults))
