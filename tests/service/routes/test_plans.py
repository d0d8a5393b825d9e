"""The plan of a federation that runs is changed: the next round has it, and an open one keeps its own."""

import re
from typing import Any

import pytest

from contract.local import LocalChanges
from contract.optimizers import Sgd
from contract.wire.changes import PlanChange, RoundsChanges
from service.operations.progress import reading
from service.persistence.tables import RoundRow
from tests.service.world import Device, Fed, World

from ..world import refused


def change(world: World, fed: Fed, **body: Any) -> Any:
    return world.op("PATCH", f"/v1/federations/{fed.id}/plan", json=body)


def told(world: World, device: Device) -> tuple[int, int, int]:
    """Return the epochs, the batch size and the number of rounds that a device is told."""
    found = world.assignment(device)
    return found["local"]["epochs"], found["local"]["batch_size"], found["round"]["total"]


def to_the_next_round(world: World, fed: Fed) -> None:
    for name in fed.devices:
        assert world.push(fed, name).is_success
    world.finish(world.claim(), {"main": world.forge.arrays(5)})


def test_an_open_round_keeps_its_plan_and_the_next_one_has_the_new(world: World) -> None:
    fed = world.running(local={"epochs": 7})
    before = world.show(fed)
    rounds = {"total": 5, "deadline_seconds": 77}
    shown = change(world, fed, local={"epochs": 2}, rounds=rounds, prototypes={"main": {"batch_size": 4}})
    assert shown.status_code == 200, shown.text
    assert (shown.json()["local"]["epochs"], shown.json()["rounds_total"]) == (2, 5)
    assert shown.json()["prototypes"][0]["local"] == {"batch_size": 4} | shown.json()["prototypes"][0]["local"]
    device = fed.devices["a"]
    assert told(world, device) == (7, 32, 2)
    first = world.round(fed)
    assert first["plan"]["local"]["epochs"] == 7
    assert first["plan"]["rounds"] == before["rounds"]
    to_the_next_round(world, fed)
    second = world.round(fed)
    assert second["index"] == 2
    assert told(world, device) == (2, 4, 5)
    assert second["plan"]["local"]["epochs"] == 2
    assert second["plan"]["rounds"]["deadline_seconds"] == 77
    assert world.round(fed, 1)["plan"] == first["plan"]


def test_the_job_of_a_round_is_told_the_rounds_own_plan(world: World) -> None:
    fed = world.running(local={"epochs": 7}, rounds={"total": 4})
    assert change(world, fed, local={"epochs": 2}, rounds={"total": 9}).is_success
    with world.store.read() as session:
        row = session.query(RoundRow).filter_by(federation_id=fed.id).one()
        config = reading.config_for(session, row)
    assert (config.local.epochs, config.rounds.total) == (7, 4)


def test_a_change_is_an_event_and_a_line_of_the_log_once(world: World) -> None:
    fed = world.running()
    for _ in "12":
        assert change(world, fed, local={"epochs": 2}).is_success
    kinds = [each["kind"] for each in world.ok("GET", f"/v1/federations/{fed.id}/events?format=json")["items"]]
    assert kinds.count("federation.plan") == 1
    lines = world.ok("GET", "/v1/audit?action=federation.plan")["items"]
    assert [(line["target"], line["detail"]["local.epochs"]) for line in lines] == [(fed.id, 2)]
    assert change(world, fed, local={"epochs": 3}).is_success
    assert world.round(fed)["plan"]["local"]["epochs"] == 5, "it keeps the first one, not the one in between"


def test_a_total_that_is_reached_ends_the_federation_with_the_round_that_is_open(world: World) -> None:
    fed = world.running(rounds={"total": 5})
    assert change(world, fed, rounds={"total": 1}).is_success
    to_the_next_round(world, fed)
    assert world.show(fed)["state"] == "finished"
    assert refused(change(world, fed, rounds={"total": 9})) == (409, "invalid-transition")


