"""Promotion, rollback, and retries that leave clients out: what devices get next, by an operator's word."""

from typing import Any

import numpy as np
import pytest

from service.operations.progress import jobs, reading
from service.operations.steer import publishing
from tests.service.world import Fed, World

from ...world import refused


def publish(world: World, fed: Fed, seed: int, **more: Any) -> None:
    """Let everybody answer and publish a round whose accuracy is seed / 100."""
    for number, name in enumerate(fed.devices):
        assert world.push(fed, name, world.update(fed, seed=100 * seed + number)).status_code == 201
    metrics = {"accuracy": seed / 100, "weights": {}, "model": {"prototypes": {"main": seed / 100}}}
    world.finish(world.claim(), {"main": world.forge.arrays(seed)}, metrics, **more)


def rolled(world: World, fed: Fed, **wish: int) -> Any:
    return world.op("POST", f"/v1/federations/{fed.id}/rollback", json=wish)


@pytest.fixture
def fed(world: World) -> Fed:
    """A federation in its fourth round of nine."""
    made = world.running("ab", rounds={"total": 9})
    for seed in (1, 2, 3):
        publish(world, made, seed)
    return made


# ----------------------------------------------------------------------------------------------------------- rollback
def test_back_to_a_round_and_on_from_there(world: World, fed: Fed) -> None:
    second = world.round(fed, 2)["models"]["main"]
    late = world.update(fed, seed=7)
    assert world.push(fed, "a", late).status_code == 201
    shown = rolled(world, fed, round=2).json()
    assert (shown["models"]["main"]["id"], shown["accuracy"], shown["round"]) == (second, 0.02, 4)
    round_ = world.round(fed)
    assert (round_["state"], round_["restarts"], round_["answered"]) == ("collecting", 1, 0)
    assert round_["reason"] == "restarted: rolled back to round 2"
    assert round_["base_models"]["main"] == second
    assert refused(world.push(fed, "a", late)) == (409, "stale-base-model")  # of the old base: it cannot count
    assert world.assignment(fed.devices["a"])["model"]["id"] == second
    again = rolled(world, fed, round=2)
    assert (again.status_code, world.round(fed)["restarts"]) == (200, 1)  # twice is once
    publish(world, fed, 4)
    assert world.round(fed, 4)["base_models"]["main"] == second
    assert world.round(fed, 4)["state"] == "published"
    listed = world.ok("GET", f"/v1/models?federation={fed.id}&prototype=main")["items"]
    assert [(model["round"], model["current"]) for model in listed] == [
        (0, False),
        (1, False),
        (2, False),
        (3, False),
        (4, True),
    ]


def test_rounds_back_are_counted_from_the_newest_published_one(world: World, fed: Fed) -> None:
    assert rolled(world, fed, rounds=1).json()["models"]["main"]["id"] == world.round(fed, 2)["models"]["main"]
    assert rolled(world, fed, rounds=1).json()["models"]["main"]["id"] == world.round(fed, 2)["models"]["main"]
    first = world.round(fed, 1)["base_models"]["main"]
    assert rolled(world, fed, rounds=3).json()["models"]["main"]["id"] == first
    assert rolled(world, fed, round=0).json()["models"]["main"]["id"] == first
    assert refused(rolled(world, fed, rounds=4)) == (422, "invalid-field")


@pytest.mark.parametrize("wish", [{}, {"round": 1, "rounds": 1}, {"round": -1}, {"round": 4}, {"round": 99}])
def test_rollbacks_that_cannot_be(world: World, fed: Fed, wish: dict[str, int]) -> None:
    before = world.show(fed)
    assert refused(rolled(world, fed, **wish)) == (422, "invalid-field")
    assert world.show(fed) == before


