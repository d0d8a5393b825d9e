"""Limit of concurrency: nobody's crowd of requests keeps others out, nobody waits for ever, nothing is left behind."""

import asyncio
from typing import Any

import pytest

from service.infra.concurrency import ConcurrencyLimit


async def _settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_those_beyond_their_slots_wait_in_order_and_others_do_not() -> None:
    async def run() -> None:
        limit, began = ConcurrencyLimit(each=2), []

        async def work(name: str) -> None:
            assert await limit.acquire(name[0])
            began.append(name)

        tasks = [asyncio.create_task(work(name)) for name in ("a1", "a2", "a3", "a4", "b1")]
        await _settle()
        assert began == ["a1", "a2", "b1"]
        for following in ("a3", "a4"):
            limit.release("a")
            await _settle()
            assert began[-1] == following
        for caller in "aab":
            limit.release(caller)
        await asyncio.gather(*tasks)
        assert limit._callers == {}

    asyncio.run(run())


@pytest.mark.parametrize("at_the_same_moment", [False, True])
def test_one_that_is_cancelled_loses_nobody_a_slot(at_the_same_moment: bool) -> None:
    async def run() -> None:
        limit = ConcurrencyLimit(each=1)
        assert await limit.acquire("a")
        first, second = (asyncio.create_task(limit.acquire("a")) for _ in range(2))
        await _settle()
        if at_the_same_moment:
            limit.release("a")
            first.cancel()
        else:
            first.cancel()
            await _settle()
            limit.release("a")
        assert await second
        assert first.cancelled() or (await asyncio.gather(first, return_exceptions=True))
        limit.release("a")
        assert limit._callers == {}

    asyncio.run(run())


def test_the_line_has_an_end() -> None:
    async def run() -> Any:
        limit = ConcurrencyLimit(each=1, most_waiting=2)
        assert await limit.acquire("a")
        waiting = [asyncio.create_task(limit.acquire("a")) for _ in range(2)]
        await _settle()
        refused = await limit.acquire("a")
        for _ in range(3):
            limit.release("a")
            await _settle()
        return refused, [task.result() for task in waiting], limit._callers

    assert asyncio.run(run()) == (False, [True, True], {})
