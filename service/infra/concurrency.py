"""A limit of concurrency: so many requests of one caller are worked on at a time, the others wait for one to end.

Threads serve whoever comes first. Without a limit, a caller with a few hundred requests at once is in all of them, and
everybody else waits; with one, others find threads free. Waiting takes no thread. Used in the event loop only.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field

MOST_WAITING = 2000


@dataclass
class _Caller:
    at_work: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class ConcurrencyLimit:
    """The requests of all callers of this process.

    Args:
        each: requests of one caller that are worked on at a time.
        most_waiting: requests of one caller that may wait.
    """

    def __init__(self, each: int, most_waiting: int = MOST_WAITING):
        self._each, self._most_waiting = each, most_waiting
        self._callers: dict[str, _Caller] = {}

    async def acquire(self, caller: str) -> bool:
        """Wait for a slot; return at once, and False, when too many wait already."""
        own = self._callers.setdefault(caller, _Caller())
        if own.at_work < self._each:
            own.at_work += 1
            return True
        if len(own.waiting) >= self._most_waiting:
            return False
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        own.waiting.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.cancelled():
                own.waiting.remove(mine)
            else:
                self.release(caller)  # the slot came at the same moment
            raise
        return True

    def release(self, caller: str) -> None:
        """Give a slot back; the one who waits longest is next."""
        own = self._callers[caller]
        while own.waiting:
            following = own.waiting.popleft()
            if not following.done():
                following.set_result(None)
                return
        own.at_work -= 1
        if not own.at_work:
            del self._callers[caller]
