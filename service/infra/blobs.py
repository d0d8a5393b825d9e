"""Blobs: immutable files named by their digest. What there is to ask of them; a folder and a bucket answer it."""

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from contract.tensors import Header
from service.infra.parts import Parts
from service.infra.scratch import Scratch

_DIGEST = re.compile(r"sha256-[0-9a-f]{64}")
BLOCK = 1 << 20
STATES = "checkpoints-"  # before a job's id: the name of the folder of its states
QUARANTINE_FILES, QUARANTINE_SECONDS = 20, 7 * 86400.0
"""How many damaged blobs are kept aside, and for how long, for whoever wants to know what happened to them."""
Report = Callable[[int, int], None]  # bytes fetched, of so many
Identity = tuple[Any, ...]
"""What tells a file from another one that has, or had, its name."""
FaultState = Literal["damaged", "missing"]


def unreported(done: int, of: int) -> None:
    """Report to nobody."""


class BlobFault(Exception):
    """A blob that is not what its digest says.

    Attributes:
        digest: the blob's.
        state: `damaged` (other bytes, or bytes that cannot be read) or `missing`.
        seen: which file it was, as its store tells files apart; None where there was none.
    """

    def __init__(self, digest: str, state: FaultState, seen: Identity | None = None, detail: str = ""):
        super().__init__(f"{digest} is {state}" + (f": {detail}" if detail else ""))
        self.digest, self.state, self.seen = digest, state, seen


class BlobStore(Protocol):
    """Where blobs are.

    A blob is named in two steps. `prepare` does the slow part before the transaction that names it; `keep`, inside that
    transaction and under `locks.hold_blobs`, makes sure that it is there. In between nothing names it, so a removal
    may take it away: then `keep` puts it again.
    """

    def prepare(self, temp: Path, digest: str) -> None:
        """Bring a file, which must be on the disk already (fsync), to where blobs are; it does not count yet."""
        ...

    def keep(self, temp: Path, digest: str) -> None:
        """Give a file its final name, and put that on the disk; quick when `prepare` came before."""
        ...

    def name(self, temp: Path, digest: str) -> None:
        """Do the first half of `keep`: the name is on the disk after `settle`, which takes the names of many files."""
        ...

    def settle(self, digests: Collection[str]) -> None:
        """Put the names of files on the disk; to be called before the commit that makes them count."""
        ...

    def delete(self, digest: str) -> None:
        """Remove a blob, also one that was set aside; one that is not there does no harm."""
        ...

    def removing(self) -> AbstractContextManager[bool]:
        """Keep others from reading all blobs during the block; it is told False where somebody is reading them now."""
        ...

    def size(self, digest: str) -> int:
        """Return the size in bytes.

        Raises:
            FileNotFoundError: it is not there.
        """
        ...

    def verify(self, digest: str, anew: bool = False) -> None:
        """See that a blob is there and whole. It is read once, as long as it is the same file; others wait meanwhile.

        Args:
            anew: read it in any case.

        Raises:
            BlobFault: it is not.
        """
        ...

    def set_aside(self, fault: BlobFault) -> bool:
        """Move a damaged blob out of the way, into the store's quarantine, which is small and forgets after a week.

        Return whether it was moved: another file, which has taken its place meanwhile, stays.
        """
        ...

    def read(self, digest: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from `start` up to, without, `end`, in pieces of at most a mebibyte; `verify` comes first."""
        ...

    def header(self, digest: str) -> Header:
        """Return the header of a blob that is a safetensors file, after `verify`.

        Raises:
            BlobFault: see `verify`.
        """
        ...

    def check(self) -> str:
        """Return what there is to say of the store.

        Raises:
            DomainError: unavailable.
        """
        ...

    def batches(self, older_than_seconds: float, size: int) -> Iterator[set[str]]:
        """Yield the digests of all blobs of some age, in batches."""
        ...

    def sweep(self, older_than_seconds: float) -> int:
        """Remove what was begun and not finished; return how many."""
        ...


class BlobCache(Protocol):
    """A worker's copies of blobs; the blobs themselves where the store is local."""

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
        """Have blobs at their `path` for the length of the block. What is fetched is checked on its way; what lies here
        since earlier is for `blob_checks.Inspection`, while it is used.

        Raises:
            BlobFault: the store has it no more, or other bytes.
        """
        ...

    def drop(self, digest: str) -> None:
        """Remove this machine's copy of a blob although it is held: it is damaged."""
        ...

    def adopt(self, temp: Path, digest: str) -> None:
        """Use a file that was kept as this machine's copy, so that it need not be fetched."""
        ...

    def batches(self, size: int) -> Iterator[set[str]]:
        """Yield the digests of this machine's copies, in batches; nothing where the store is local."""
        ...

    def forget(self, digests: set[str]) -> None:
        """Remove this machine's copies of blobs, unless they are held."""
        ...


class JobStates(Protocol):
    """What attempts of a job leave for the next one."""

    def open(self, job_id: str, every_seconds: float) -> AbstractContextManager[Path]:
        """Have what a job's attempts, on any machine, left for the next one in a folder for the length of the block.

        What comes to be there is where other machines find it within about `every_seconds`.
        """
        ...

    def forget(self, job_id: str) -> None:
        """Remove the states of a job that is over."""
        ...

    def sweep(self, older_than_seconds: float, working: set[str]) -> int:
        """Remove states of jobs that are over and that were left behind; return how many."""
        ...


class Links(Protocol):
    """How blobs come and go without passing through the service."""

    def file(self, digest: str) -> Path | None:
        """Return the blob as a local file, where it is one without being fetched."""
        ...

    def link(self, digest: str) -> str | None:
        """Return an address from which anybody may fetch the blob for a while, where the store has such and may."""
        ...

    def staging(self) -> "Staging | None":
        """Return where devices may put files by themselves, where the store has such and may."""
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


@dataclass(frozen=True)
class Blobs:
    """All that there is to an installation's blobs; whoever needs one of these asks for that alone.

    Attributes:
        open_parts: opens the place where the bytes of resumable uploads wait.
    """

    store: BlobStore
    cache: BlobCache
    scratch: Scratch
    states: JobStates
    links: Links
    open_parts: Callable[[], Parts]

    def sweep(self, older_than_seconds: float, working: set[str]) -> int:
        """Remove abandoned files in the making and the folders of jobs that nobody works on; return how many."""
        removed = self.scratch.sweep(older_than_seconds, working) + self.states.sweep(older_than_seconds, working)
        return removed + self.store.sweep(older_than_seconds)


def hex_of(digest: str) -> str:
    """Return the hexadecimal part of a digest.

    Raises:
        ValueError: not a digest.
    """
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"not a digest: {digest!r}")
    return digest[7:]


def digest_at(path: Path, path_of: Callable[[str], Path]) -> str | None:
    """Return the digest of the blob that has a path, or None for any other path; `path_of` tells where a blob is."""
    with contextlib.suppress(ValueError):
        digest = f"sha256-{path.name}"
        return digest if path_of(digest) == path else None
    return None
