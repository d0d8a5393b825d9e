"""What a backup consists of: a snapshot of the database, the blobs that it names, and a list that makes it whole.

The list, `backup.json`, is written last: what has none, or another than its files, is no backup.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from contract.json_text import read_json
from contract.private import FILE
from contract.wire.common import Digest, Timestamp
from potstill.console import CliError

LIST = "backup.json"
SECRET = "secret.key"


class Named(BaseModel):
    """A file of a backup."""

    model_config = ConfigDict(extra="ignore")

    digest: Digest
    size: int


class BackupList(BaseModel):
    """The list of all that belongs to a backup."""

    model_config = ConfigDict(extra="ignore")

    version: int
    program: str
    revision: str | None
    made_at: Timestamp
    database: Named
    blobs: dict[Digest, int]
    has_secret: bool

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return self.database.size + sum(self.blobs.values())


def database_name(digest: str) -> str:
    """Return the name of a snapshot inside a backup."""
    return f"potstill-{digest[7:19]}.db"


def blob_name(digest: str) -> str:
    """Return the name of a blob inside a backup."""
    return f"blobs/{digest[7:9]}/{digest[7:]}"


def read_list(text: bytes, where: str) -> BackupList:
    """Return a backup's list.

    Raises:
        CliError: it is none, or one of a newer program.
    """
    try:
        tree = read_json(text)
        if isinstance(tree, dict) and tree.get("version") != 1:
            raise CliError(f"{where}: a backup of version {tree.get('version')}; restore it with a newer potstill")
        return BackupList.model_validate(tree)
    except (ValueError, ValidationError) as error:
        raise CliError(f"{where}: its {LIST} cannot be read; it is no backup that was finished") from error


def database_path(settings: Any) -> Path:
    """Return the file of an embedded installation's database.

    Raises:
        CliError: the installation is not embedded, or there is none.
        SchemaError: its schema is another.
    """
    from service.persistence import migrate

    path: Path | None = settings.database_file
    if path is None or settings.bucket is not None:
        raise CliError(
            "backup and restore are for the embedded mode; with PostgreSQL use pg_dump, then copy the folder or bucket "
            "of blobs: it may have more than the dump names, never less if it is copied after the dump"
        )
    if not path.exists():
        raise CliError(f"there is no database at {path}; set POTSTILL_HOME")
    migrate.check(settings)
    return path


def take(database: Path, target: Path) -> None:
    """Write a consistent copy of a database that is in use: one file, checked (SQLite's online backup)."""
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE))
    with (
        contextlib.closing(sqlite3.connect(database, timeout=60)) as live,
        contextlib.closing(sqlite3.connect(target)) as copy,
    ):
        live.backup(copy)  # in one step: a writer in between would make it begin again
        copy.execute("PRAGMA journal_mode=DELETE")
        found = copy.execute("PRAGMA quick_check").fetchone()[0]
    if found != "ok":
        raise CliError(f"the database is damaged: {found}; restore an older backup")


@contextlib.contextmanager
def opened(database: Path) -> Iterator[Any]:
    """Yield a session on a snapshot."""
    from sqlalchemy import URL, create_engine
    from sqlalchemy.orm import Session

    engine = create_engine(URL.create("sqlite", database=str(database)))
    try:
        with Session(engine) as session:
            yield session
            session.commit()
    finally:
        engine.dispose()


def revision_of(database: Path) -> str | None:
    """Return the schema of a snapshot."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return None if row is None else str(row[0])
