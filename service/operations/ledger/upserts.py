"""Inserts that change the row that is there: a statement of the database's own dialect, and no other one is loaded."""

from typing import Any

from sqlalchemy.orm import Session


def inserting(session: Session, table: Any) -> Any:
    """Return the insert of a session's dialect, which has `on_conflict_do_update`; PostgreSQL's takes 2 MB."""
    if session.get_bind().dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)
