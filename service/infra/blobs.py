"""Content-addressed files: written beside, put on the disk, renamed to their digest; never changed again."""

import contextlib
import hashlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

_DIGEST = re.compile(r"sha256-[0-9a-f]{64}")
_BLOCK = 1 << 20


class Blobs:
    """A local folder of blobs.

    Args:
        root: the folder; made if it is not there.
    """

    def __init__(self, root: Path):
        self.root = root
        self._temp = root / "tmp"
        self._temp.mkdir(parents=True, exist_ok=True)

    def path(self, digest: str) -> Path:
        """Return where the blob of a digest is.

        Raises:
            ValueError: not a digest; no path is ever made from anything else.
        """
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"not a digest: {digest!r}")
        return self.root / digest[7:9] / digest[7:]

    def temp(self) -> Path:
        """Return a fresh path for a file in the making."""
        return self._temp / f"up-{uuid.uuid4().hex}"

    def work_dir(self, job_id: str, fence: int) -> Path:
        """Return an empty folder for the outputs of a job; those of its earlier holders go."""
        for old in self._temp.glob(f"job-{job_id}-*"):
            shutil.rmtree(old, ignore_errors=True)
        folder = self._temp / f"job-{job_id}-{fence}"
        folder.mkdir(parents=True)
        return folder

    def keep(self, temp: Path, digest: str) -> None:
        """Give a file, which must be on the disk already (fsync), its final name."""
        final = self.path(digest)
        final.parent.mkdir(exist_ok=True)
        os.replace(temp, final)
        for folder in (final.parent, self.root):
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def delete(self, digest: str) -> None:
        """Remove a blob; one that is not there does no harm."""
        with contextlib.suppress(FileNotFoundError):
            self.path(digest).unlink()

    def free_bytes(self) -> int:
        """Return the free space of the disk."""
        return shutil.disk_usage(self.root).free

    def batches(self, older_than_seconds: float, size: int) -> Iterator[set[str]]:
        """Yield the digests of all blobs of some age, in batches."""
        batch: set[str] = set()
        for folder in self.root.glob("[0-9a-f][0-9a-f]"):
            for path in folder.iterdir():
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - path.stat().st_mtime >= older_than_seconds:
                        batch.add(f"sha256-{path.name}")
                if len(batch) >= size:
                    yield batch
                    batch = set()
        if batch:
            yield batch

    def sweep(self, older_than_seconds: float, working: set[str]) -> int:
        """Remove abandoned files in the making and the folders of jobs that nobody works on; return how many.

        Args:
            older_than_seconds: since an upload's last byte.
            working: names of the folders of jobs that run, as `work_dir` was given them.
        """
        removed = 0
        for entry in self._temp.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if time.time() - entry.stat().st_mtime < older_than_seconds:
                    continue
                if entry.is_dir():
                    if entry.name.removeprefix("job-") in working:
                        continue
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    entry.unlink()
                removed += 1
        return removed


def digest_of(path: Path) -> tuple[str, int]:
    """Return the digest and the size of a file."""
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return f"sha256-{digest.hexdigest()}", size
