"""Reads of requests that come at one moment share a session, and each gets its own answer."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from sqlalchemy.orm import Session

from service.api import together
from service.api.together import Together
from service.domain.errors import DomainError
from service.operations.access import tokens
from service.operations.fleet import clients
from service.operations.ledger.audit import ACTING, Acting, acting
from service.operations.ledger.unit import Store
from tests.service.counting import CountingStore
from tests.service.world import Fed, World

NAMES = ["a", "b", "c"]


def read_all(store: Store, reads: Sequence[Callable[[Session], Any]]) -> list[Any]:
    """Have all read at once; return what each found, or what was raised."""

    async def all_of_them() -> list[Any]:
        made = Together(store, lanes=1)
        return await asyncio.gather(*(made.read(each) for each in reads), return_exceptions=True)

    return asyncio.run(all_of_them())


def test_one_session_lets_all_in_and_refuses_each_by_itself(world: World) -> None:
    fed, store = world.running(NAMES), CountingStore(world)
    given = [*(fed.devices[name].token for name in NAMES), "pst_dev_false"]
    keys = world.settings.keys
    reads = [partial(tokens.authenticate, keys=keys, token=token) for token in given]
    *let_in, refused = read_all(store, reads)
    assert store.sessions == {"read": 1}
    assert [(each.id, each.name, each.federation_id) for each in let_in] == [
        (fed.devices[name].id, name, fed.id) for name in NAMES
    ]
    assert isinstance(refused, DomainError) and refused.members["reason"] == "unknown"


def number_of(session: Session, number: int) -> int:
    return number


def revoke(world: World, fed: Fed, name: str) -> None:
    with world.store.write() as session:
        clients.revoke(session, fed.id, fed.devices[name].id)


def test_a_read_that_comes_later_sees_what_was_committed_before_it(world: World) -> None:
    fed, store = world.running(NAMES), CountingStore(world)
    keys, token = world.settings.keys, fed.devices["a"].token

    def let_in(session: Session) -> str:
        return tokens.authenticate(session, keys, token).id

    async def before_and_after() -> list[Any]:
        made = Together(store, lanes=1)
        first = await made.read(let_in)
        await asyncio.to_thread(revoke, world, fed, "a")
        return [first, *await asyncio.gather(made.read(let_in), return_exceptions=True)]

    first, second = asyncio.run(before_and_after())
    assert first == fed.devices["a"].id
    assert isinstance(second, DomainError) and second.members["reason"] == "revoked"


def test_what_is_read_is_read_as_whoever_asked(world: World) -> None:
    async def ask(made: Together, address: str) -> str:
        ACTING.set(Acting(address=address))
        return await made.read(lambda session: acting().address)

    async def all_of_them() -> list[str]:
        made = Together(world.store, lanes=1)
        return await asyncio.gather(*(ask(made, each) for each in NAMES))

    assert asyncio.run(all_of_them()) == NAMES


def test_more_than_fit_into_a_turn_are_read_in_several(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "_MOST", 2)
    store = CountingStore(world)
    assert read_all(store, [partial(number_of, number=number) for number in range(5)]) == list(range(5))
    assert store.sessions == {"read": 3}


def test_a_database_that_is_away_fails_those_who_ask_and_nobody_after(world: World) -> None:
    store = CountingStore(world)

    async def away_and_back() -> list[Any]:
        made = Together(store, lanes=1)
        store.away = True
        lost = await asyncio.gather(*(made.read(lambda session: 1) for _ in NAMES), return_exceptions=True)
        store.away = False
        return [*lost, await made.read(lambda session: 2)]

    *lost, found = asyncio.run(away_and_back())
    assert [type(each) for each in lost] == [ConnectionError] * 3 and found == 2


def test_who_hangs_up_takes_nobody_along(world: World) -> None:
    async def one_leaves() -> int:
        made = Together(world.store, lanes=1)
        leaving = asyncio.ensure_future(made.read(lambda session: 1))
        staying = asyncio.ensure_future(made.read(lambda session: 2))
        await asyncio.sleep(0)
        leaving.cancel()
        return await staying

    assert asyncio.run(one_leaves()) == 2