def test_fewer_clients_let_a_waiting_federation_go_on_at_once(world: World) -> None:
    fed = world.create(rounds={"total": 2, "clients_per_round": 2, "min_updates": 2})
    world.enrol(fed, "a")
    world.ok("POST", f"/v1/federations/{fed.id}/start")
    world.finish(world.claim(), {"main": world.forge.arrays()})
    assert world.show(fed)["round"] == 0
    assert change(world, fed, rounds={"clients_per_round": 1, "min_updates": 1}).is_success
    assert world.show(fed)["round"] == 1


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "name what changes"),
        ({"recipe": {"name": "fedprox"}}, "recipe: it cannot be changed: .*create another federation"),
        ({"local": {"objective": {"kind": "moon"}}}, "local.objective: it cannot be changed"),
        ({"local": {"privacy": None}}, "local.privacy: it cannot be changed: what devices were promised"),
        ({"rounds": {"gate": None}}, "rounds.gate: it cannot be changed"),
        ({"rounds": {"secure": True}}, "rounds.secure: it cannot be changed"),
        ({"prototypes": {"main": {"architecture": "mlp"}}}, "prototypes.main.architecture: it cannot be changed"),
        ({"prototypes": {"other": {"epochs": 1}}}, "there is no prototype 'other'; there are main"),
        ({"rounds": {"min_updates": 3}}, "min_updates: more than clients_per_round can deliver"),
        ({"schedule": {"epochs": 1}}, "distils nothing"),
        ({"local": {"partial_work": {"least": 9}}}, "9 epochs at least, of 5"),
        ({"local": {"epochs": 0}}, "epochs"),
        ({"local": {"nonsense": 1}}, "nonsense|not permitted"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason_and_changes_nothing(
    world: World, body: dict[str, Any], said: str
) -> None:
    fed = world.running(rounds={"clients_per_round": 2})
    before = world.show(fed)
    response = world.op("PATCH", f"/v1/federations/{fed.id}/plan", json=body)
    assert refused(response) == (422, "invalid-field")
    assert re.search(said, response.text), response.text
    assert world.show(fed) == before


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"rounds": {"gate": None, "total": 9}}, "rounds.gate"),
        ({"prototypes": {"Main-2": {"architecture": "mlp"}}}, "prototypes.Main-2.architecture"),
        ({"seed": 3}, "seed"),
    ],
)
def test_what_cannot_be_changed_is_named_by_its_own_path(world: World, body: dict[str, Any], field: str) -> None:
    response = change(world, world.create(), **body)
    assert (refused(response), response.json()["field"]) == ((422, "invalid-field"), field)
    assert [error["field"] for error in response.json()["errors"]] == [field]


def test_a_total_below_the_newest_round_is_refused(world: World) -> None:
    fed = world.running(rounds={"total": 3})
    to_the_next_round(world, fed)
    assert world.round(fed)["index"] == 2
    response = change(world, fed, rounds={"total": 1})
    assert (refused(response), response.json()["field"]) == ((422, "invalid-field"), "rounds.total")


def test_a_schedule_gives_steps_for_epochs(world: World) -> None:
    recipe = {"name": "feddf", "options": {"schedule": {"epochs": 4}}}
    fed = world.running(recipe=recipe, datasets={"unlabeled": world.dataset()["id"]})
    shown = change(world, fed, schedule={"steps": 9, "lr": 0.5}).json()
    schedule = shown["composition"]["distil"]["schedule"]
    assert (schedule["epochs"], schedule["steps"], schedule["optimizer"]["lr"]) == (None, 9, 0.5)
    assert schedule["optimizer"]["kind"] == "adam"
    assert world.round(fed)["plan"]["schedule"]["epochs"] == 4


def test_the_grace_of_an_open_round_is_its_own(world: World) -> None:
    fed = world.running(rounds={"late": "grace", "grace_seconds": 60})
    url = f"/v1/rounds/{world.round(fed)['id']}/heartbeat"
    beat = world.site.request("POST", url, token=fed.devices["a"].token, json={}).json()
    assert change(world, fed, rounds={"grace_seconds": 900, "heartbeat_seconds": 5}).is_success
    again = world.site.request("POST", url, token=fed.devices["a"].token, json={}).json()
    assert again["closes_at"] == beat["closes_at"]
    assert again["heartbeat_seconds"] == beat["heartbeat_seconds"]


