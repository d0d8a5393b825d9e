"""Clients and federations are deleted on an operator's word: blobs and rows go, an audit line stays."""

from typing import Any

import pytest
from sqlalchemy import func, select

from service.operations.progress import reading
from service.persistence.tables import (
    AuditRow,
    Base,
    ClientRow,
    DatasetRow,
    EventRow,
    IdempotencyRow,
    TokenRow,
    UpdateRow,
)
from tests.service.world import Fed, World


def play(world: World, fed: Fed, number: int) -> None:
    for place, name in enumerate(fed.devices):
        assert world.push(fed, name, world.update(fed, seed=100 * number + place)).status_code == 201
    world.finish(world.claim(), {"main": world.forge.arrays(1000 + number)})


def forget(world: World, fed: Fed, name: str) -> Any:
    return world.op("DELETE", f"/v1/federations/{fed.id}/clients/{fed.devices[name].id}?forget=true")


def test_a_clients_files_go_and_the_models_with_it_are_named(world: World) -> None:
    fed = world.running(["a", "b"], rounds={"total": 4, "min_updates": 1}, retention={"updates": "all"})
    play(world, fed, 0)
    play(world, fed, 1)
    first, second = (world.round(fed, index)["models"]["main"] for index in (1, 2))
    assert world.push(fed, "a", world.update(fed, seed=300)).status_code == 201
    files = len(world.files())
    answer = forget(world, fed, "a")
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert told["deleted"]["updates"] == 3
    assert told["deleted"]["bytes"] > 0
    assert (told["models"], told["descendants"]) == ([first, second], [])
    assert len(world.files()) == files - 3
    assert {each["name"]: each["answered_at"] for each in world.round(fed)["participants"]}["a"] is None
    assert world.push(fed, "b", world.update(fed, seed=301)).status_code == 201  # the round goes on without it
    assert world.round(fed, 3)["state"] == "aggregating"


def test_what_a_job_may_be_reading_is_not_deleted_under_it(world: World) -> None:
    fed = world.running(["a", "b"])
    for seed, name in enumerate(("a", "b")):
        assert world.push(fed, name, world.update(fed, seed)).status_code == 201
    job = world.claim()
    before = world.files()
    answer = forget(world, fed, "a")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:potstill:problem:in-use")
    assert job.id in answer.json()["detail"]
    assert world.files() == before
    world.finish(job, {"main": world.forge.arrays(9)})
    assert forget(world, fed, "a").json()["models"] == [world.round(fed, 1)["models"]["main"]]


def test_a_discriminator_goes_with_its_scores(world: World) -> None:
    fed = world.collecting(["a"])
    body = world.forge.pack(world.forge.arrays(2), {"num_samples": "10"})
    url = f"/v1/federations/{fed.id}/discriminator"
    assert world.site.request("PUT", url, token=fed.devices["a"].token, body=body).status_code == 201
    world.finish(world.claim(), {"a": world.forge.arrays(3)})
    before = len(world.files())
    assert forget(world, fed, "a").json()["deleted"]["discriminators"] == 1
    assert len(world.files()) == before - 2


def test_what_rounds_keep_of_a_client_goes_and_what_they_keep_of_others_stays(world: World) -> None:
    """`claims` tells of all clients, `bank.<client>` of one: the round that comes makes the former anew without it."""
    fed = world.running(["a", "b"], rounds={"total": 4, "min_updates": 1}, retention={"updates": "all"})
    kept = {name: world.forge.arrays(seed) for seed, name in enumerate(("claims", "bank.a", "bank.b"), start=50)}
    for place, name in enumerate(fed.devices):
        assert world.push(fed, name, world.update(fed, seed=place)).status_code == 201
    world.finish(world.claim(), {"main": world.forge.arrays(9)}, state=kept)
    before = len(world.files())
    told = forget(world, fed, "a").json()["deleted"]
    assert told["kept"] == 2
    assert len(world.files()) == before - 3  # with its update
    assert set(state_of(world, fed)) == {"bank.b"}


def state_of(world: World, fed: Fed) -> dict[str, str]:
    with world.store.read() as session:
        return reading.carried_state(session, fed.id)


def counts(world: World) -> dict[str, int]:
    kept = {table.__tablename__ for table in (AuditRow, EventRow, IdempotencyRow, TokenRow, DatasetRow)}
    with world.store.read() as session:
        return {
            table.name: session.scalar(select(func.count()).select_from(table)) or 0
            for table in Base.metadata.sorted_tables
            if table.name not in kept
        }


def test_a_federation_that_has_ended_is_deleted_with_all_that_is_its_own(world: World) -> None:
    empty, files = counts(world), world.files()
    fed = world.running(["a", "b"], retention={"updates": "all"})
    play(world, fed, 0)
    assert world.op("DELETE", f"/v1/federations/{fed.id}").json()["type"] == "urn:potstill:problem:invalid-transition"
    play(world, fed, 1)
    assert world.show(fed)["state"] == "finished"
    assert world.op("DELETE", f"/v1/federations/{fed.id}").status_code == 204
    assert counts(world) == empty
    assert world.files() == files
    assert world.op("GET", f"/v1/federations/{fed.id}").status_code == 404
    with world.store.read() as session:
        line = session.scalars(select(AuditRow).order_by(AuditRow.seq.desc())).first()
        assert line is not None
        assert (line.action, line.target) == ("federation.delete", fed.id)
    assert world.site.request("GET", "/v1/assignment", token=fed.devices["a"].token).status_code == 401


def test_one_whose_model_another_is_to_start_from_stays(world: World) -> None:
    fed = world.running(["a", "b"])
    model = world.show(fed)["models"]["main"]["id"]
    prototypes = [{"architecture": "mlp", "options": {"hidden": [4]}, "initial_model": model}]
    other = world.create(prototypes=prototypes)
    world.ok("POST", f"/v1/federations/{fed.id}/cancel")
    answer = world.op("DELETE", f"/v1/federations/{fed.id}")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:potstill:problem:in-use")
    world.ok("POST", f"/v1/federations/{other.id}/cancel")
    assert world.op("DELETE", f"/v1/federations/{fed.id}").status_code == 204


@pytest.mark.parametrize("path", ["federations/fed_1", "federations/fed_1/clients/cli_1?forget=true"])
def test_what_is_not_there_cannot_be_deleted(world: World, path: str) -> None:
    assert world.op("DELETE", f"/v1/{path}").status_code == 404


def test_forgetting_twice_is_forgetting_once(world: World) -> None:
    fed = world.running(["a", "b"])
    assert forget(world, fed, "a").json()["deleted"]["updates"] == 0
    assert forget(world, fed, "a").status_code == 200
    with world.store.read() as session:
        assert session.scalar(select(func.count()).select_from(ClientRow)) == 2
        assert session.scalar(select(func.count()).select_from(UpdateRow)) == 0
