"""Blobs in a local folder: written beside, put on the disk, renamed to their digest; never changed again."""

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from io import BufferedReader
from pathlib import Path

from contract.private import FILE, FOLDER, close_file, private_folder
from contract.tensors import Header, TensorFile
from service.domain.errors import DomainError
from service.infra import clock
from service.infra.blob_checks import Checked, identity_of
from service.infra.blobs import (
    BLOCK,
    QUARANTINE_FILES,
    QUARANTINE_SECONDS,
    STATES,
    BlobFault,
    Blobs,
    Identity,
    Report,
    Staging,
    digest_at,
    hex_of,
    unreported,
)
from service.infra.headers import Headers
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
        self.root, self.quarantine = root, root / "quarantine"
        private_folder(root)
        self._checked, self._headers = Checked(), Headers()
        self._settled: set[Path] = set()  # folders whose own names this process has put on the disk

    def path(self, digest: str) -> Path:
        """Return where the blob of a digest is."""
        name = hex_of(digest)
        return self.root / name[:2] / name

    def prepare(self, temp: Path, digest: str) -> None:
        """Do nothing: a rename is quick."""

    def keep(self, temp: Path, digest: str) -> None:
        """Rename a file and put its new name on the disk."""
        self.name(temp, digest)
        self.settle([digest])

    def name(self, temp: Path, digest: str) -> None:
        """Rename a file."""
        final = self.path(digest)
        with contextlib.suppress(FileExistsError):
            final.parent.mkdir(mode=FOLDER)
            self._settled.discard(final.parent)
        os.chmod(temp, FILE)
        os.replace(temp, final)

    def settle(self, digests: Collection[str]) -> None:
        """Put new names on the disk: each folder once, and those after the first are often on it by then."""
        folders = {self.path(digest).parent for digest in digests}
        fresh = folders - self._settled
        for folder in [*sorted(folders), *([self.root] if fresh else [])]:
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        self._settled |= fresh

    def delete(self, digest: str) -> None:
        """Remove a blob, also one that was set aside; one that is not there does no harm."""
        self.path(digest).unlink(missing_ok=True)
        (self.quarantine / hex_of(digest)).unlink(missing_ok=True)

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

    def verify(self, digest: str, anew: bool = False) -> None:
        """See that a blob is there and whole; it is read once, as long as it is the same file, unless `anew`."""
        try:
            file = open(self.path(digest), "rb")  # noqa: SIM115 - closed below; only opening it may find nothing
        except FileNotFoundError:
            raise BlobFault(digest, "missing") from None
        with file:
            identity = identity_of(os.fstat(file.fileno()))
            self._checked.see(digest, identity, partial(_digest, file, digest, identity), anew)

    def set_aside(self, fault: BlobFault) -> bool:
        """Move a damaged blob into the quarantine, unless another file has taken its place meanwhile."""
        path = self.path(fault.digest)
        with contextlib.suppress(FileNotFoundError):
            if identity_of(path.stat()) != fault.seen:
                return False
            private_folder(self.quarantine)
            os.chmod(path, FILE)
            os.utime(path)  # its time here begins
            os.replace(path, self.quarantine / path.name)
            self._bound_quarantine()
            return True
        return False

    def _bound_quarantine(self) -> int:
        """Remove what has been set aside for long, and the oldest of too many; return how many."""
        kept = [(clock.age(path), path) for path in self.quarantine.glob("*")]
        old = [path for age, path in kept if age > QUARANTINE_SECONDS]
        many = [path for _, path in sorted(kept)[QUARANTINE_FILES:]]
        for path in {*old, *many}:
            path.unlink(missing_ok=True)
        return len({*old, *many})

    def header(self, digest: str) -> Header:
        """Return the header of a blob that is a safetensors file, after `verify`."""
        self.verify(digest)
        return self._headers.of(digest, partial(self._header, digest))

    def _header(self, digest: str) -> Header:
        with TensorFile(self.path(digest)) as file:
            return file.header

    def check(self) -> str:
        """Return where the folder is.

        Raises:
            DomainError: storage-unavailable: it is not there, or cannot be written.
        """
        if not os.access(self.root, os.R_OK | os.W_OK | os.X_OK) or not self.root.is_dir():
            raise DomainError("storage-unavailable", f"the folder {self.root} is not there or cannot be written")
        return str(self.root)

    def batches(self, older_than_seconds: float, size: int) -> Iterator[set[str]]:
        """Yield the digests of all blobs of some age, in batches."""
        batch: set[str] = set()
        for folder in self.root.glob("[0-9a-f][0-9a-f]"):
            close_file(folder)
            for path in folder.iterdir():
                with contextlib.suppress(FileNotFoundError):
                    close_file(path)
                    if clock.age(path) >= older_than_seconds:
                        batch.add(f"sha256-{path.name}")
                if len(batch) >= size:
                    yield batch
                    batch = set()
        if batch:
            yield batch

    def sweep(self, older_than_seconds: float) -> int:
        """Bound the quarantine; what is not finished lies in the scratch folder."""
        return self._bound_quarantine()


def _digest(file: BufferedReader, digest: str, identity: Identity) -> str:
    try:
        return f"sha256-{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as error:  # the disk gives it no more
        raise BlobFault(digest, "damaged", identity, error.strerror or str(error)) from error


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

    def drop(self, digest: str) -> None:
        """Do nothing: there is no copy."""

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
