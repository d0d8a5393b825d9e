"""Bytes of resumable uploads in a bucket: an object a flushed run, so that any replica can go on with an upload.

Not the parts of a multipart upload: those cannot be smaller than 5 MiB, and a device may send less between two cuts.
"""

import contextlib
import os
import re
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from contract.private import private
from service.infra import clock
from service.infra.bucket import Bucket, NotThere
from service.infra.parts import PartsLost
from service.infra.scratch import Scratch

_ID = re.compile(r"upl_[0-9a-z]{23}")
_PART = re.compile(r"([0-9]{1,15})-([0-9]{1,15})-[0-9a-f]{32}")  # offset, length, and what makes it unique


class _BucketWriter:
    """Collects a run in scratch and puts it at a flush. Two writers never touch one object; the database says whose
    objects count.
    """

    def __init__(self, bucket: Bucket, folder: str, offset: int, parts: list[str], scratch: Scratch):
        self._bucket, self._folder, self._offset = bucket, folder, offset
        self._path = scratch.temp()
        self._file = open(self._path, "w+b", buffering=0, opener=private)  # noqa: SIM115 - closed by close()
        self._length = 0
        self.parts = list(parts)

    def write(self, piece: memoryview) -> None:
        """Take the next bytes."""
        self._length += len(piece)
        while piece:
            piece = piece[self._file.write(piece) :]

    def flush(self) -> None:
        """Put what was written since the last flush."""
        if not self._length:
            return
        name = f"{self._offset}-{self._length}-{uuid.uuid4().hex}"
        self._file.seek(0)
        self._bucket.put(f"{self._folder}{name}", self._file)
        self.parts.append(name)
        self._offset, self._length = self._offset + self._length, 0
        self._file.seek(0)
        self._file.truncate()

    def close(self) -> None:
        """End the run."""
        self._file.close()
        self._path.unlink(missing_ok=True)


class BucketParts:
    """The bytes of uploads that are not whole yet, under a prefix of the bucket."""

    def __init__(self, bucket: Bucket, scratch: Scratch):
        self._bucket, self._scratch = bucket, scratch

    def _folder(self, upload: str) -> str:
        if not _ID.fullmatch(upload):
            raise ValueError(f"not the id of an upload: {upload!r}")
        return f"uploads/{upload}/"

    def writer(self, upload: str, offset: int, parts: list[str], holder: str) -> _BucketWriter:
        """Go on with an upload at an offset.

        Raises:
            PartsLost: the parts do not reach that far.
        """
        if _reach(parts) != offset:
            raise PartsLost
        return _BucketWriter(self._bucket, self._folder(upload), offset, parts, self._scratch)

    def assemble(self, upload: str, parts: list[str], length: int, target: Path) -> None:
        """Write the parts one after the other.

        Raises:
            PartsLost: they are not there, or are not the whole.
        """
        folder = self._folder(upload)
        if _reach(parts) != length:
            raise PartsLost
        with open(target, "xb", opener=private) as file:
            for name in parts:
                try:
                    for block in self._bucket.read(f"{folder}{name}", 0, None):
                        file.write(block)
                except NotThere:
                    raise PartsLost from None
            if file.tell() != length:
                raise PartsLost
            file.flush()
            os.fsync(file.fileno())

    def remove(self, upload: str) -> None:
        """Remove an upload's bytes, those that were never acknowledged among them."""
        for item in self._bucket.listing(self._folder(upload)):
            with contextlib.suppress(NotThere):
                self._bucket.call("delete_object", self._bucket.inner(item["Key"]))

    def ids(self, older_than_seconds: float) -> Iterator[str]:
        """Yield the uploads that have bytes here and got none for some time."""
        newest = clock.patient(clock.now(), clock.A_DAY) - timedelta(seconds=older_than_seconds)
        seen: dict[str, bool] = {}
        for item in self._bucket.listing("uploads/"):
            upload = self._bucket.inner(item["Key"]).split("/")[1]
            seen[upload] = seen.get(upload, True) and item["LastModified"] <= newest
        yield from (upload for upload, old in seen.items() if old and _ID.fullmatch(upload))


def _reach(parts: list[str]) -> int:
    """Return up to where parts, one after the other, have everything; -1 when they do not fit together."""
    offset = 0
    for name in parts:
        match = _PART.fullmatch(name)
        if match is None or int(match[1]) != offset:
            return -1
        offset += int(match[2])
    return offset
