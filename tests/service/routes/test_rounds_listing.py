"""A list of rounds says of each what the round itself says, and asks the database as often for many as for one."""

import re
from typing import Any

from sqlalchemy import event

from service.operations.progress import participants, reading
from service.operations.view import rounds
from service.persistence.tables import FederationRow, ParticipantRow
from tests.service.world import Fed, World


def _statements(world: World, fed: Fed, limit: int) -> int:
    """Return how many statements a page of a federation's rounds takes."""
    said: list[str] = []

    def hear(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        said.append(statement)

    with world.store.read() as session:
        federation = session.get_one(FederationRow, fed.id)
        event.listen(session.connection(), "before_cursor_execute", hear)
        assert len(rounds.listing(session, federation, limit, None)[0]) == limit
    return len(said)


def _deliver_all(world: World, fed: Fed, seed: int) -> None:
    for name, device in fed.devices.items():
        assert world.assignment(device)["action"] == "train"
        assert world.push(fed, name, world.update(fed, seed)).status_code == 201


def test_a_page_counts_each_round_as_the_round_itself_does(world: World) -> None:
    fed = world.running(["a", "b", "c"], rounds={"total": 3})
    _deliver_all(world, fed, 1)
    world.finish(world.claim(), {"main": world.forge.arrays(5)})
    assert world.push(fed, "a", world.update(fed, 2)).status_code == 201
    world.op("DELETE", f"/v1/federations/{fed.id}/clients/{fed.devices['b'].id}")
    with world.store.write() as session:
        newest = reading.newest_round(session, session.get_one(FederationRow, fed.id))
        assert newest is not None
        row = session.get_one(ParticipantRow, (newest.id, fed.devices["c"].id))
        row.lost_at = newest.opened_at
    listed = world.ok("GET", f"/v1/federations/{fed.id}/rounds")["items"]
    counted = [(each["asked"], each["answered"], each["lost"]) for each in listed]
    assert counted == [(3, 3, 0), (2, 1, 1)]
    assert (listed[0]["size"] > listed[1]["size"] > 0, listed[1]["job_id"]) == (True, None)
    for each in listed:
        alone = world.ok("GET", f"/v1/rounds/{each['id']}")
        assert each == {name: alone[name] for name in each}
    assert _statements(world, fed, 1) == _statements(world, fed, 2) == 4


def test_buffers_are_counted_whether_they_are_open_or_not(world: World) -> None:
    fed = world.running(["a", "b"], rounds={"mode": "buffered", "buffer": 2, "total": 9})
    _deliver_all(world, fed, 1)
    listed = world.ok("GET", f"/v1/federations/{fed.id}/rounds")["items"]
    assert [(each["state"], each["asked"], each["answered"]) for each in listed] == [
        ("aggregating", 2, 2),
        ("collecting", 2, 0),
    ]


def test_a_round_s_view_looks_each_update_up_by_its_client(world: World) -> None:
    """It is asked with deliveries: of 10,000 participants it took 5 s where it read all updates for each of them."""
    if world.services.database.engine.dialect.name != "sqlite":
        return  # PostgreSQL knows how many rows there are, and joins two lists
    with world.store.read() as session:
        explained = f"EXPLAIN QUERY PLAN {participants._VIEW.compile(session.connection())}"
        plan = session.connection().exec_driver_sql(explained, (1, 1, "x")).all()
    (updates,) = [row.detail for row in plan if "updates" in row.detail]
    assert re.search(r"\((begun_in|round_id)=\? AND client_id=\?\)", updates), updates
