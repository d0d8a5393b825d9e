"""The hub of the long polls: one look for all who wait, nothing missed, nobody kept."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from service.infra.changes import Changes


def run(scenario: Callable[[Changes, dict[str, int], list[list[str]]], Any], **options: Any) -> Any:
    """Run a scenario with a hub over a table of versions; `looks` records what was asked."""
    versions: dict[str, int] = {"f": 1, "g": 1}
    looks: list[list[str]] = []

    def read(ids: list[str]) -> dict[str, int]:
        looks.append(sorted(ids))
        return {id_: versions[id_] for id_ in ids}

    async def main() -> Any:
        hub = Changes(read, options.get("poll", 0.01))
        hub.start()
        try:
            return await asyncio.wait_for(scenario(hub, versions, looks), 10)
        finally:
            await hub.stop()

    return asyncio.run(main())


def test_a_change_before_the_wait_is_not_missed() -> None:
    async def scenario(hub: Changes, versions: dict[str, int], looks: list[list[str]]) -> None:
        versions["f"] = 2
        await hub.wait("f", 1, 60)

    run(scenario, poll=60)


def test_a_change_elsewhere_is_seen_by_the_next_look() -> None:
    async def scenario(hub: Changes, versions: dict[str, int], looks: list[list[str]]) -> None:
        waiting = asyncio.create_task(hub.wait("f", 1, 60))
        while len(looks) < 2:
            await asyncio.sleep(0.001)
        versions["f"] = 2
        await waiting

    run(scenario)


def test_a_kick_is_faster_than_the_poll() -> None:
    async def scenario(hub: Changes, versions: dict[str, int], looks: list[list[str]]) -> None:
        waiting = asyncio.create_task(hub.wait("f", 1, 60))
        while not looks:
            await asyncio.sleep(0.001)
        versions["f"] = 2
        hub.kick()
        await waiting

    run(scenario, poll=60)


def test_one_look_serves_all_and_only_those_concerned_wake() -> None:
    async def scenario(hub: Changes, versions: dict[str, int], looks: list[list[str]]) -> None:
        waiting = [asyncio.create_task(hub.wait("f", 1, 60)) for _ in range(20)]
        other = asyncio.create_task(hub.wait("g", 1, 60))
        while not looks or looks[-1] != ["f", "g"]:
            await asyncio.sleep(0.001)
        seen = len(looks)
        versions["f"] = 2
        hub.kick()
        await asyncio.gather(*waiting)
        assert len(looks) <= seen + 2
        assert not other.done()
        hub.close()
        await other

    run(scenario, poll=60)


def test_time_runs_out_and_nothing_is_left_behind() -> None:
    async def scenario(hub: Changes, versions: dict[str, int], looks: list[list[str]]) -> None:
        await hub.wait("f", 1, 0.02)
        assert hub._waiting == {}
        hub.close()
        await hub.wait("f", 1, 60)  # closing: at once

    run(scenario)


def test_nobody_waits_nobody_looks() -> None:
    async def scenario(hub: Changes, versions: dict[str, int], looks: list[list[str]]) -> None:
        await asyncio.sleep(0.05)
        assert looks == []

    run(scenario)


def test_a_database_that_is_away_for_a_moment_ends_no_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [RuntimeError("away")]
    real_sleep = asyncio.sleep
    monkeypatch.setattr("service.infra.changes.asyncio.sleep", lambda seconds: real_sleep(0))

    def read(ids: list[str]) -> dict[str, int]:
        if failures:
            raise failures.pop()
        return {"f": 2}

    async def main() -> None:
        hub = Changes(read, 0.01)
        hub.start()
        await asyncio.wait_for(hub.wait("f", 1, 60), 10)
        await hub.stop()

    asyncio.run(main())
    assert "cannot read" in caplog.text


def test_a_stop_that_meets_a_kick_ends_all_the_same() -> None:
    """A cancellation would be swallowed: before Python 3.12 `wait_for` prefers the result that comes with it."""
    looked = asyncio.Event()

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def read(ids: list[str]) -> dict[str, int]:
            loop.call_soon_threadsafe(looked.set)
            return dict.fromkeys(ids, 1)

        hub = Changes(read, 60)
        hub.start()
        waiting = asyncio.create_task(hub.wait("f", 1, 60))
        await looked.wait()
        for _ in range(200):  # until the hub sleeps again
            await asyncio.sleep(0.0001)
        hub._kicked.set()
        stopped, _ = await asyncio.wait({asyncio.create_task(hub.stop())}, timeout=3)
        assert stopped
        await waiting

    asyncio.run(main())


def test_a_commit_that_is_counted_is_seen_before_the_poll() -> None:
    versions, asked = {"f": 1}, []

    def moved() -> bool:
        asked.append(True)
        return versions["f"] == 2

    async def main() -> None:
        hub = Changes(lambda ids: {id_: versions[id_] for id_ in ids}, 60)
        hub.start(moved)
        waiting = asyncio.create_task(hub.wait("f", 1, 60))
        while not asked:
            await asyncio.sleep(0.001)
        versions["f"] = 2
        await asyncio.wait_for(waiting, 10)
        await hub.stop()

    asyncio.run(main())
