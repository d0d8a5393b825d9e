"""Parts of one transaction that count or fail by themselves."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy

from sqlalchemy.orm import Session


@contextmanager
def apart(session: Session) -> Iterator[None]:
    """Undo what the block did, where it fails, and nothing else: its rows, and what it noted for the commit.

    Locks that the block took on PostgreSQL go with it; those that it needs for longer are taken before.
    """
    noted = {
        name: copy(value) if isinstance(value, list | set | dict) else value for name, value in session.info.items()
    }
    try:
        with session.begin_nested():
            yield
    except BaseException:
        session.info.clear()
        session.info.update(noted)
        raise
