"""Runs revisions on a connection that `service.persistence.migrate` hands over."""

from typing import Any

from alembic import context
from sqlalchemy import Connection, text

from service.persistence.tables import Base, UtcDateTime


def render_item(kind: str, item: Any, autogen_context: Any) -> str | bool:
    """Write our own column types so that revisions need no import of ours."""
    if kind == "type" and isinstance(item, UtcDateTime):
        return "sa.DateTime()"
    return False


def run(connection: Connection) -> None:
    """Apply revisions. SQLite rebuilds tables with foreign keys off, and they are checked afterwards."""
    sqlite = connection.dialect.name == "sqlite"
    if sqlite:
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
        connection.commit()
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=True,
        render_item=render_item,
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        if not sqlite:
            connection.execute(text("SET LOCAL lock_timeout = '10s'"))
        context.run_migrations()
    if sqlite:
        broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
        connection.commit()
        if broken:
            raise RuntimeError(f"foreign keys point nowhere after the migration: {broken[:5]}")


run(context.config.attributes["connection"])
