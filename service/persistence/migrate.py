"""Bring the database to the newest schema, one process at a time; or say that it is not there."""

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from importlib.resources import files

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text

from service.config import Settings

_LOCK = 815000


def alembic_config(connection: Connection | None = None) -> Config:
    """Return Alembic's configuration; a connection is needed for whatever touches a database."""
    config = Config()
    config.set_main_option("script_location", str(files("migrations")))
    config.attributes["connection"] = connection
    return config


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
    settings.home.mkdir(parents=True, exist_ok=True)
    with open(settings.home / "migrate.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def upgrade(settings: Settings, revision: str = "head") -> tuple[str | None, str | None]:
    """Upgrade the schema, if it is not the newest; return its revisions before (None: no tables) and after."""
    return _run(settings, lambda config: command.upgrade(config, revision))


def downgrade(settings: Settings, revision: str) -> None:
    """Go back to an older schema; `base` removes all tables."""
    _run(settings, lambda config: command.downgrade(config, revision))


def _run(settings: Settings, act: Callable[[Config], None]) -> tuple[str | None, str | None]:
    if settings.is_sqlite:
        settings.home.mkdir(parents=True, exist_ok=True)
    engine = create_engine(settings.resolved_database_url)
    try:
        with engine.connect() as connection, _alone(settings, connection):
            before = _current(connection)
            act(alembic_config(connection))
            return before, _current(connection)
    finally:
        engine.dispose()


def _current(connection: Connection) -> str | None:
    """Return the revision that a database is at, and leave no transaction open: Alembic would not commit its own."""
    found = MigrationContext.configure(connection).get_current_revision()
    connection.rollback()
    return found


class SchemaError(Exception):
    """The database has another schema than this version needs."""


def check(settings: Settings) -> None:
    """Refuse to work on another schema.

    Raises:
        SchemaError: with the remedy.
    """
    head = ScriptDirectory.from_config(alembic_config()).get_current_head()
    file = settings.database_file
    if file is not None and not file.exists():  # to connect would make it
        raise SchemaError(f"there is no database at {file}: set POTSTILL_HOME, or run 'potstill migrate' to make one")
    engine = create_engine(settings.resolved_database_url)
    try:
        with engine.connect() as connection:
            current = _current(connection)
    finally:
        engine.dispose()
    if current != head:
        raise SchemaError(
            f"the database is at schema {current or 'none'}, this version needs {head}: run 'potstill migrate'"
        )
