"""Deliveries that are whole at one moment count with one transaction, each by itself, and are told after it."""

import asyncio
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from contract.wire.devices import UpdateMetadata
from service.api import deliveries
from service.api.deliveries import Deliveries
from service.config import Settings
from service.domain.errors import DomainError
from service.domain.principal import Principal
from service.infra.blob_folder import FolderStore
from service.infra.sums import sums_of
from service.operations.access import tokens
from service.operations.fleet import updates
from service.operations.ledger import naming
from service.operations.ledger.garbage import collect
from service.persistence.tables import ChecksumRow, EventRow, UpdateRow
from tests.service.conftest import SettingsMaker
from tests.service.counting import CountingStore
from tests.service.world import Fed, World

NAMES = ["a", "b", "c", "d"]
Act = Callable[[Session], Any]


@dataclass
class Sender:
    """A device whose file is whole: what lets it count."""

    world: World
    fed: Fed
    name: str
    seed: int = 1
    caller: Principal = field(init=False)
    ticket: updates.Ticket = field(init=False)

    def __post_init__(self) -> None:
        round_id = self.world.round(self.fed)["id"]
        with self.world.store.read() as session:
            token = self.fed.devices[self.name].token
            self.caller = tokens.authenticate(session, self.world.settings.keys, token)
            self.ticket = updates.admit(session, round_id, self.caller)
        self.path = self.world.blobs.scratch.temp()
        self.path.write_bytes(self.world.update(self.fed, self.seed))
        self.sums = sums_of(self.path)

    def count(self, session: Session) -> tuple[str, bool]:
        told = UpdateMetadata(num_samples=10, base_model=self.ticket.base_model)
        row, fresh = updates.accept(session, self.ticket, told, self.sums.digest, self.sums.size)
        if fresh:
            naming.name(session, self.world.blobs.store, self.path, self.sums)
        return row.id, fresh

    def fails_of(self, act: Act) -> Act:
        """Return what counts and then fails."""

        def count(session: Session) -> None:
            self.count(session)
            act(session)

        return count


def deliver(made: Deliveries, senders: list[Sender], acts: dict[str, Act] | None = None) -> list[Any]:
    """Have all delivered at once; return what each was told, or what was raised."""

    async def all_of_them() -> list[Any]:
        asked = [
            made.count(each.caller, (acts or {}).get(each.name, each.count), each.ticket.round_id) for each in senders
        ]
        return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(all_of_them())


def stored(world: World) -> tuple[int, int, int]:
    """Return how many updates, events of updates and checksums there are."""
    with world.store.read() as session:
        told = select(func.count()).select_from(EventRow).where(EventRow.kind == "update.received")
        counts = [select(func.count()).select_from(UpdateRow), told]
        rows = [session.scalar(query) or 0 for query in counts]
        digests = select(UpdateRow.digest)
        known = select(func.count()).select_from(ChecksumRow).where(ChecksumRow.digest.in_(digests))
        return rows[0], rows[1], session.scalar(known) or 0


def test_all_count_with_one_transaction_and_the_last_closes_the_round(anywhere: World) -> None:
    world = anywhere
    fed, store = world.running(NAMES), CountingStore(world)
    senders = [Sender(world, fed, name, seed) for seed, name in enumerate(NAMES)]
    told = deliver(Deliveries(store), senders)
    assert store.sessions == {"write": 1}
    assert [fresh for _, fresh in told] == [True] * 4 and len({id_ for id_, _ in told}) == 4
    assert stored(world) == (4, 4, 4)
    assert (world.round(fed)["answered"], world.round(fed)["state"]) == (4, "aggregating")
    for sender in senders:
        world.blobs.store.verify(sender.sums.digest)


def test_one_that_is_refused_leaves_the_others_and_nothing_of_its_own(world: World) -> None:
    fed = world.running(NAMES)
    world.push(fed, "b")
    senders = [Sender(world, fed, name, seed) for seed, name in enumerate(NAMES, 2)]
    a, b, c, d = deliver(Deliveries(world.store), senders)
    assert isinstance(b, DomainError) and b.kind == "already-delivered"
    assert [each[1] for each in (a, c, d)] == [True] * 3
    assert stored(world) == (4, 4, 4)
    assert world.round(fed)["state"] == "aggregating"


