"""A copy of a SQLite database for the length of a migration. It is made under the lock that keeps all writers out.

All steps run in one transaction, so that SQLite itself takes back what fails or is killed. The copy is for what no
transaction covers: a step that commits by itself, a disk or a program that lies.
"""

import contextlib
import os
import sqlite3
from pathlib import Path

from service.domain.errors import SchemaError

_PAGES = -1  # all in one step: nobody writes meanwhile


def copy_of(database: Path) -> Path:
    """Return where the copy of a database is while it is migrated."""
    return database.with_name(f"{database.name}.before-migration")


def keep(database: Path) -> Path:
    """Copy a database, with what is only in its write-ahead log; whole or not at all, for its owner only.

    Raises:
        SchemaError: there is no room for it, or the database is damaged.
    """
    target, part = copy_of(database), database.with_name(f"{database.name}.before-migration.part")
    try:
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        _write(database, part)
        handle = os.open(part, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(part, target)
    except (OSError, sqlite3.Error) as error:
        part.unlink(missing_ok=True)
        raise SchemaError(
            f"nothing was changed: a migration begins with a copy of the database, and it cannot be made: {error}. It "
            f"needs {database.stat().st_size} bytes in {database.parent}"
        ) from error
    return target


def _write(source: Path, target: Path) -> None:
    with contextlib.closing(sqlite3.connect(source)) as one, contextlib.closing(sqlite3.connect(target)) as other:
        one.backup(other, pages=_PAGES)
        other.execute("PRAGMA journal_mode=DELETE")  # one file, nothing beside it
        found = other.execute("PRAGMA quick_check").fetchone()[0]
        if found != "ok":
            raise sqlite3.DatabaseError(f"the database is damaged ({found}); restore a backup")


def put_back(database: Path) -> None:
    """Make a database what its copy is, and remove the copy; programs that have it open see the old content at once.

    Raises:
        SchemaError: it cannot be done now; the copy stays, and the message says what to do with it.
    """
    copy = copy_of(database)
    try:
        with contextlib.closing(sqlite3.connect(copy)) as one, contextlib.closing(sqlite3.connect(database)) as other:
            one.backup(other, pages=_PAGES)
    except (OSError, sqlite3.Error) as error:
        raise SchemaError(
            f"the database as it was before the migration is in {copy}, and cannot be put back: {error}. Stop every "
            f"potstill, remove {database.name}-wal and {database.name}-shm there, and move the copy over {database}"
        ) from error
    drop(database)


def drop(database: Path) -> None:
    """Remove the copy: it is no longer needed."""
    copy_of(database).unlink(missing_ok=True)


def revision_in(copy: Path) -> str | None:
    """Return the revision that a copy is at."""
    with contextlib.closing(sqlite3.connect(copy)) as connection:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return None if row is None else str(row[0])
