"""Blobs: immutable files named by their digest. What every store of them can do; a folder and a bucket do it."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from contract.tensors import Header
from service.infra.parts import Parts

_DIGEST = re.compile(r"sha256-[0-9a-f]{64}")
BLOCK = 1 << 20
STATES = "checkpoints-"  # before a job's id: the name of the folder of its states
Report = Callable[[int, int], None]  # bytes fetched, of so many


def unreported(done: int, of: int) -> None:
    """Report to nobody."""


class Blobs(Protocol):
    """A store of blobs.

    A blob is named in two steps. `prepare` does the slow part before the transaction that names it; `keep`, inside that
    transaction and under `locks.hold_blobs`, makes sure that it is there. In between nothing names it, so a removal
    may take it away: then `keep` puts it again.
    """

    def temp(self) -> Path:
        """Return a fresh local path for a file in the making."""
        ...

    def work_dir(self, job_id: str, fence: int) -> Path:
        """Return an empty local folder for the outputs of a job; those of its earlier holders go."""
        ...

    def states(self, job_id: str, every_seconds: float) -> AbstractContextManager[Path]:
        """Have what a job's attempts, on any machine, left for the next one in a folder for the length of the block.

        What comes to be there is where other machines find it within about `every_seconds`.
        """
        ...

    def forget_states(self, job_id: str) -> None:
        """Remove the states of a job that is over."""
        ...

    def prepare(self, temp: Path, digest: str) -> None:
        """Bring a file, which must be on the disk already (fsync), to where blobs are; it does not count yet."""
        ...

    def keep(self, temp: Path, digest: str) -> None:
        """Give a file its final name; quick when `prepare` came before."""
        ...

    def adopt(self, temp: Path, digest: str) -> None:
        """Use a file that was kept as this machine's copy, so that it need not be fetched."""
        ...

    def delete(self, digest: str) -> None:
        """Remove a blob; one that is not there does no harm."""
        ...

    def removing(self) -> AbstractContextManager[bool]:
        """Keep others from reading all blobs during the block; it is told False where somebody is reading them now."""
        ...

    def path(self, digest: str) -> Path:
        """Return where this machine's copy of a blob is, or will be while it is held.

        Raises:
            ValueError: not a digest; no path is ever made from anything else.
        """
        ...

    def digest_at(self, path: Path) -> str | None:
        """Return the digest of the blob whose `path` this is, or None for any other path."""
        ...

    def hold(self, digests: Iterable[str], report: Report = unreported) -> AbstractContextManager[None]:
        """Have blobs at their `path`, whole and checked, for the length of the block."""
        ...

    def file(self, digest: str) -> Path | None:
        """Return the blob as a local file, where it is one without being fetched."""
        ...

    def size(self, digest: str) -> int:
        """Return the size in bytes.

        Raises:
            FileNotFoundError: it is not there.
        """
        ...

    def read(self, digest: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from `start` up to, without, `end`, in pieces of at most a mebibyte."""
        ...

    def header(self, digest: str) -> Header:
        """Return the header of a blob that is a safetensors file."""
        ...

    def link(self, digest: str) -> str | None:
        """Return an address from which anybody may fetch the blob for a while, where the store has such and may."""
        ...

    def staging(self) -> "Staging | None":
        """Return where devices may put files by themselves, where the store has such and may."""
        ...

    def parts(self) -> Parts:
        """Return where the bytes of resumable uploads wait."""
        ...

    def check(self) -> str:
        """Return what there is to say of the store.

        Raises:
            DomainError: unavailable.
        """
        ...

    def free_bytes(self) -> int:
        """Return the free space for uploads on this machine."""
        ...

    def batches(self, older_than_seconds: float, size: int) -> Iterator[set[str]]:
        """Yield the digests of all blobs of some age, in batches."""
        ...

    def copies(self, size: int) -> Iterator[set[str]]:
        """Yield the digests of this machine's copies, in batches; nothing where the store is local."""
        ...

    def forget(self, digests: set[str]) -> None:
        """Remove this machine's copies of blobs, unless they are held."""
        ...

    def sweep(self, older_than_seconds: float, working: set[str]) -> int:
        """Remove abandoned files in the making and the folders of jobs that nobody works on; return how many."""
        ...


class Staging(Protocol):
    """A place in the store where devices put files by themselves; nothing there counts before it was checked."""

    def open(self, owner: str, digest: str, size: int) -> tuple[str, str, dict[str, str], int]:
        """Return name, address, headers and seconds for one PUT of exactly these bytes.

        Raises:
            DomainError: too-many-requests, when the owner has left too many files lying there.
        """
        ...

    def size(self, owner: str, name: str) -> int:
        """Return the size of a file in bytes.

        Raises:
            FileNotFoundError: there is none of this name.
        """
        ...

    def read(self, owner: str, name: str) -> Iterator[bytes]:
        """Yield the bytes of a file.

        Raises:
            FileNotFoundError: there is none of this name.
        """
        ...

    def drop(self, owner: str, name: str) -> None:
        """Remove a file."""
        ...


def hex_of(digest: str) -> str:
    """Return the hexadecimal part of a digest.

    Raises:
        ValueError: not a digest.
    """
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"not a digest: {digest!r}")
    return digest[7:]


def digest_of(path: Path) -> tuple[str, int]:
    """Return the digest and the size of a file."""
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            size += len(block)
    return f"sha256-{digest.hexdigest()}", size
