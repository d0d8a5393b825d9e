"""The hub of the event streams: one look for all viewers, the newest in memory, nothing missed."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from contract.wire.events import Event
from service.infra import feed as module
from service.infra.feed import Feed

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Found:
    events: list[Event]
    position: int


@dataclass
class Table:
    """A table of events that remembers how often it was read."""

    rows: list[Event] = field(default_factory=list)
    fail: bool = False

    def add(self, count: int = 1) -> None:
        for _ in range(count):
            self.rows.append(Event(sequence=len(self.rows) + 1, at=MOMENT, kind="round.opened"))

    def read(self, after: int | None, limit: int) -> Found:
        if self.fail:
            raise OSError("away")
        if after is None:
            return Found([], len(self.rows))
        found = self.rows[after : after + limit]
        return Found(found, found[-1].sequence if found else after)


async def until(what: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not what():
            await asyncio.sleep(0.001)


def run(scenario: Callable[[Feed, Table], Awaitable[None]], poll: float = 0.01) -> None:
    table = Table()

    async def main() -> None:
        feed = Feed(table.read, list, poll)
        feed.start()
        try:
            await asyncio.wait_for(scenario(feed, table), 20)
        finally:
            await feed.stop()

    asyncio.run(main())


def test_nobody_looks_nobody_reads() -> None:
    async def scenario(feed: Feed, table: Table) -> None:
        table.add(3)
        feed.kick()
        await asyncio.sleep(0.05)
        assert feed.reads == 0

    run(scenario)


def test_many_viewers_cost_one_look() -> None:
    async def scenario(feed: Feed, table: Table) -> None:
        heard: list[int] = []

        async def view() -> None:
            position = 0
            with feed.viewer():
                while position < 5:
                    bell = feed.bell
                    found = feed.after(position)
                    if found is not None and found[0]:
                        position = found[1]
                    else:
                        await feed.wait(bell, 5)
            heard.append(position)

        viewers = [asyncio.create_task(view()) for _ in range(50)]
        await until(lambda: feed._head == 0)
        before = feed.reads
        table.add(5)
        feed.kick()
        await asyncio.gather(*viewers)
        assert heard == [5] * 50
        assert feed.reads <= before + 2

    run(scenario, poll=60)


def test_what_memory_does_not_reach_is_left_to_the_database() -> None:
    async def scenario(feed: Feed, table: Table) -> None:
        table.add(7)
        with feed.viewer():
            await until(lambda: feed._head == 7)
            assert feed.after(3) is None  # from before this process looked
            assert feed.after(7) == ([], 7)
            table.add(module.KEPT - 1)
            await until(lambda: feed._head == 7 + module.KEPT - 1)
            found = feed.after(7)
            assert found is not None and [e.sequence for e in found[0]] == list(range(8, 7 + module.KEPT))
            table.add(10)
            await until(lambda: feed._head == 7 + module.KEPT + 9)
            assert feed.after(7) is None
            assert feed.after(16) is not None
            assert len(feed._recent) == module.KEPT
            table.add(3 * module.KEPT)
            await until(lambda: feed._head == len(table.rows))
            assert feed.after(17) is None
            assert feed.after(len(table.rows)) == ([], len(table.rows))

    run(scenario)


def test_a_database_that_is_away_for_a_moment() -> None:
    async def scenario(feed: Feed, table: Table) -> None:
        table.fail = True
        with feed.viewer():
            await until(lambda: feed.reads)
            table.fail = False
            table.add(2)
            await until(lambda: feed._head == 2)

    run(scenario)


def test_the_end_wakes_everybody() -> None:
    async def scenario(feed: Feed, table: Table) -> None:
        with feed.viewer():
            waiting = [asyncio.create_task(feed.wait(feed.bell, 60)) for _ in range(5)]
            await asyncio.sleep(0)
            feed.close()
            await asyncio.gather(*waiting)
            await feed.wait(feed.bell, 60)

    run(scenario, poll=60)
