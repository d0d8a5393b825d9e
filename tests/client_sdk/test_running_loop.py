"""A device inside a running event loop: a notebook's cell, a handler of a web service."""

import asyncio
from collections.abc import Callable
from typing import Any


def test_it_runs_where_an_event_loop_does(take_part: Callable[..., Any]) -> None:
    async def cell() -> Any:
        return take_part()

    assert asyncio.run(cell()).rounds_trained == 2


def test_beside_the_loop_in_a_thread_it_holds_nothing_up(take_part: Callable[..., Any]) -> None:
    async def handler() -> tuple[Any, int]:
        device, turns = asyncio.create_task(asyncio.to_thread(take_part)), 0
        while not device.done():
            await asyncio.sleep(0.001)
            turns += 1
        return device.result(), turns

    report, turns = asyncio.run(handler())
    assert report.rounds_trained == 2 and turns > 1
