"""Devices that ask at one moment are answered from one session, and each by itself."""

import asyncio
from typing import Any

import pytest
from sqlalchemy.orm import Session

from contract.wire.devices import Assignment, TrainAssignment
from service.api import desk
from service.api.desk import Desk
from service.domain.errors import DomainError
from service.domain.principal import Principal
from service.operations.access import tokens
from service.persistence.tables import ClientRow, ParticipantRow
from tests.service.counting import CountingStore
from tests.service.world import Fed, World

NAMES = ["a", "b", "c"]


def principals(world: World, fed: Fed, names: list[str]) -> list[Principal]:
    with world.store.read() as session:
        return [tokens.authenticate(session, world.settings.keys, fed.devices[name].token) for name in names]


def ask(made: Desk, callers: list[Principal], beats: bool = False) -> list[Any]:
    """Have all ask at once; return their answers, or what was raised."""

    async def all_of_them() -> list[Any]:
        return await asyncio.gather(*(made.ask(each, beats) for each in callers), return_exceptions=True)

    return asyncio.run(all_of_them())


def told(answers: list[Any]) -> list[Assignment]:
    return [assignment for assignment, _ in answers]


def participant(world: World, fed: Fed, name: str) -> ParticipantRow:
    with world.store.read() as session:
        return session.get_one(ParticipantRow, (world.round(fed)["id"], fed.devices[name].id))


def test_all_are_answered_from_one_session_and_noted_in_one_transaction(world: World) -> None:
    fed, store = world.running(NAMES), CountingStore(world)
    answers = told(ask(Desk(store), principals(world, fed, NAMES)))
    assert store.sessions == {"read": 1, "write": 1}
    assert all(participant(world, fed, name).fetched_at is not None for name in NAMES)
    alone = [world.assignment(fed.devices[name]) for name in NAMES]
    assert [each.model_dump(mode="json") for each in answers] == alone
    assert {each.client_name for each in answers if isinstance(each, TrainAssignment)} == set(NAMES)


def test_what_is_noted_already_costs_no_transaction(world: World) -> None:
    fed, store = world.running(NAMES), CountingStore(world)
    made, callers = Desk(store), principals(world, fed, NAMES)
    ask(made, callers)
    ask(made, callers)
    assert store.sessions == {"read": 2, "write": 1}


def test_who_has_sent_waits_and_the_others_train(world: World) -> None:
    fed = world.running(NAMES)
    world.push(fed, "b")
    answers = told(ask(Desk(world.store), principals(world, fed, NAMES)))
    assert [each.action for each in answers] == ["train", "wait", "train"]


def test_several_federations_ask_at_once(world: World) -> None:
    first, second = world.running(["a"]), world.running(["b", "c"])
    callers = principals(world, first, ["a"]) + principals(world, second, ["b", "c"])
    answers = told(ask(Desk(world.store), callers))
    assert [each.federation_id for each in answers] == [first.id, second.id, second.id]
    assert {each.action for each in answers} == {"train"}


def test_one_that_was_revoked_is_refused_and_nobody_else(world: World) -> None:
    fed = world.running(NAMES)
    callers = principals(world, fed, NAMES)
    with world.store.write() as session:
        session.get_one(ClientRow, fed.devices["b"].id).nonce = "another"
    a, b, c = ask(Desk(world.store), callers)
    assert isinstance(b, DomainError) and b.kind == "unauthorized"
    assert {each.action for each in told([a, c])} == {"train"}
    assert participant(world, fed, "b").fetched_at is None


def test_one_whose_place_went_meanwhile_fails_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = world.running(NAMES)
    note = desk._note

    def gone(session: Session, asking: Any, found: Any) -> None:
        if asking.caller.id == fed.devices["b"].id:
            session.delete(session.get_one(ParticipantRow, (found.untold, asking.caller.id)))
            session.flush()
        note(session, asking, found)

    monkeypatch.setattr(desk, "_note", gone)
    a, b, c = ask(Desk(world.store), principals(world, fed, NAMES))
    assert isinstance(b, Exception)
    assert {each.action for each in told([a, c])} == {"train"}
    assert participant(world, fed, "c").fetched_at is not None


def test_devices_that_beat_are_awaited_from_then_on(world: World) -> None:
    fed = world.running(NAMES)
    ask(Desk(world.store), principals(world, fed, ["a"]), beats=True)
    assert participant(world, fed, "a").silent_at is not None
    assert participant(world, fed, "b").silent_at is None


def test_a_database_that_is_away_fails_them_all_and_the_next_are_answered(world: World) -> None:
    fed, store = world.running(NAMES), CountingStore(world)
    made, callers = Desk(store), principals(world, fed, NAMES)
    store.away = True
    assert [type(each) for each in ask(made, callers)] == [ConnectionError] * 3
    store.away = False
    assert len(told(ask(made, callers))) == 3


def test_a_device_that_hangs_up_keeps_nobody_from_an_answer(world: World) -> None:
    fed = world.running(NAMES)
    made, (a, b, _) = Desk(world.store), principals(world, fed, NAMES)

    async def leave() -> tuple[Assignment, int]:
        going = asyncio.ensure_future(made.ask(a, False))
        staying = asyncio.ensure_future(made.ask(b, False))
        await asyncio.sleep(0)
        going.cancel()
        return await staying

    assert asyncio.run(leave())[0].action == "train"


def test_more_than_a_turn_takes_come_in_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "_MOST", 2)
    fed, store = world.running(NAMES), CountingStore(world)
    assert len(told(ask(Desk(store), principals(world, fed, NAMES)))) == 3
    assert store.sessions["read"] == 2
