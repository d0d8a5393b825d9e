"""Turns: nobody's crowd of requests keeps others out, nobody waits for ever, nothing is left behind."""

import asyncio
from typing import Any

import pytest

from service.infra.turns import Turns


async def _settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_those_beyond_their_turns_wait_in_order_and_others_do_not() -> None:
    async def run() -> None:
        turns, began = Turns(each=2), []

        async def work(name: str) -> None:
            assert await turns.take(name[0])
            began.append(name)

        tasks = [asyncio.create_task(work(name)) for name in ("a1", "a2", "a3", "a4", "b1")]
        await _settle()
        assert began == ["a1", "a2", "b1"]
        for following in ("a3", "a4"):
            turns.give("a")
            await _settle()
            assert began[-1] == following
        for caller in "aab":
            turns.give(caller)
        await asyncio.gather(*tasks)
        assert turns._lines == {}

    asyncio.run(run())


@pytest.mark.parametrize("at_the_same_moment", [False, True])
def test_one_that_is_cancelled_loses_nobody_a_turn(at_the_same_moment: bool) -> None:
    async def run() -> None:
        turns = Turns(each=1)
        assert await turns.take("a")
        first, second = (asyncio.create_task(turns.take("a")) for _ in range(2))
        await _settle()
        if at_the_same_moment:
            turns.give("a")
            first.cancel()
        else:
            first.cancel()
            await _settle()
            turns.give("a")
        assert await second
        assert first.cancelled() or (await asyncio.gather(first, return_exceptions=True))
        turns.give("a")
        assert turns._lines == {}

    asyncio.run(run())


def test_the_line_has_an_end() -> None:
    async def run() -> Any:
        turns = Turns(each=1, most_waiting=2)
        assert await turns.take("a")
        waiting = [asyncio.create_task(turns.take("a")) for _ in range(2)]
        await _settle()
        refused = await turns.take("a")
        for _ in range(3):
            turns.give("a")
            await _settle()
        return refused, [task.result() for task in waiting], turns._lines

    assert asyncio.run(run()) == (False, [True, True], {})
