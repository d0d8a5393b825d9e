"""A round as one file that another machine can replay: a tar of the document and of the blobs that it names.

Read with care, since it comes from elsewhere: nothing is written under a name that the file chose, and what does not
match its digest is refused.
"""

import hashlib
import os
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from contract.bundles import BLOB, DOCUMENT, README, pieces
from contract.outputs import check_place
from potstill.console import CliError
from potstill.replay.publication import Publication
from potstill.storage.files import sync

_BLOCK = 1 << 20
_DOCUMENT_BYTES = 64 << 20


def place(folder: Path, digest: str) -> Path:
    """Return where a blob of an unpacked bundle is."""
    return folder / digest.removeprefix("sha256-")


def pack(publication: Publication, files: Mapping[str, Path], target: Path) -> None:
    """Write a bundle; it has its name only when it is whole.

    Args:
        publication: whose document it is.
        files: digest -> file of the blobs.
        target: the bundle; what is there is replaced.

    Raises:
        CliError: a blob is damaged.
    """
    sizes = {digest: path.stat().st_size for digest, path in files.items()}
    check_place(target)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as out:
            texts = {DOCUMENT: publication.text.encode()}
            out.writelines(pieces(texts, sizes, lambda digest: _blocks(files[digest], digest)))
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, target)
        sync(target.parent)
    finally:
        part.unlink(missing_ok=True)


def _blocks(path: Path, digest: str) -> Iterator[bytes]:
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
            yield block
    if f"sha256-{found.hexdigest()}" != digest:
        raise CliError(f"{digest} is damaged; potstill verify tells what it is")


def unpack(path: Path, folder: Path) -> Publication:
    """Read a round's bundle into an empty folder; return its document.

    Raises:
        CliError: it is no bundle, it is cut off, or something in it does not match its digest.
    """
    text = read(path, folder, DOCUMENT, "make one with: potstill round export")
    return Publication(path.name, text, f"sha256-{hashlib.sha256(text.encode()).hexdigest()}")


def read(path: Path, folder: Path, document: str, remedy: str) -> str:
    """Read a bundle into an empty folder, its blobs at their `place`; return the text of its document.

    Args:
        path: the tar file.
        folder: where the blobs go.
        document: the name of the document.
        remedy: how such a file is made.

    Raises:
        CliError: it is no bundle, it is cut off, or something in it does not match its digest.
    """
    text: str | None = None
    try:
        with tarfile.open(path, mode="r:") as tar:
            for member in tar:
                blob = BLOB.fullmatch(member.name)
                file = tar.extractfile(member) if member.isreg() else None
                if file is not None and member.name == README and document != DOCUMENT:
                    continue
                if file is None or (blob is None and member.name != document):
                    raise CliError(f"{path}: {member.name[:100]!r} does not belong into such a file; {remedy}")
                if blob is not None:
                    _take(file, member.size, blob[1], folder, path)
                elif member.size > _DOCUMENT_BYTES:
                    raise CliError(f"{path}: its document has {member.size} bytes; that is none of ours")
                else:
                    text = file.read().decode()
    except (tarfile.TarError, UnicodeDecodeError, EOFError) as error:
        raise CliError(f"{path}: no bundle, or cut off ({error}); {remedy}") from error
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}") from error
    if text is None:
        raise CliError(f"{path}: it holds no document; {remedy}")
    return text


def _take(file: IO[bytes], size: int, digest: str, folder: Path, path: Path) -> None:
    found, left = hashlib.sha256(), size
    with open(place(folder, digest), "wb") as out:
        while left > 0 and (block := file.read(min(_BLOCK, left))):
            found.update(block)
            out.write(block)
            left -= len(block)
    if left or f"sha256-{found.hexdigest()}" != digest:
        raise CliError(f"{path}: {digest} is damaged or cut off; copy or export the bundle again")
