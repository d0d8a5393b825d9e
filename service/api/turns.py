"""What comes at one moment is done together, in a thread: who comes meanwhile is of the next turn, and nobody waits for
company.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from starlette.concurrency import run_in_threadpool

Asked = TypeVar("Asked")
Found = TypeVar("Found")


class Outcome(NamedTuple, Generic[Found]):
    """What one of a turn has found, or what it fails of."""

    found: Found | None
    fault: Exception | None


class _Waiting(NamedTuple, Generic[Asked, Found]):
    asked: Asked
    answer: asyncio.Future[Found]


class Turns(Generic[Asked, Found]):
    """Turns of one process, in its event loop.

    Args:
        do: does what a turn asks for, called in a thread; the outcomes are in the order of what was asked.
        most: that a turn takes.
        lanes: turns at a time.
    """

    def __init__(self, do: Callable[[list[Asked]], list[Outcome[Found]]], most: int, lanes: int = 1):
        self._do, self._most, self._lanes, self._free = do, most, lanes, lanes
        self._waiting: deque[_Waiting[Asked, Found]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits, and nothing is done."""
        return self._free == self._lanes and not self._waiting

    async def ask(self, asked: Asked) -> Found:
        """Return what is found for one.

        Raises:
            Exception: what it fails of; all of a turn, of what the turn fails of.
        """
        mine: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(asked, mine))
        if self._free:
            self._free -= 1
            task = asyncio.create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await mine

    async def _run(self) -> None:
        try:
            while self._waiting:
                turn = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
                try:
                    outcomes = await run_in_threadpool(self._do, [each.asked for each in turn])
                except Exception as error:  # noqa: BLE001 - the database is away: each request fails of it, as if alone
                    outcomes = [Outcome(None, error)] * len(turn)
                for each, (found, fault) in zip(turn, outcomes, strict=True):
                    if each.answer.done():  # its client hung up
                        continue
                    if fault is None:
                        each.answer.set_result(found)  # type: ignore[arg-type]
                    else:
                        each.answer.set_exception(fault)
        finally:
            self._free += 1
