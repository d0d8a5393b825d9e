"""`potstill restore`: a backup becomes an installation in an empty folder: files checked, the schema brought up."""

import contextlib
import os
import re
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from contract.private import private_folder
from potstill.console import CliError
from potstill.storage import files, snapshot
from potstill.storage.snapshot import LIST, SECRET, BackupList, blob_name, database_name

_LIST_BYTES = 1 << 30
_SECRET_BYTES = 1 << 16
_BLOB = re.compile(r"blobs/[0-9a-f]{2}/([0-9a-f]{64})")
_TEMP = ".restore-"


def restore(source: Path, home: Path, report: Callable[[int, int], None]) -> BackupList:
    """Make a folder an installation from a backup. What is left of a restore that was cut off is removed first.

    Raises:
        CliError: the folder is not empty; the backup is not whole, damaged, or newer than this program.
    """
    private_folder(home)
    for left in home.glob(f"{_TEMP}*"):
        shutil.rmtree(left)
    there = next(home.iterdir(), None)
    if there is not None:
        raise CliError(f"{home} is not empty ({there.name}); restore into a new folder with --home")
    folder = home / f"{_TEMP}{os.getpid()}"
    folder.mkdir(mode=0o700)
    try:
        made = _from_folder(source, folder, report) if source.is_dir() else _from_file(source, folder, report)
        _bring_up(folder, made, source)
        _settle(folder, home)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return made


# ------------------------------------------------------------------------------------------------------------- a folder
def _from_folder(source: Path, folder: Path, report: Callable[[int, int], None]) -> BackupList:
    try:
        made = snapshot.read_list((source / LIST).read_bytes(), str(source))
    except FileNotFoundError:
        raise CliError(f"{source}: no {LIST}: no backup, or one that was cut off") from None
    done = 0
    for name, digest, size, target in _wanted(made, folder):
        try:
            with open(source / name, "rb") as file:
                _take(file, size, digest, target, source)
        except FileNotFoundError:
            raise CliError(f"{source}: {name} is missing; the backup is damaged") from None
        done += size
        report(done, made.total)
    if made.has_secret:
        files.put(folder / SECRET, (source / SECRET).read_bytes())
    return made


def _wanted(made: BackupList, folder: Path) -> Iterator[tuple[str, str, int, Path]]:
    """Yield (name in the backup, digest, size, where it goes) of each file."""
    yield database_name(made.database.digest), made.database.digest, made.database.size, folder / "potstill.db"
    for digest, size in made.blobs.items():
        yield blob_name(digest), digest, size, folder / blob_name(digest)


def _take(file: IO[bytes], size: int, digest: str, target: Path, source: Path) -> None:
    private_folder(target.parent)
    if files.copy(file, target, size) != (digest, size):
        raise CliError(f"{source}: {digest} is damaged or cut off; take another backup")


# --------------------------------------------------------------------------------------------------------------- a file
def _from_file(source: Path, folder: Path, report: Callable[[int, int], None]) -> BackupList:
    """Read a tar, whose list comes last; no name in it decides where something is written."""
    made: BackupList | None = None
    found: dict[str, int] = {}
    whole = source.stat().st_size if source.exists() else 0
    try:
        with tarfile.open(source, mode="r:") as tar:
            for member in tar:
                file = tar.extractfile(member) if member.isreg() else None
                if file is None:
                    raise CliError(f"{source}: {member.name[:100]!r} does not belong into a backup")
                made = _entry(source, folder, member.name, member.size, file, found) or made
                report(member.offset_data + member.size, whole)
    except FileNotFoundError:
        raise CliError(f"{source}: there is no such file or folder") from None
    except (tarfile.TarError, EOFError) as error:
        raise CliError(f"{source}: no backup, or one that was cut off ({error})") from error
    if made is None:
        raise CliError(f"{source}: no {LIST}: no backup, or one that was cut off")
    missing = made.blobs.keys() - found.keys()
    if missing or not (folder / "potstill.db").exists():
        raise CliError(f"{source}: {len(missing) or 'the database'} of its files are missing; the backup is damaged")
    if files.digest_of(folder / "potstill.db") != made.database.digest:
        raise CliError(f"{source}: its database is damaged; take another backup")
    return made


def _entry(
    source: Path, folder: Path, name: str, size: int, file: IO[bytes], found: dict[str, int]
) -> BackupList | None:
    blob = _BLOB.fullmatch(name)
    if blob is not None:
        digest = f"sha256-{blob[1]}"
        _take(file, size, digest, folder / blob_name(digest), source)
        found[digest] = size
    elif name == LIST and size <= _LIST_BYTES:
        return snapshot.read_list(file.read(), str(source))
    elif name == SECRET and size <= _SECRET_BYTES:
        files.put(folder / SECRET, file.read())
    elif re.fullmatch(r"potstill-[0-9a-f]{12}\.db", name):
        files.copy(file, folder / "potstill.db", size)
    else:
        raise CliError(f"{source}: {name[:100]!r} does not belong into a backup")
    return None


# ------------------------------------------------------------------------------------------------------ an installation
def _bring_up(folder: Path, made: BackupList, source: Path) -> None:
    """Bring the schema to the newest version; forget uploads that were half done, whose bytes are in no backup.

    The audit log goes on where the backup's ends, with a row that says so.
    """
    from sqlalchemy import text

    from service.config import Settings
    from service.operations.ledger import audit
    from service.persistence import migrate

    settings: Any = Settings(home=folder, database_url=None, blob_dir=None, blob_url=None)
    try:
        migrate.upgrade(settings)
    except migrate.SchemaError as error:
        raise CliError(f"{source}, made by potstill {made.program}: {error}") from error
    with snapshot.opened(folder / "potstill.db") as session:
        session.execute(text("DELETE FROM uploads WHERE answer IS NULL"))
        session.execute(text("DELETE FROM workers"))
        session.execute(text("DELETE FROM sessions"))  # one that was signed out since would be signed in again
        audit.act_as(session, audit.COMMAND_LINE)
        audit.record(session, "installation.restore", str(source), made_at=made.made_at, revision=made.revision)
        audit.write(session)


def _settle(folder: Path, home: Path) -> None:
    """Give everything its name, the database last: a folder without one is no installation."""
    private_folder(folder / "blobs")
    with contextlib.suppress(FileNotFoundError):
        os.replace(folder / SECRET, home / SECRET)
    os.replace(folder / "blobs", home / "blobs")
    with open(folder / "potstill.db", "rb") as file:
        os.fsync(file.fileno())
    for path in (home / "blobs").iterdir():
        files.sync(path)
    files.sync(home / "blobs")
    files.sync(home)
    os.replace(folder / "potstill.db", home / "potstill.db")
    files.sync(home)
    files.sync(home.parent)
