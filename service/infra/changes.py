"""Wakes waiting devices. One look at the versions of all awaited federations serves every device that waits.

Changes made by this process are told at once (`kick`), those of workers and other replicas as soon as the database
says that somebody has committed; if it cannot, they are seen within a poll.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

log = logging.getLogger(__name__)
POLL_SECONDS = 0.2
"""How often the database is asked for changes while somebody waits for one."""
_GLANCE_SECONDS = 0.01
Versions = Callable[[list[str]], dict[str, int]]


class Changes:
    """A hub for long polls.

    Args:
        versions: reads the current versions of some federations; runs in a thread.
        poll_seconds: how often it is called while somebody waits.
    """

    def __init__(self, versions: Versions, poll_seconds: float):
        self._versions = versions
        self._moved: Callable[[], bool] | None = None
        self._poll = poll_seconds
        self._waiting: dict[str, dict[asyncio.Event, int]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._kicked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.closing = False

    @property
    def waiting(self) -> int:
        """How many devices wait here now."""
        return sum(len(events) for events in self._waiting.values())

    def start(self, moved: Callable[[], bool] | None = None) -> None:
        """Begin looking; called inside the event loop.

        Args:
            moved: says, in microseconds, whether it is worth a look before a poll's time; else `kick` alone does.
        """
        self._moved = moved
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run())

    async def stop(self) -> None:
        """Send everybody home and stop looking.

        The task is not cancelled: a look would go on in its thread, and `wait_for` swallows a cancellation that comes
        with its result (Python < 3.12).
        """
        self.close()
        if self._task is not None:
            await self._task

    def close(self) -> None:
        """Let every wait end now; safe from a signal handler."""
        self.closing = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._release_all)

    def kick(self) -> None:
        """Look at the versions now; safe from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._kicked.set)

    def _release_all(self) -> None:
        for events in self._waiting.values():
            for event in events:
                event.set()
        self._kicked.set()

    async def wait(self, federation_id: str, version: int, timeout: float) -> None:
        """Return when the federation's version is no longer `version`, after `timeout` seconds, or at shutdown."""
        if self.closing:
            return
        event = asyncio.Event()
        self._waiting.setdefault(federation_id, {})[event] = version
        self._kicked.set()  # a change between reading the version and waiting must not be missed
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), timeout)
        finally:
            del self._waiting[federation_id][event]
            if not self._waiting[federation_id]:
                del self._waiting[federation_id]

    async def _run(self) -> None:
        while not self.closing:
            if not self._waiting:
                await self._kicked.wait()
            else:
                await self._news()
            self._kicked.clear()
            if self._waiting and not self.closing:
                await self._look()

    async def _news(self) -> None:
        """Return when there is reason to look: a kick, a commit, or a poll's time."""
        end = time.monotonic() + self._poll
        while (left := end - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._kicked.wait(), left if self._moved is None else min(left, _GLANCE_SECONDS))
                return
            if self._moved is not None and self._moved():
                return

    async def _look(self) -> None:
        try:
            now = await asyncio.to_thread(self._versions, list(self._waiting))
        except Exception:  # the database may be away for a moment; devices go on waiting
            log.exception("cannot read the federations' versions")
            await asyncio.sleep(1)
            return
        for federation_id, version in now.items():
            for event, seen in self._waiting.get(federation_id, {}).items():
                if seen != version:
                    event.set()
