"""Short reads of requests that come at one moment share a thread and a session.

A statement costs the database microseconds, and Python a hundred times that around it: a session, a connection, a
transaction, a thread.
"""

import contextvars
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

from sqlalchemy.orm import Session

from service.api.turns import Outcome, Turns
from service.operations.ledger.unit import Store
from service.operations.progress import reading

_MOST = 64
"""Reads of one turn: so many take a few hundredths of a second, and others come meanwhile."""
Found = TypeVar("Found")


class _Reading(NamedTuple):
    """What a request reads, and as whom."""

    read: Callable[[Session], Any]
    context: contextvars.Context


class Together:
    """Reads for requests, in the event loop of one process.

    Args:
        store: what is read.
        lanes: turns that are read at a time.
    """

    def __init__(self, store: Store, lanes: int):
        self._store = store
        self._turns: Turns[_Reading, Any] = Turns(self._read, _MOST, lanes)

    async def read(self, read: Callable[[Session], Found]) -> Found:
        """Return what `read` finds; its session is that of others, too, keeps what it has read and ends at once.

        Raises:
            Exception: what `read` raises.
        """
        return cast(Found, await self._turns.ask(_Reading(read, contextvars.copy_context())))

    def _read(self, turn: list[_Reading]) -> list[Outcome[Any]]:
        with self._store.read() as session:
            reading.at_once(session)
            return [_one(session, each) for each in turn]


def _one(session: Session, each: _Reading) -> Outcome[Any]:
    try:
        return Outcome(each.context.run(each.read, session), None)
    except Exception as error:  # noqa: BLE001 - one request's, and raised there
        return Outcome(None, error)
