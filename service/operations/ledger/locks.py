"""Locks that PostgreSQL needs for the rest of a transaction; SQLite's write lock is all of them at once."""

import hashlib

from sqlalchemy import text
from sqlalchemy.orm import Session


def alone(session: Session, what: str) -> None:
    """Wait for every other transaction that is alone with the same thing; SQLite's write lock does so by itself."""
    if session.get_bind().dialect.name == "postgresql":
        number = int.from_bytes(hashlib.sha256(what.encode()).digest()[:4], signed=True)
        session.execute(text("SELECT pg_advisory_xact_lock(815002, :number)"), {"number": number})


def hold_blobs(session: Session) -> None:
    """Hold off the removal of blobs for the rest of this transaction; SQLite's write lock does so by itself."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock_shared(815001)"))


def lock_blobs(session: Session) -> None:
    """Hold off those that are about to name a blob, while unnamed ones are removed."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(815001)"))


def lock_uploads(session: Session) -> None:
    """Let resumable uploads be made one after another, so that their limits hold; SQLite does so by itself."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(815002)"))
