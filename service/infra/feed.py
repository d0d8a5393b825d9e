"""The event feed of one process: one look at the database serves every viewer of this process.

The newest events are kept in memory; a viewer that is further behind reads the database by itself until it has caught
up. The database is the truth: several processes, each with its own feed, show the same events under the same numbers.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from contract.wire.events import Event
from contract.wire.rounds import Job

log = logging.getLogger(__name__)
KEPT = 1000
PROGRESS_SECONDS = 1.0


class Batch(Protocol):
    """Events and the position that they lead to."""

    @property
    def events(self) -> list[Event]:
        """The events, the oldest first."""

    @property
    def position(self) -> int:
        """Where to go on."""


class Feed:
    """A hub for viewers.

    Args:
        read: returns up to so many events after a position; None asks for the newest position only. Runs in a thread.
        running: returns the jobs that run now; runs in a thread, once a second while somebody looks.
        poll_seconds: how often `read` is called while somebody looks.
    """

    def __init__(self, read: Callable[[int | None, int], Batch], running: Callable[[], list[Job]], poll_seconds: float):
        self._read, self._running, self._poll = read, running, poll_seconds
        self._recent: deque[Event] = deque(maxlen=KEPT)
        self._floor = self._head = -1  # what is recent covers (floor, head]; nothing is known at first
        self._looked_at_jobs = 0.0
        self.jobs: list[Job] = []
        self.viewers = 0
        self.reads = 0
        self._news: asyncio.Event | None = None
        self._kicked = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self.closing = False

    def start(self) -> None:
        """Begin looking; called inside the event loop."""
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._task = self._loop.create_task(self._run())

    async def stop(self) -> None:
        """Send every viewer home and stop looking."""
        self.close()
        if self._task is not None:
            await self._task

    def close(self) -> None:
        """Let every stream end now; safe from a signal handler."""
        self.closing = True
        self._soon(self._tell)

    def kick(self) -> None:
        """Look now; safe from any thread."""
        self._soon(self._kicked.set)

    def _soon(self, act: Callable[[], None]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act)

    def _tell(self) -> None:
        """Wake all viewers: those that wait hold the old bell, those that come get a new one."""
        self._kicked.set()
        if self._news is not None:
            self._news.set()
            self._news = asyncio.Event()

    @contextlib.contextmanager
    def viewer(self) -> Iterator[None]:
        """Count as somebody who looks."""
        self.viewers += 1
        self._kicked.set()
        try:
            yield
        finally:
            self.viewers -= 1

    def after(self, position: int) -> tuple[list[Event], int] | None:
        """Return the events after a position and where they lead; None if that is further back than memory reaches."""
        if self._floor < 0 or position < self._floor:
            return None
        found: list[Event] = []
        for event in reversed(self._recent):
            if event.sequence <= position:
                break
            found.append(event)
        return found[::-1], max(position, self._head)

    @property
    def bell(self) -> asyncio.Event:
        """What rings at the next news: take it before reading, so that nothing is missed in between."""
        assert self._news is not None
        return self._news

    async def wait(self, bell: asyncio.Event, timeout: float) -> None:
        """Return when the bell rings, after `timeout` seconds, or at the end."""
        if not self.closing:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(bell.wait(), timeout)

    async def _run(self) -> None:
        while not self.closing:
            if not self.viewers:
                await self._kicked.wait()
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._kicked.wait(), self._poll)
            self._kicked.clear()
            if self.viewers and not self.closing:
                await self._look()

    async def _look(self) -> None:
        try:
            batch, jobs = await asyncio.to_thread(self._fetch)
        except Exception:  # the database may be away for a moment; viewers go on waiting
            log.exception("cannot read the events")
            await asyncio.sleep(1)
            return
        moved = jobs != self.jobs or batch.position != self._head
        self.jobs = jobs
        self._keep(batch)
        if moved:
            self._tell()

    def _fetch(self) -> tuple[Batch, list[Job]]:
        """Read what is new, in a thread; the loop takes it over, so that no viewer meets a list that changes."""
        self.reads += 1
        batch = self._read(None if self._head < 0 else self._head, KEPT)
        if len(batch.events) == KEPT:  # too far behind: begin anew from the newest
            batch = self._read(None, 0)
        if time.monotonic() - self._looked_at_jobs < PROGRESS_SECONDS:
            return batch, self.jobs
        self._looked_at_jobs = time.monotonic()
        return batch, self._running()

    def _keep(self, batch: Batch) -> None:
        if not batch.events and batch.position != self._head:
            self._recent.clear()
            self._floor = batch.position
        dropped = len(self._recent) + len(batch.events) - KEPT
        if dropped > 0:
            self._floor = self._recent[dropped - 1].sequence
        self._recent.extend(batch.events)
        self._head = batch.position
