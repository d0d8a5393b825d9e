"""`potstill backup`: into a folder, where only what is new is copied, or into one tar file; while the service runs."""

import contextlib
import fcntl
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

from contract import __version__
from contract.outputs import check_place
from contract.private import FILE, private, private_folder
from potstill.console import CliError
from potstill.storage import files, snapshot
from potstill.storage.snapshot import LIST, SECRET, BackupList, Named, blob_name, database_name

OnBytes = Callable[[int, int], None]
"""(bytes done, of)"""


def to_folder(settings: Any, target: Path, with_secret: bool, report: OnBytes) -> tuple[BackupList, int]:
    """Back up into a folder, new or one that holds a backup; return its list and the bytes that were new.

    The backup that was there stays valid until the new one is whole.

    Raises:
        CliError: the folder holds something else; a blob is missing or damaged; the installation is not embedded.
    """
    database = snapshot.database_path(settings)
    _check_folder(target)
    private_folder(target)
    with _alone(target), _frozen(settings) as blobs:
        with files.removed_after(target / ".snapshot.part") as part:
            part.unlink(missing_ok=True)
            snapshot.take(database, part)
            made = _list_of(part, blobs, with_secret)
            os.replace(part, target / database_name(made.database.digest))
        new = 0
        for done, digest in _each(made, report):
            place = target / blob_name(digest)
            if place.exists() and place.stat().st_size == made.blobs[digest]:
                continue
            new += made.blobs[digest]
            _link(blobs.path(digest), place, digest)
            report(done, made.total)
        for folder in {(target / blob_name(digest)).parent for digest in made.blobs}:
            files.sync(folder)
        if with_secret:
            files.put(target / SECRET, _secret(settings))
        files.put(target / LIST, made.model_dump_json().encode())
    _prune(target, made)
    return made, new


def _check_folder(target: Path) -> None:
    if target.exists() and not target.is_dir():
        raise CliError(f"{target} is a file; name a folder, or a new file that ends in .tar")
    if target.exists() and not (target / LIST).exists():
        ours = {"blobs", ".lock", ".snapshot.part", SECRET}
        other = [entry.name for entry in target.iterdir() if entry.name not in ours and entry.suffix != ".db"]
        if other:
            raise CliError(f"{target} holds something else ({other[0]}); name an empty folder")


@contextlib.contextmanager
def _alone(target: Path) -> Iterator[None]:
    with open(target / ".lock", "w", encoding="utf-8", opener=private) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CliError(f"another backup into {target} goes on; wait for it") from None
        yield


@contextlib.contextmanager
def _frozen(settings: Any) -> Iterator[Any]:
    """Yield the blobs; the service, which goes on, removes none of them for the length of the block."""
    from service.infra.blob_folder import FolderStore

    blobs = FolderStore(settings.resolved_blob_dir)
    with blobs.reading():
        yield blobs


def _list_of(part: Path, blobs: Any, with_secret: bool) -> BackupList:
    from service.operations.ledger import garbage

    with open(part, "rb") as file:
        os.fsync(file.fileno())
    with snapshot.opened(part) as session:
        named = garbage.all_named(session)
    try:
        sizes = {digest: blobs.size(digest) for digest in named}
    except FileNotFoundError as error:
        raise CliError(f"a blob is missing ({Path(error.filename).name}); potstill verify tells what it was") from None
    return BackupList(
        version=1,
        program=__version__,
        revision=snapshot.revision_of(part),
        made_at=datetime.now(UTC),
        database=Named(digest=files.digest_of(part), size=part.stat().st_size),
        blobs=sizes,
        has_secret=with_secret,
    )


def _each(made: BackupList, report: OnBytes) -> Iterator[tuple[int, str]]:
    """Yield (bytes with this one, digest) of each blob."""
    done = made.database.size
    for digest, size in sorted(made.blobs.items()):
        done += size
        yield done, digest
    report(made.total, made.total)


def _link(source: Path, place: Path, digest: str) -> None:
    """Put a blob into the backup: a second name within one file system, else a copy; read and checked in any case."""
    private_folder(place.parent.parent)
    private_folder(place.parent)
    part = place.with_name(f".{place.name}.part")
    part.unlink(missing_ok=True)
    try:
        with open(source, "rb") as file:
            try:
                os.link(source, part)
                found = files.digest_of(source)
            except OSError:
                found, _ = files.copy(file, part)
    except FileNotFoundError:
        raise CliError(f"{digest} is missing; potstill verify tells what is, and what it was") from None
    if found != digest:
        part.unlink(missing_ok=True)
        raise CliError(f"{digest} is damaged; potstill verify tells what is, and what it was")
    os.chmod(part, FILE)
    os.replace(part, place)


def _secret(settings: Any) -> bytes:
    """Return the key of the token hashes, as its file holds it."""
    key: bytes = settings.key
    return key


def _prune(target: Path, made: BackupList) -> None:
    """Remove what only the backup before named."""
    kept = {target / blob_name(digest) for digest in made.blobs} | {target / database_name(made.database.digest)}
    for path in [*target.glob("potstill-*.db"), *target.glob("blobs/*/*")]:
        if path not in kept:
            path.unlink(missing_ok=True)
    if not made.has_secret:
        (target / SECRET).unlink(missing_ok=True)


def to_file(settings: Any, target: Path, with_secret: bool, report: OnBytes) -> tuple[BackupList, int]:
    """Back up into one tar file, which has its name only when it is whole; return its list and its bytes.

    Raises:
        CliError: a blob is missing or damaged; the installation is not embedded.
    """
    database = snapshot.database_path(settings)
    check_place(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        with _frozen(settings) as blobs:
            snapshot.take(database, folder / "snapshot.db")
            made = _list_of(folder / "snapshot.db", blobs, with_secret)
            with open(os.open(folder / "tar", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as out:
                with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
                    _add_file(tar, database_name(made.database.digest), folder / "snapshot.db")
                    for done, digest in _each(made, report):
                        _add_blob(tar, blobs.path(digest), digest)
                        report(done, made.total)
                    if with_secret:
                        _add_bytes(tar, SECRET, _secret(settings))
                    _add_bytes(tar, LIST, json.dumps(made.model_dump(mode="json")).encode())
                out.flush()
                os.fsync(out.fileno())
        os.replace(folder / "tar", target)
        files.sync(target.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return made, target.stat().st_size


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o600
    return entry


def _add_file(tar: tarfile.TarFile, name: str, path: Path) -> None:
    with open(path, "rb") as file:
        tar.addfile(_entry(name, os.fstat(file.fileno()).st_size), file)


def _add_blob(tar: tarfile.TarFile, path: Path, digest: str) -> None:
    if not path.exists() or files.digest_of(path) != digest:
        raise CliError(f"{digest} is missing or damaged; potstill verify tells what is, and what it was")
    _add_file(tar, blob_name(digest), path)


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    tar.addfile(_entry(name, len(content)), BytesIO(content))
