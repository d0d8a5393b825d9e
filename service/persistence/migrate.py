"""Bring the database to the newest schema, one process at a time, whole or not at all; or say that it is not there."""

import contextlib
import fcntl
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, create_engine, event, text

from contract.private import private
from service.config import Settings
from service.domain.errors import SchemaError
from service.persistence import safety, schema
from service.persistence.engine import Database, make_private

if TYPE_CHECKING:
    from alembic.config import Config

__all__ = ["SchemaError", "check", "checked", "downgrade", "upgrade"]

log = logging.getLogger("service.migrate")
_LOCK = 815000
Act = Callable[["Config"], None]


@contextlib.contextmanager
def _alone(settings: Settings, connection: Connection) -> Iterator[None]:
    """Hold off other processes that migrate the same database."""
    if not settings.is_sqlite:
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
        connection.commit()
        try:
            yield
        finally:
            connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _LOCK})
            connection.commit()
        return
    with open(settings.home / "migrate.lock", "w", encoding="utf-8", opener=private) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def upgrade(settings: Settings, revision: str = "head") -> tuple[str | None, str | None]:
    """Upgrade the schema, if it is not the newest; return its revisions before (None: no tables) and after.

    All in one transaction. What fails leaves the database as it was.

    Raises:
        SchemaError: the database is of a newer program or of another one, or a step failed; with the remedy.
    """
    wanted = schema.revisions()[-1] if revision == "head" else revision

    def act(config: "Config") -> None:
        from alembic import command

        command.upgrade(config, revision)

    return _run(settings, wanted, act)


def downgrade(settings: Settings, revision: str) -> None:
    """Go back to an older schema; `base` removes all tables."""
    from alembic import command

    _run(settings, None, lambda config: command.downgrade(config, revision))


def _run(settings: Settings, wanted: str | None, act: Act) -> tuple[str | None, str | None]:
    if settings.is_sqlite:
        make_private(settings)
    engine = _engine(settings)
    try:
        with engine.connect() as connection, _alone(settings, connection):
            if settings.database_file is not None:
                _recover(settings.database_file, connection)
            with connection.begin():
                before = schema.revision_of(connection)
                schema.refuse_foreign(before, {} if before else schema.columns_of(connection))
            if before == wanted:
                return before, before
            _whole_or_not(settings, connection, before, act)
            with connection.begin():
                return before, schema.revision_of(connection)
    finally:
        engine.dispose()


def _engine(settings: Settings) -> Engine:
    """Return an engine for migrations: SQLite rebuilds tables with foreign keys off, in a transaction that we begin."""
    engine = create_engine(settings.resolved_database_url)
    if settings.is_sqlite:
        event.listen(engine, "connect", _prepare)
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


def _prepare(connection: Any, record: object) -> None:
    connection.isolation_level = None
    for pragma in ("busy_timeout=15000", "synchronous=FULL", "foreign_keys=OFF"):
        connection.execute(f"PRAGMA {pragma}")


def _recover(database: Path, connection: Connection) -> None:
    """Finish what a migration that was killed left: the copy is put back where the database is neither old nor new."""
    copy = safety.copy_of(database)
    if not copy.exists():
        return
    with connection.begin():
        now = schema.revision_of(connection)
    if now in (safety.revision_in(copy), schema.revisions()[-1]):
        log.warning("a migration was cut off and left no trace in the database; its copy %s is removed", copy)
        safety.drop(database)
        return
    log.warning("a migration was cut off at schema %s; the database is put back from %s", now, copy)
    safety.put_back(database)


def _whole_or_not(settings: Settings, connection: Connection, before: str | None, act: Act) -> None:
    """Do all steps, or none.

    Raises:
        SchemaError: a step failed; the database is as it was.
    """
    from service.persistence import first_forms  # with Alembic, which only a migration needs

    file, done = settings.database_file, list[str]()

    def note(step: Any, **others: Any) -> None:
        done.append(str(step.up_revision_id if step.is_upgrade else step.down_revision_ids))

    transaction = connection.begin()
    try:
        if file is None:
            connection.execute(text("SET LOCAL lock_timeout = '10s'"))
        elif before is not None:
            safety.keep(file)
        first_forms.complete(connection, before)
        act(schema.config(connection, on_step=note))
        _check_keys(connection)
        transaction.commit()
    except BaseException as error:
        _take_back(connection, file, before)
        if isinstance(error, SchemaError) or not isinstance(error, Exception):
            raise
        where = f"after step {done[-1]}" if done else "at its first step"
        raise SchemaError(
            f"the migration failed {where}: {type(error).__name__}: {str(error).splitlines()[0]}. Nothing was changed: "
            f"the database is at schema {before or 'none'}, as before. Start the version of potstill that was here "
            "before, and report this line"
        ) from error
    if file is not None:
        safety.drop(file)


def _take_back(connection: Connection, file: Path | None, before: str | None) -> None:
    """Roll back; where a step has committed by itself, put the copy back."""
    raw: Any = connection.connection.dbapi_connection
    covered = file is None or bool(raw.in_transaction)
    connection.rollback()
    if file is None or before is None:
        return
    if covered:
        safety.drop(file)
    elif safety.copy_of(file).exists():
        connection.invalidate()  # its snapshot would be in the way
        safety.put_back(file)


def _check_keys(connection: Connection) -> None:
    """Refuse rows that name nothing: SQLite did not look while tables were rebuilt."""
    if connection.dialect.name == "sqlite":
        broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
        if broken:
            raise RuntimeError(f"foreign keys would point nowhere: {[tuple(row) for row in broken[:5]]}")


def check(settings: Settings) -> None:
    """Refuse to work on another schema: on an older one, a newer one, one of another program, on none.

    Raises:
        SchemaError: with the remedy.
    """
    file = settings.database_file
    if file is not None and not file.exists():  # to connect would make it
        raise SchemaError(f"there is no database at {file}: set POTSTILL_HOME, or run 'potstill migrate' to make one")
    engine = create_engine(settings.resolved_database_url)
    try:
        with engine.connect() as connection:
            current = schema.revision_of(connection)
            schema.refuse_other(current, {} if current else schema.columns_of(connection))
    finally:
        engine.dispose()


@contextlib.contextmanager
def checked(settings: Settings) -> Iterator[Database]:
    """Yield the database, whose schema is this program's own.

    Raises:
        SchemaError: it is not.
    """
    check(settings)
    database = Database(settings)
    try:
        yield database
    finally:
        database.close()