def test_null_gives_an_option_its_default_again(world: World) -> None:
    local = {"epochs": 7, "clip_norm": 2.0, "rate_over_rounds": {"kind": "cosine"}}
    rounds = {"total": 5, "clients_per_round": 2, "target_accuracy": 0.9, "job_seconds": 9, "deadline_seconds": 77}
    fed = world.running(local=local, rounds=rounds)
    nulls = {"clients_per_round": None, "target_accuracy": None, "job_seconds": None, "deadline_seconds": None}
    shown = change(world, fed, local={"clip_norm": None, "rate_over_rounds": None, "epochs": None}, rounds=nulls).json()
    found = shown["rounds"]
    assert [found[name] for name in nulls] == [None, None, None, 3600]
    assert found["total"] == 5, "what is left out stays"
    assert (shown["local"]["clip_norm"], shown["local"].get("rate_over_rounds"), shown["local"]["epochs"]) == (
        None,
        None,
        1,
    )
    (line,) = world.ok("GET", "/v1/audit?action=federation.plan")["items"]
    assert line["detail"]["rounds.target_accuracy"] == "default"
    assert change(world, fed, rounds={"job_seconds": 60}).json()["rounds"]["job_seconds"] == 60


def test_null_ends_what_a_prototypes_clients_do_otherwise(world: World) -> None:
    fed = world.running()
    assert change(world, fed, prototypes={"main": {"epochs": 3, "batch_size": 4}}).is_success
    shown = change(world, fed, prototypes={"main": {"epochs": None}}).json()["prototypes"][0]["local"]
    assert (shown["epochs"], shown["batch_size"]) == (None, 4)
    assert change(world, fed, prototypes={"main": None}).json()["prototypes"][0].get("local") is None
    again = change(world, fed, prototypes={"main": {"epochs": 3}}).json()
    assert again["prototypes"][0]["local"]["epochs"] == 3
    assert change(world, fed, prototypes={"main": {"epochs": None}}).json()["prototypes"][0].get("local") is None


def test_a_schedule_goes_back_to_its_rate_and_keeps_a_length(world: World) -> None:
    recipe = {"name": "feddf", "options": {"schedule": {"epochs": 4}}}
    fed = world.running(recipe=recipe, datasets={"unlabeled": world.dataset()["id"]})
    assert change(world, fed, schedule={"lr": 0.5, "batch_size": 3}).is_success
    schedule = change(world, fed, schedule={"lr": None, "batch_size": None}).json()["composition"]["distil"]["schedule"]
    assert (schedule["optimizer"]["lr"], schedule["batch_size"], schedule["epochs"]) == (0.001, 64, 4)
    response = change(world, fed, schedule={"epochs": None})
    assert (refused(response), response.json()["field"]) == ((422, "invalid-field"), "schedule")
    schedule = change(world, fed, schedule={"epochs": None, "steps": 9}).json()["composition"]["distil"]["schedule"]
    assert (schedule["epochs"], schedule["steps"]) == (None, 9)


def test_a_default_that_cannot_be_is_refused(world: World) -> None:
    fed = world.running(rounds={"total": 20, "clients_per_round": 2, "min_updates": 1})
    assert change(world, fed, rounds={"min_updates": 2}).is_success
    response = change(world, fed, rounds={"clients_per_round": 1, "min_updates": None})
    assert response.status_code == 200 and response.json()["rounds"]["min_updates"] == 1
    assert change(world, fed, rounds={"total": None}).json()["rounds"]["total"] == 10


def test_a_change_in_python_says_what_was_named_and_no_more() -> None:
    made = PlanChange(local=LocalChanges(optimizer=Sgd(lr=0.2)), rounds=RoundsChanges(target_accuracy=None))
    told = made.told()
    assert told["local"] == {"optimizer": Sgd(lr=0.2).model_dump(mode="json")}
    assert told["rounds"] == {"target_accuracy": None}
    assert set(told) == {"local", "rounds"}