def test_not_while_a_round_is_fused_nor_before_the_first_model_nor_after_the_end(world: World, fed: Fed) -> None:
    for number, name in enumerate("ab"):
        world.push(fed, name, world.update(fed, seed=number))
    assert world.round(fed)["state"] == "aggregating"
    response = rolled(world, fed, round=1)
    assert refused(response) == (409, "invalid-transition")
    assert "being fused" in response.json()["detail"]
    first = world.round(fed, 1)["models"]["main"]
    assert refused(world.op("POST", f"/v1/models/{first}/promote")) == (409, "invalid-transition")
    assert refused(rolled(world, world.create(), round=0)) == (409, "invalid-transition")
    world.ok("POST", f"/v1/federations/{fed.id}/cancel")
    assert refused(rolled(world, fed, round=1)) == (409, "invalid-transition")
    response = world.op("POST", "/v1/federations/fed_x/rollback", json={"round": 1})
    assert refused(response) == (404, "not-found")


def test_kept_state_goes_back_with_the_models(world: World) -> None:
    fed = world.running("ab", rounds={"total": 9})
    small = {"x": np.zeros(1, np.float32)}
    publish(world, fed, 1, state={"velocity.main": small, "past.main.1": world.forge.arrays(1)})
    kept = {"velocity.main": {"x": np.ones(1, np.float32)}, "past.main.1": world.forge.arrays(1)}
    publish(world, fed, 2, state=kept | {"past.main.2": world.forge.arrays(2), "control.main": world.forge.arrays(9)})
    rolled(world, fed, round=1)
    with world.store.read() as session:
        assert set(reading.carried_state(session, fed.id)) == {"past.main.1", "control.main"}


def test_the_models_of_a_finished_federation_can_be_chosen(world: World) -> None:
    fed = world.running("a", rounds={"total": 2})
    publish(world, fed, 1)
    publish(world, fed, 2)
    assert world.show(fed)["state"] == "finished"
    best = world.round(fed, 1)["models"]["main"]
    assert rolled(world, fed, round=1).json()["state"] == "finished"
    assert world.assignment(fed.devices["a"])["model"]["id"] == best


def test_a_failed_round_of_other_models_is_not_tried_again(world: World, fed: Fed) -> None:
    for number, name in enumerate("ab"):
        world.push(fed, name, world.update(fed, seed=number))
    job = world.claim()
    with world.store.write() as session:
        publishing.give_up(session, jobs.held(session, job.id, job.fence), "non_finite", "it has NaN")
    rolled(world, fed, round=1)
    response = world.op("POST", f"/v1/jobs/{job.id}/retry")
    assert refused(response) == (409, "invalid-transition")
    assert "resume" in response.json()["detail"]
    world.ok("POST", f"/v1/federations/{fed.id}/resume")
    assert world.round(fed)["base_models"]["main"] == world.round(fed, 1)["models"]["main"]


# ----------------------------------------------------------------------------------------------------------- promotion
def test_a_model_of_the_federation_is_promoted(world: World, fed: Fed) -> None:
    first = world.round(fed, 1)["models"]["main"]
    url = f"/v1/models/{first}/promote"
    assert world.ok("POST", url)["current"] is True
    assert world.round(fed)["base_models"]["main"] == first
    assert (world.round(fed)["restarts"], world.show(fed)["accuracy"]) == (1, 0.01)
    key = {"Idempotency-Key": "once"}
    for _ in range(2):
        assert world.op("POST", url, headers=key).status_code == 200
    assert world.round(fed)["restarts"] == 1
    assert refused(world.op("POST", url, json={"prototype": "other"})) == (422, "invalid-field")
    assert refused(world.op("POST", url, json={"federation": "fed_x"})) == (422, "invalid-field")