def test_one_that_fails_after_it_has_written_is_undone_alone(anywhere: World) -> None:
    world = anywhere
    fed = world.running(NAMES)
    senders = [Sender(world, fed, name, seed) for seed, name in enumerate(NAMES)]

    def fault(session: Session) -> None:
        raise RuntimeError("a fault of ours")

    a, b, c, d = deliver(Deliveries(world.store), senders, {"b": senders[1].fails_of(fault)})
    assert isinstance(b, RuntimeError)
    assert [each[1] for each in (a, c, d)] == [True] * 3
    assert stored(world) == (3, 3, 3)
    assert (world.round(fed)["answered"], world.round(fed)["state"]) == (3, "collecting")
    [(_, fresh)] = deliver(Deliveries(world.store), [Sender(world, fed, "b", 7)])
    assert fresh and world.round(fed)["state"] == "aggregating"


def test_the_last_one_fails_and_the_round_stays_open(world: World) -> None:
    fed = world.running(NAMES)
    senders = [Sender(world, fed, name, seed) for seed, name in enumerate(NAMES)]

    def fault(session: Session) -> None:
        raise RuntimeError("a fault of ours")

    *_, d = deliver(Deliveries(world.store), senders, {"d": senders[3].fails_of(fault)})
    assert isinstance(d, RuntimeError)
    assert world.round(fed)["state"] == "collecting" and world.round(fed)["job_id"] is None


def test_what_a_database_says_of_values_is_one_devices_own(anywhere: World) -> None:
    world = anywhere
    fed = world.running(NAMES)
    senders = [Sender(world, fed, name, seed) for seed, name in enumerate(NAMES)]

    def twice(session: Session) -> None:
        session.execute(text("INSERT INTO updates SELECT * FROM updates"))

    told = deliver(Deliveries(world.store), senders, {"c": senders[2].fails_of(twice)})
    assert [isinstance(each, Exception) for each in told] == [False, False, True, False]
    assert stored(world) == (3, 3, 3)


def test_a_database_that_fails_is_everybodys_fault_and_nobody_counts(world: World) -> None:
    fed = world.running(NAMES)
    senders = [Sender(world, fed, name, seed) for seed, name in enumerate(NAMES)]

    def full(session: Session) -> None:
        raise OperationalError("INSERT", {}, Exception("database or disk is full"))

    told = deliver(Deliveries(world.store), senders, {"c": senders[2].fails_of(full)})
    assert [type(each) for each in told] == [OperationalError] * 4
    assert stored(world) == (0, 0, 0)


