"""Engines and sessions. SQLite in WAL mode; every write transaction starts with BEGIN IMMEDIATE.

A deferred transaction that reads and then writes fails at once with 'database is locked', whatever the busy timeout;
pysqlite's own transaction handling loses updates without an error. So: autocommit in the driver, and BEGIN by us.
"""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session, sessionmaker

from contract.private import FILE, close_file, private_folder
from service.config import Settings

_READ_ONLY = "potstill_read_only"
DAMAGED = (
    "the database is damaged: stop the service, keep a copy of its folder, and restore a backup into a new one: "
    "potstill restore BACKUP --home FOLDER (docs/data.md)"
)
_OF_OPTIONS = ("invalid command-line argument", "configuration parameter", "invalid value for parameter")


def make_engine(settings: Settings) -> Engine:
    """Return the engine of this process, with a pool that fits the request threads."""
    url = settings.resolved_database_url
    if not settings.is_sqlite:
        return create_engine(url, pool_pre_ping=True, pool_size=settings.threads, max_overflow=4)
    make_private(settings)
    engine = create_engine(url, pool_size=settings.threads, max_overflow=4, connect_args={"check_same_thread": False})
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def make_private(settings: Settings) -> None:
    """Close the folder of an installation, and its SQLite files, to others; a database that is to be made is closed."""
    private_folder(settings.home)
    file = settings.database_file
    if file is None:
        return
    with contextlib.suppress(FileExistsError, FileNotFoundError):
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE))  # SQLite gives its own files the same mode
    for each in (file, *(file.with_name(file.name + end) for end in ("-wal", "-shm", "-journal"))):
        close_file(each)


def _prepare(connection: DBAPIConnection, record: object) -> None:
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=15000", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: Connection) -> None:
    read_only = connection.get_execution_options().get(_READ_ONLY, False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


def is_damaged(error: BaseException) -> bool:
    """Whether an error, SQLAlchemy's or the driver's, says that a SQLite file is no whole database any more."""
    code = getattr(getattr(error, "orig", error), "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def refuses_options(error: BaseException) -> bool:
    """Whether PostgreSQL takes nobody with what PGOPTIONS says; to wait for it helps nothing."""
    return "PGOPTIONS" in os.environ and any(each in str(getattr(error, "orig", "")) for each in _OF_OPTIONS)


def why_closed(error: BaseException) -> str | None:
    """Return what to do about a database that could not be opened; None for any other error."""
    if is_damaged(error):
        return DAMAGED
    said = str(getattr(error, "orig", "")).strip()
    if not isinstance(error, OperationalError) or not said.startswith("connection"):
        return None
    line = said.splitlines()[0]
    if refuses_options(error):
        return f"the database refuses PGOPTIONS={os.environ['PGOPTIONS']!r} ({line}); unset it, or name what it takes"
    return f"the database does not answer ({line}); start it, or set POTSTILL_DATABASE_URL to where it is"


class Database:
    """Sessions for reading and for writing.

    Writers of one process queue for a lock before they ask SQLite for its own: its busy timeout sleeps and is unfair.
    """

    def __init__(self, settings: Settings):
        self.engine = make_engine(settings)
        self._writer: Any = threading.Lock() if settings.is_sqlite else None
        self._write = sessionmaker(self.engine, expire_on_commit=False)
        self._read = sessionmaker(self.engine.execution_options(**{_READ_ONLY: True}), expire_on_commit=False)

    @contextmanager
    def write(self) -> Iterator[Session]:
        """One transaction: committed at the end of the block, rolled back on an error."""
        if self._writer is not None:
            self._writer.acquire()
        try:
            with self._write.begin() as session:
                yield session
        finally:
            if self._writer is not None:
                self._writer.release()

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session that only reads."""
        with self._read() as session:
            yield session

    def connections(self) -> tuple[int, int]:
        """Return how many connections of the pool are in use, and how many it may open."""
        pool = self.engine.pool
        busy, size = getattr(pool, "checkedout", lambda: 0)(), getattr(pool, "size", lambda: 0)()
        return busy, size + max(0, getattr(pool, "_max_overflow", 0))

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()