def test_an_imported_model_is_promoted_if_it_fits(world: World, fed: Fed) -> None:
    arrays = world.forge.arrays(77)
    imported = world.ok("POST", "/v1/models", body=world.forge.pack(arrays))
    url = f"/v1/models/{imported['id']}/promote"
    assert refused(world.op("POST", url)) == (422, "invalid-field")
    assert refused(world.op("POST", url, json={"federation": "fed_x"})) == (404, "not-found")
    wish = {"federation": fed.id}
    made = world.ok("POST", url, json=wish)
    assert (made["role"], made["digest"], made["federation_id"]) == ("imported", imported["digest"], fed.id)
    assert world.assignment(fed.devices["a"])["model"]["id"] == made["id"]
    weights = world.site.request("GET", f"/v1/models/{made['id']}/weights", token=fed.devices["a"].token)
    assert weights.status_code == 200
    assert world.ok("POST", url, json=wish)["id"] == made["id"]
    publish(world, fed, 5)
    other = world.ok("POST", "/v1/models", body=world.forge.pack({"w": np.ones((2, 3), np.float32)}))
    response = world.op("POST", f"/v1/models/{other['id']}/promote", json=wish)
    assert refused(response) == (422, "invalid-tensors")
    assert world.show(fed)["models"]["main"]["digest"] != other["digest"]


def test_what_is_no_model_of_devices_cannot_be_promoted(world: World) -> None:
    fed = world.collecting("ab")
    items = world.ok("GET", f"/v1/models?federation={fed.id}")["items"]
    generator = next(item["id"] for item in items if item["role"] == "generator")
    assert refused(world.op("POST", f"/v1/models/{generator}/promote")) == (422, "invalid-field")
    assert refused(world.op("POST", "/v1/models/mdl_x/promote")) == (404, "not-found")


# --------------------------------------------------------------------------------------------- retries without someone
def failed(world: World, names: str, **rounds: Any) -> tuple[Any, str]:
    fed = world.running(names, rounds={"total": 9, **rounds})
    for number, name in enumerate(names):
        world.push(fed, name, world.update(fed, seed=number))
    job = world.claim()
    with world.store.write() as session:
        publishing.give_up(session, jobs.held(session, job.id, job.fence), "non_finite", "update of 'b': NaN")
    return fed, f"/v1/jobs/{job.id}/retry"


def test_a_retry_can_leave_clients_out(world: World) -> None:
    fed, url = failed(world, "abc")
    unknown = world.op("POST", url, json={"exclude": ["nobody"]})
    assert refused(unknown) == (422, "invalid-field")
    assert unknown.json()["field"] == "exclude"
    assert world.round(fed)["state"] == "failed"
    assert world.ok("POST", url, json={"exclude": ["b", fed.devices["c"].id]})["state"] == "queued"
    assert world.show(fed)["state"] == "running"
    world.finish(world.claim(), {"main": world.forge.arrays(5)}, {"weights": {"a": 1.0}})
    round_ = world.round(fed, 1)
    assert [p["state"] for p in round_["participants"]] == ["answered", "excluded", "excluded"]
    assert round_["participants"][1]["excluded"] == "left out by an operator"
    assert [p["weight"] for p in round_["participants"]] == [1.0, None, None]
    assert set(round_["metrics"]["excluded"]) == {"b", "c"}
    model = world.ok("GET", f"/v1/models/{round_['models']['main']}")
    assert model["parents"][1:] == [round_["participants"][0]["digest"]]
    assert not any(world.blobs.cache.path(p["digest"]).exists() for p in round_["participants"])


def test_a_retry_leaves_enough_updates(world: World) -> None:
    fed, url = failed(world, "ab", min_updates=2)
    assert refused(world.op("POST", url, json={"exclude": ["a", "b"], "force": True})) == (409, "too-few-updates")
    response = world.op("POST", url, json={"exclude": ["b"]})
    assert refused(response) == (409, "too-few-updates")
    assert (response.json()["answered"], response.json()["min_updates"]) == (1, 2)
    assert world.round(fed)["state"] == "failed"
    assert world.ok("POST", url, json={"exclude": ["b"], "force": True})["state"] == "queued"