def test_names_that_do_not_get_to_the_disk_are_nobodys_receipt(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = world.running(NAMES)
    senders = [Sender(world, fed, name, seed) for seed, name in enumerate(NAMES)]
    with monkeypatch.context() as patch:

        def broken(digests: Any) -> None:
            raise OSError(5, "Input/output error")

        patch.setattr(world.blobs.store, "settle", broken)
        told = deliver(Deliveries(world.store), senders)
    assert [type(each) for each in told] == [OSError] * 4
    assert stored(world) == (0, 0, 0)
    again = [Sender(world, fed, name, seed) for seed, name in enumerate(NAMES)]
    assert [fresh for _, fresh in deliver(Deliveries(world.store), again)] == [True] * 4
    assert stored(world) == (4, 4, 4)


def test_nobody_is_answered_before_the_names_are_on_the_disk_and_all_is_committed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = world.running(NAMES)
    senders = [Sender(world, fed, name, seed) for seed, name in enumerate(NAMES)]
    order: list[str] = []
    settle = world.blobs.store.settle

    def settled(digests: Any) -> None:
        order.append(f"{len(digests)} names, {stored(world)[0]} committed")
        settle(digests)

    monkeypatch.setattr(world.blobs.store, "settle", settled)

    async def all_of_them() -> None:
        made = Deliveries(world.store)

        async def one(sender: Sender) -> None:
            await made.count(sender.caller, sender.count, sender.ticket.round_id)
            order.append(f"told, {stored(world)[0]} committed")

        await asyncio.gather(*(one(each) for each in senders))

    asyncio.run(all_of_them())
    assert order == ["4 names, 0 committed", *["told, 4 committed"] * 4]


def test_those_beyond_what_a_round_needs_are_refused_as_if_they_came_later(world: World) -> None:
    plan = {"clients_per_round": 2, "min_clients": 4, "over_selection": 2.0, "total": 9, "min_updates": 2}
    fed = world.running(NAMES, rounds=plan)
    senders = [Sender(world, fed, name, seed) for seed, name in enumerate(NAMES)]
    told = deliver(Deliveries(world.store), senders)
    assert [each.kind if isinstance(each, DomainError) else each[1] for each in told] == [
        True,
        True,
        "round-closed",
        "round-closed",
    ]
    assert stored(world) == (2, 2, 2)


def test_the_same_delivery_twice_at_once_counts_once(world: World) -> None:
    fed = world.running(NAMES)
    first, second = Sender(world, fed, "a"), Sender(world, fed, "a")
    told = deliver(Deliveries(world.store), [first, second])
    assert Counter(fresh for _, fresh in told) == {True: 1, False: 1}
    assert told[0][0] == told[1][0]
    assert stored(world) == (1, 1, 1)


def test_federations_have_transactions_of_their_own(world: World) -> None:
    feds, store = [world.running(["a", "b"]), world.running(["c", "d"])], CountingStore(world)
    senders = [Sender(world, fed, name) for fed in feds for name in fed.devices]
    assert [fresh for _, fresh in deliver(Deliveries(store), senders)] == [True] * 4
    assert store.sessions == {"write": 2}
    assert [world.round(fed)["state"] for fed in feds] == ["aggregating"] * 2


def test_more_than_a_turn_takes_come_in_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "_MOST", 3)
    fed, store = world.running(NAMES), CountingStore(world)
    senders = [Sender(world, fed, name, seed) for seed, name in enumerate(NAMES)]
    assert [fresh for _, fresh in deliver(Deliveries(store), senders)] == [True] * 4
    assert store.sessions == {"write": 2}
    assert world.round(fed)["state"] == "aggregating"


def end_in_settling(settings: Settings, operator: str, fed: Fed, late: bool) -> None:
    """Be an API that is killed when its files have their names, before or after they are on the disk."""
    world, real = World(settings), FolderStore.settle
    world.operator = operator

    def settle(self: FolderStore, digests: Collection[str]) -> None:
        if late:
            real(self, digests)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FolderStore, "settle", settle)
        deliver(Deliveries(world.store), [Sender(world, fed, name, seed) for seed, name in enumerate(NAMES)])


@pytest.mark.parametrize("late", [False, True])
def test_a_kill_between_the_names_and_the_commit_leaves_none_of_a_turn(
    late: bool, make_settings: SettingsMaker, world_of: type[World]
) -> None:
    """Nobody was answered; who comes again counts, and a file that does not is collected."""
    settings = make_settings(database_url=None)
    begun = world_of(settings)
    fed, operator = begun.running(NAMES), begun.operator
    begun.close()
    killed = multiprocessing.get_context("spawn").Process(target=end_in_settling, args=(settings, operator, fed, late))
    killed.start()
    killed.join(120)
    assert killed.exitcode == -signal.SIGKILL

    world = world_of(settings)
    world.operator = operator
    try:
        assert stored(world) == (0, 0, 0)
        assert (world.round(fed)["state"], world.round(fed)["answered"]) == ("collecting", 0)
        *again, lost = [Sender(world, fed, name, seed) for seed, name in enumerate(NAMES)]
        store = FolderStore(settings.resolved_blob_dir)
        left = [store.path(each.sums.digest) for each in (*again, lost)]
        assert all(path.exists() for path in left), "it was killed too early"
        assert [fresh for _, fresh in deliver(Deliveries(world.store), again)] == [True] * 3
        assert stored(world) == (3, 3, 3)
        collect(world.store.database, world.blobs.store, 0)
        assert [path.exists() for path in left] == [True, True, True, False]
        for each in again:
            world.blobs.store.verify(each.sums.digest)
    finally:
        world.close()
