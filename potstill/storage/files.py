"""Files that are whole or not there."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from contract.outputs import check_place
from contract.private import private

BLOCK = 1 << 20


def digest_of(path: Path) -> str:
    """Return the digest of a file."""
    with open(path, "rb") as file:
        return f"sha256-{hashlib.file_digest(file, 'sha256').hexdigest()}"


def copy(source: IO[bytes], target: Path, size: int | None = None) -> tuple[str, int]:
    """Copy to a new file and put it on the disk; return its digest and size."""
    found, done = hashlib.sha256(), 0
    with open(target, "wb", opener=private) as out:
        while block := source.read(BLOCK if size is None else min(BLOCK, size - done)):
            found.update(block)
            out.write(block)
            done += len(block)
        out.flush()
        os.fsync(out.fileno())
    return f"sha256-{found.hexdigest()}", done


def put(target: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a small file whole, on the disk, under its name."""
    check_place(target)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    sync(target.parent)


def sync(folder: Path) -> None:
    """Put the names in a folder on the disk; Windows does so by itself."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def removed_after(path: Path) -> Iterator[Path]:
    """Remove a file at the end of the block, if it is still there."""
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
