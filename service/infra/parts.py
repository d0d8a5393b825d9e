"""Where the bytes of resumable uploads wait until the upload is whole and is delivered by name.

A store keeps what was flushed and nothing else: whoever goes on starts at the offset that the database has, and what
lies behind it on the disk was acknowledged to nobody.
"""

import contextlib
import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from contract.private import FILE, private, private_folder
from service.infra import clock

_ID = re.compile(r"upl_[0-9a-z]{23}")
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP)


class PartsBusy(Exception):
    """Another process is writing."""


class PartsLost(Exception):
    """Less is there than was acknowledged: somebody removed it, or an older backup was restored."""


class PartWriter(Protocol):
    """Writes one run of bytes."""

    @property
    def parts(self) -> list[str]:
        """What the store must be told to find everything up to the last flush."""

    def write(self, piece: memoryview) -> None:
        """Take the next bytes."""

    def flush(self) -> None:
        """Make what was written survive a crash."""

    def close(self) -> None:
        """End the run; what was not flushed is lost."""


class Parts(Protocol):
    """The bytes of uploads that are not whole yet."""

    def writer(self, upload: str, offset: int, parts: list[str], holder: str) -> PartWriter:
        """Go on with an upload at an offset.

        Raises:
            PartsBusy, PartsLost.
        """

    def assemble(self, upload: str, parts: list[str], length: int, target: Path) -> None:
        """Make `target` a file with all bytes of a whole upload, on the disk.

        Raises:
            PartsLost: they are not there.
        """

    def remove(self, upload: str) -> None:
        """Remove an upload's bytes; one that is not there does no harm."""

    def ids(self, older_than_seconds: float) -> Iterator[str]:
        """Yield the uploads that have bytes here and got none for some time."""


class _LocalWriter:
    parts: list[str] = []

    def __init__(self, path: Path, offset: int):
        fresh = not path.exists()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise PartsBusy from error
            if os.fstat(self._file).st_size < offset:
                raise PartsLost
            os.ftruncate(self._file, offset)
            os.lseek(self._file, offset, os.SEEK_SET)
            if fresh:
                _sync(path.parent)
        except BaseException:
            os.close(self._file)
            raise

    def write(self, piece: memoryview) -> None:
        while piece:
            piece = piece[os.write(self._file, piece) :]

    def flush(self) -> None:
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


class LocalParts:
    """A folder with a file an upload. A lock of the operating system stands behind the lease in the database: a process
    that was paused and has lost its lease still has the lock, and nobody writes beside it.

    Args:
        root: the folder, on one file system with the blobs; made if it is not there.
    """

    def __init__(self, root: Path):
        self.root = root
        private_folder(root)

    def _path(self, upload: str) -> Path:
        if not _ID.fullmatch(upload):
            raise ValueError(f"not the id of an upload: {upload!r}")
        return self.root / upload

    def writer(self, upload: str, offset: int, parts: list[str], holder: str) -> PartWriter:
        """Go on with an upload at an offset."""
        return _LocalWriter(self._path(upload), offset)

    def assemble(self, upload: str, parts: list[str], length: int, target: Path) -> None:
        """Give the file a second name: nothing is copied, and the upload stays whole until it has counted."""
        source = self._path(upload)
        if not length:
            target.touch(mode=FILE, exist_ok=False)
            return
        if not source.exists() or source.stat().st_size < length:
            raise PartsLost
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            _copy(source, target)
        os.utime(target)  # else the sweep would take it for an abandoned file

    def remove(self, upload: str) -> None:
        """Remove an upload's bytes."""
        self._path(upload).unlink(missing_ok=True)

    def ids(self, older_than_seconds: float) -> Iterator[str]:
        """Yield the uploads that have bytes here and got none for some time."""
        for path in self.root.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if _ID.fullmatch(path.name) and clock.age(path) >= older_than_seconds:
                    yield path.name


def _copy(source: Path, target: Path) -> None:
    with open(source, "rb") as from_, open(target, "xb", opener=private) as to:
        shutil.copyfileobj(from_, to, 1 << 20)
        to.flush()
        os.fsync(to.fileno())


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
