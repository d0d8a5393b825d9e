"""Blobs in a local folder: written beside, put on the disk, renamed to their digest; never changed again."""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from contract.tensors import Header, TensorFile
from service.infra.blobs import BLOCK, STATES, Blobs, Report, Staging, digest_at, hex_of, unreported
from service.infra.parts import LocalParts
from service.infra.scratch import Scratch


def open_folder(root: Path) -> Blobs:
    """Return the blobs of a local folder."""
    store, scratch = FolderStore(root), Scratch(root / "tmp")
    parts = partial(LocalParts, root / "uploads")  # beside the blobs, so that a whole upload is linked, not copied
    return Blobs(store, NoCache(store), scratch, FolderStates(scratch.root), FolderLinks(store), parts)


class FolderStore:
    """A local folder of blobs, made if it is not there."""

    def __init__(self, root: Path):
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def path(self, digest: str) -> Path:
        """Return where the blob of a digest is."""
        name = hex_of(digest)
        return self.root / name[:2] / name

    def prepare(self, temp: Path, digest: str) -> None:
        """Do nothing: a rename is quick."""

    def keep(self, temp: Path, digest: str) -> None:
        """Rename a file and put its new name on the disk."""
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

    @contextlib.contextmanager
    def removing(self) -> Iterator[bool]:
        """Keep backups from beginning during the block; it is told False while one is made."""
        with self._folder() as folder:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Hold off all removal for the length of the block, in every process on this machine; it ends with ours."""
        with self._folder() as folder:
            fcntl.flock(folder, fcntl.LOCK_SH)
            yield

    @contextlib.contextmanager
    def _folder(self) -> Iterator[int]:
        """Open the folder itself: its lock needs no file, and ends with the process."""
        handle = os.open(self.root, os.O_RDONLY)
        try:
            yield handle
        finally:
            os.close(handle)

    def size(self, digest: str) -> int:
        """Return the size in bytes."""
        return self.path(digest).stat().st_size

    def read(self, digest: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from `start` up to, without, `end`, in pieces of at most a mebibyte."""
        with open(self.path(digest), "rb") as file:
            left = (os.fstat(file.fileno()).st_size if end is None else end) - start
            file.seek(start)
            while left > 0 and (block := file.read(min(BLOCK, left))):
                left -= len(block)
                yield block

    def header(self, digest: str) -> Header:
        """Return the header of a blob that is a safetensors file."""
        with TensorFile(self.path(digest)) as file:
            return file.header

    def check(self) -> str:
        """Return where the folder is."""
        return str(self.root)

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

    def sweep(self, older_than_seconds: float) -> int:
        """Do nothing: what is not finished lies in the scratch folder."""
        return 0


class NoCache:
    """No copies: all blobs are at their path as long as something names them."""

    def __init__(self, store: FolderStore):
        self.path = store.path

    def digest_at(self, path: Path) -> str | None:
        """Return the digest of the blob whose `path` this is, or None for any other path."""
        return digest_at(path, self.path)

    @contextlib.contextmanager
    def hold(self, digests: Iterable[str], report: Report = unreported) -> Iterator[None]:
        """Do nothing."""
        yield

    def adopt(self, temp: Path, digest: str) -> None:
        """Do nothing: the blob is this machine's copy."""

    def batches(self, size: int) -> Iterator[set[str]]:
        """Yield nothing: there are no copies."""
        return iter(())

    def forget(self, digests: set[str]) -> None:
        """Do nothing: there are no copies."""


class FolderStates:
    """States of jobs in a folder that all machines share; whatever is left there is swept with the scratch folder."""

    def __init__(self, root: Path):
        self._root = root

    @contextlib.contextmanager
    def open(self, job_id: str, every_seconds: float) -> Iterator[Path]:
        """Yield a job's folder."""
        yield self._folder(job_id)

    def _folder(self, job_id: str) -> Path:
        return self._root / f"{STATES}{job_id}"

    def forget(self, job_id: str) -> None:
        """Remove the states of a job that is over."""
        shutil.rmtree(self._folder(job_id), ignore_errors=True)

    def sweep(self, older_than_seconds: float, working: set[str]) -> int:
        """Do nothing."""
        return 0


class FolderLinks:
    """Blobs are files that the service can send by themselves."""

    def __init__(self, store: FolderStore):
        self._store = store

    def file(self, digest: str) -> Path | None:
        """Return the blob's file."""
        return self._store.path(digest)

    def link(self, digest: str) -> str | None:
        """Return None: a folder has no addresses."""
        return None

    def staging(self) -> Staging | None:
        """Return None: devices send through the service."""
        return None
