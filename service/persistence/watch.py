"""How a process learns that another one has committed: SQLite counts commits, PostgreSQL sends notifications.

Both are hints. Whoever is told looks at the database, and looks now and then without being told: a notification may be
lost with its connection, and never comes through a pool that hands connections out by transaction.
"""

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

log = logging.getLogger(__name__)
_CHANNEL = "potstill_changed"
_AGAIN_SECONDS = 1.0


def announce(session: Session) -> None:
    """Have the processes that listen told when this transaction is committed; SQLite needs no word."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text(f"NOTIFY {_CHANNEL}"))


@contextlib.contextmanager
def news(engine: Engine, told: Callable[[], None]) -> Iterator[Callable[[], bool] | None]:
    """Have `told` called when somebody has committed or, on SQLite, give a function that says so when it is asked."""
    if engine.dialect.name != "sqlite":
        with contextlib.closing(Listener(engine, told)):
            yield None
        return
    with contextlib.closing(CommitCounter(Path(engine.url.database or ""))) as counter:
        yield counter.moved


class CommitCounter:
    """Whether somebody has committed to a SQLite file since the last question: a read of shared memory, microseconds.

    Args:
        file: the database, which is there.
    """

    def __init__(self, file: Path):
        uri = f"{file.absolute().as_uri()}?mode=ro"
        self._connection = sqlite3.connect(uri, timeout=0, isolation_level=None, check_same_thread=False, uri=True)
        self._last: int | None = None

    def moved(self) -> bool:
        """Whether there may be news; True when the file cannot be asked, for then a look tells."""
        try:
            (now,) = self._connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            return True
        before, self._last = self._last, now
        return bool(before != now)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


class Listener:
    """Calls back at each notification of PostgreSQL, from a thread with a connection of its own.

    Args:
        engine: of the service; one connection is opened beside its pool.
        told: called in the thread; also after the connection was lost and made again.
    """

    def __init__(self, engine: Engine, told: Callable[[], None]):
        self._engine, self._told = engine, told
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="listener", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._listen()
            except Exception as error:  # noqa: BLE001 - whatever the driver raises: looks go on without it
                log.debug("no notifications for now: %s: %s", type(error).__name__, error)
                self._ended.wait(_AGAIN_SECONDS)

    def _listen(self) -> None:
        arguments, options = self._engine.dialect.create_connect_args(self._engine.url)
        connection = self._engine.dialect.connect(*arguments, **options)
        with contextlib.closing(connection):
            connection.autocommit = True
            connection.execute(f"LISTEN {_CHANNEL}")
            self._told()
            while not self._ended.is_set():
                for _ in connection.notifies(timeout=_AGAIN_SECONDS, stop_after=1):
                    self._told()

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join(timeout=5)
