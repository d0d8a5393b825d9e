"""Turns: so many requests of one caller are worked on at a time, the others wait for one of them to end.

Threads serve whoever comes first. Without turns, a caller with a few hundred requests at once stands in all of them,
and everybody else behind; with turns, others find threads free. Waiting takes no thread. Used in the event loop only.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field

MOST_WAITING = 2000


@dataclass
class _Line:
    at_work: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class Turns:
    """The turns of all callers of this process.

    Args:
        each: requests of one caller that are worked on at a time.
        most_waiting: requests of one caller that may wait.
    """

    def __init__(self, each: int, most_waiting: int = MOST_WAITING):
        self._each, self._most_waiting = each, most_waiting
        self._lines: dict[str, _Line] = {}

    async def take(self, caller: str) -> bool:
        """Wait for a turn; return at once, and False, when too many wait already."""
        line = self._lines.setdefault(caller, _Line())
        if line.at_work < self._each:
            line.at_work += 1
            return True
        if len(line.waiting) >= self._most_waiting:
            return False
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.waiting.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.cancelled():
                line.waiting.remove(mine)
            else:
                self.give(caller)  # the turn came at the same moment
            raise
        return True

    def give(self, caller: str) -> None:
        """End a turn; the one who waits longest is next."""
        line = self._lines[caller]
        while line.waiting:
            following = line.waiting.popleft()
            if not following.done():
                following.set_result(None)
                return
        line.at_work -= 1
        if not line.at_work:
            del self._lines[caller]
