"""Short reads of requests that come at one moment share a thread and a session.

A statement costs the database microseconds, and Python a hundred times that around it: a session, a connection, a
transaction, a thread. Who comes while a turn is read is of the next one, so nobody waits for company.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from service.operations.ledger.unit import Store
from service.operations.progress import reading

_MOST = 64
"""Reads of one turn: so many take a few hundredths of a second, and others come meanwhile."""
Found = TypeVar("Found")


class _Reading(NamedTuple):
    """What a request reads, as whom, and where it waits for it."""

    read: Callable[[Session], Any]
    context: contextvars.Context
    found: asyncio.Future[Any]


class Together:
    """Reads for requests, in the event loop of one process.

    Args:
        store: what is read.
        lanes: turns that are read at a time.
    """

    def __init__(self, store: Store, lanes: int):
        self._store = store
        self._free = lanes
        self._waiting: deque[_Reading] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    async def read(self, read: Callable[[Session], Found]) -> Found:
        """Return what `read` finds; its session is that of others, too, keeps what it has read and ends at once.

        Raises:
            Exception: what `read` raises.
        """
        mine: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Reading(read, contextvars.copy_context(), mine))
        if self._free:
            self._free -= 1
            task = asyncio.create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await mine

    async def _run(self) -> None:
        try:
            while self._waiting:
                turn = [self._waiting.popleft() for _ in range(min(_MOST, len(self._waiting)))]
                try:
                    found = await run_in_threadpool(self._read, turn)
                except Exception as error:  # noqa: BLE001 - the database is away: each request fails of it, as if alone
                    found = [(None, error)] * len(turn)
                for each, (value, fault) in zip(turn, found, strict=True):
                    if each.found.done():  # its client hung up
                        continue
                    if fault is None:
                        each.found.set_result(value)
                    else:
                        each.found.set_exception(fault)
        finally:
            self._free += 1

    def _read(self, turn: list[_Reading]) -> list[tuple[Any, Exception | None]]:
        with self._store.read() as session:
            reading.at_once(session)
            return [_one(session, each) for each in turn]


def _one(session: Session, each: _Reading) -> tuple[Any, Exception | None]:
    try:
        return each.context.run(each.read, session), None
    except Exception as error:  # noqa: BLE001 - one request's, and raised there
        return None, error
