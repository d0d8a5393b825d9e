"""Updates that count, that come twice, too late, from the wrong device or from the wrong model."""

import base64
import hashlib
from concurrent.futures import wait
from datetime import timedelta
from typing import Any

import httpx
import pytest

from contract.local import LocalPlan
from contract.rates import PartialWork
from contract.wire.problems import TYPE_PREFIX
from service.operations.fleet import updates
from service.operations.ledger import clock
from service.operations.steer import control
from tests.service.conftest import Move
from tests.service.world import World

CLOCKS = (
    "fleet.updates",
    "progress.jobs",
    "progress.lifecycle",
    "steer.fusion",
    "upkeep.sweep",
    "progress.deadlines",
)


def kind(response: httpx.Response) -> str:
    return str(response.json()["type"]).removeprefix(TYPE_PREFIX)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Move:
    """Move the service's clock forward."""

    def move(seconds: float) -> None:
        moment = clock.now() + timedelta(seconds=seconds)
        for module in CLOCKS:
            monkeypatch.setattr(f"service.operations.{module}.now", lambda: moment)

    return move


def test_an_update_is_stored_and_counts(world: World) -> None:
    fed = world.running(["a", "b"])
    body = world.update(fed, num_samples="7", metrics='{"loss": 0.5, "accuracy": 0.75, "steps": 3, "seconds": 1.5}')
    digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
    response = world.push(fed, "a", body, headers={"Content-Digest": f"sha-256=:{digest}:"})
    assert response.status_code == 201, response.text
    receipt = response.json()
    assert receipt["digest"] == f"sha256-{hashlib.sha256(body).hexdigest()}"
    assert (receipt["size"], receipt["num_samples"], receipt["round"]) == (len(body), 7, 1)
    assert world.blobs.cache.path(receipt["digest"]).read_bytes() == body
    round_ = world.round(fed)
    assert (round_["asked"], round_["answered"], round_["state"]) == (2, 1, "collecting")
    first = round_["participants"][0]
    assert (first["name"], first["num_samples"], first["metrics"]["loss"]) == ("a", 7, 0.5)
    assert first["answered_at"] == receipt["received_at"]


def test_chunks_of_any_size_without_a_length_are_taken(world: World) -> None:
    fed = world.running(["a", "b"])
    body = world.update(fed)
    for name, size in (("a", 1), ("b", 333)):
        response = world.push(fed, name, [body[i : i + size] for i in range(0, len(body), size)])
        assert response.status_code == 201, response.text


def test_the_last_update_makes_a_job_in_the_same_transaction(world: World) -> None:
    fed = world.running(["a", "b"])
    world.push(fed, "a")
    assert world.round(fed)["job_id"] is None
    world.push(fed, "b", world.update(fed, seed=2))
    round_ = world.round(fed)
    assert round_["state"] == "aggregating"
    job = world.ok("GET", f"/v1/jobs/{round_['job_id']}")
    assert (job["kind"], job["state"], job["round_id"]) == ("round", "queued", round_["id"])


def test_the_same_bytes_again_get_the_same_receipt(world: World) -> None:
    fed = world.running(["a", "b"])
    body = world.update(fed)
    first, again = world.push(fed, "a", body), world.push(fed, "a", body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert world.updates() == 1
    assert [name for name in world.files() if name.startswith("tmp")] == []


def test_the_same_bytes_again_get_their_receipt_after_the_round_is_over(world: World) -> None:
    fed = world.running(["a"])
    url = f"/v1/rounds/{world.round(fed)['id']}/update"
    body = world.update(fed)
    assert world.push(fed, "a", body, url=url).status_code == 201
    world.finish(world.claim(), {"main": world.forge.arrays(5)})
    again = world.push(fed, "a", body, url=url)
    assert again.status_code == 200
    assert again.json()["round"] == 1


def test_other_bytes_are_refused_and_the_first_count(world: World) -> None:
    fed = world.running(["a", "b"])
    kept = world.push(fed, "a").json()["digest"]
    before = world.files()
    response = world.push(fed, "a", world.update(fed, seed=9))
    assert (response.status_code, kind(response)) == (409, "already-delivered")
    assert response.json()["expected"] == kept
    assert (world.updates(), world.files()) == (1, before)
    assert world.round(fed)["answered"] == 1


def test_two_devices_may_send_the_same_bytes(world: World) -> None:
    fed = world.running(["a", "b"])
    body = world.update(fed)
    receipts = [world.push(fed, name, body).json() for name in "ab"]
    assert receipts[0]["digest"] == receipts[1]["digest"]
    assert receipts[0]["id"] != receipts[1]["id"]
    assert world.round(fed)["answered"] == 2


def test_after_the_deadline_an_update_is_late(world: World, later: Move) -> None:
    fed = world.running(["a", "b"], rounds={"deadline_seconds": 60})
    body, before = world.update(fed), world.files()
    later(61)
    response = world.push(fed, "a", body)
    assert (response.status_code, kind(response)) == (409, "round-closed")
    problem = response.json()
    assert "deadline" in problem["detail"]
    assert problem["current_round"] == 1
    assert (world.updates(), world.files()) == (0, before)


def test_an_update_of_a_round_that_is_over_is_told_the_present_one(world: World) -> None:
    fed = world.running(["a", "b"], rounds={"min_updates": 1})
    old = world.round(fed)
    body = world.update(fed)
    world.push(fed, "a", body)
    world.ok("POST", f"/v1/rounds/{old['id']}/close")
    late = world.push(fed, "b", body, url=f"/v1/rounds/{old['id']}/update")
    assert (late.status_code, kind(late), late.json()["state"]) == (409, "round-closed", "aggregating")
    world.finish(world.claim(), {"main": world.forge.arrays(5)})
    before = world.files()
    late = world.push(fed, "b", body, url=f"/v1/rounds/{old['id']}/update")
    assert (late.status_code, kind(late)) == (409, "round-closed")
    assert late.json()["current_round"] == 2
    assert late.json()["current_round_id"] == world.round(fed)["id"]
    stale = world.push(fed, "b", body)
    assert (stale.status_code, kind(stale)) == (409, "stale-base-model")
    assert (world.updates(), world.files()) == (1, before)


def test_a_round_that_closes_while_a_body_arrives_does_not_take_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = world.running(["a", "b"])
    round_ = world.round(fed)
    world.push(fed, "a")
    body, before = world.update(fed, seed=3), world.files()

    admit = updates.admit

    def admit_and_close(*args: Any) -> Any:
        ticket = admit(*args)
        with world.store.write() as session:
            control.close_round(session, round_["id"], True)
        return ticket

    monkeypatch.setattr(updates, "admit", admit_and_close)
    response = world.push(fed, "b", [body[:40], body[40:]], url=f"/v1/rounds/{round_['id']}/update")
    assert (response.status_code, kind(response)) == (409, "round-closed")
    assert (world.updates(), world.files()) == (1, before)


@pytest.mark.parametrize("state", ["paused", "cancelled"])
def test_a_paused_federation_takes_updates_and_a_cancelled_one_does_not(world: World, state: str) -> None:
    fed = world.running(["a", "b"])
    body = world.update(fed)
    world.ok("POST", f"/v1/federations/{fed.id}/{'pause' if state == 'paused' else 'cancel'}")
    response = world.push(fed, "a", body)
    assert response.status_code == (201 if state == "paused" else 409), response.text


def test_tokens_that_may_not_send_here(world: World) -> None:
    fed, other = world.running(["a", "b"]), world.running(["a"])
    url, body, before = f"/v1/rounds/{world.round(fed)['id']}/update", world.update(fed), world.files()
    world.ok("DELETE", f"/v1/federations/{fed.id}/clients/{fed.devices['b'].id}")
    viewer = world.ok("POST", "/v1/tokens", json={"name": "v", "role": "viewer"})["token"]
    expected = {
        None: (401, "unauthorized"),
        "nonsense": (401, "unauthorized"),
        "pst_dev_" + "A" * 43: (401, "unauthorized"),
        fed.devices["b"].token: (401, "unauthorized"),
        other.devices["a"].token: (403, "forbidden"),
        fed.join_token: (403, "forbidden"),
        viewer: (403, "forbidden"),
        world.operator: (403, "forbidden"),
    }
    for token, (status, named) in expected.items():
        response = world.site.request("PUT", url, token=token, body=body)
        assert (response.status_code, kind(response)) == (status, named), token
        assert token is None or token not in response.text
        if status == 401:
            assert response.headers["www-authenticate"] == "Bearer"
    assert (world.updates(), world.files()) == (0, before)


def test_a_device_that_was_not_asked_is_refused(world: World) -> None:
    fed = world.running(["a", "b", "c"], rounds={"clients_per_round": 1})
    asked = {p["name"] for p in world.round(fed)["participants"]}
    assert len(asked) == 1
    outsider = ({"a", "b", "c"} - asked).pop()
    response = world.push(fed, outsider)
    assert (response.status_code, kind(response)) == (409, "not-selected")


@pytest.mark.parametrize("name", ["rnd_unknown", "..%2f..%2fx", "%00", "C:%5Cx", "a%00b"])
def test_names_used_as_paths_find_nothing(world: World, name: str) -> None:
    fed = world.running(["a"])
    before = world.files()
    response = world.push(fed, "a", url=f"/v1/rounds/{name}/update")
    assert response.status_code == 404
    assert world.files() == before


def test_fifty_uploads_at_once_all_count(world: World) -> None:
    names = [f"c{i:02}" for i in range(50)]
    fed = world.running(names)
    url = f"/v1/rounds/{world.round(fed)['id']}/update"
    bodies = {name: world.update(fed, seed=i) for i, name in enumerate(names)}
    begun = [
        world.site.begin("PUT", url, token=fed.devices[name].token, body=bodies[name]) for name in names for _ in "12"
    ]
    assert not wait(begun, timeout=60).not_done
    codes = sorted(future.result().status_code for future in begun)
    assert codes == [200] * 50 + [201] * 50
    round_ = world.round(fed)
    assert (round_["answered"], round_["state"]) == (50, "aggregating")
    assert world.ok("GET", "/v1/jobs?state=queued")["items"][0]["id"] == round_["job_id"]
    assert len(world.ok("GET", "/v1/jobs?state=queued")["items"]) == 1
    assert [name for name in world.files() if name.startswith("tmp")] == []


def test_a_device_is_told_what_it_does_in_this_round(world: World) -> None:
    """Its prototype's plan, the rate of the round and epochs of its own; nothing that an older device does not know."""
    local = {"epochs": 20, "partial_work": {}, "rate_over_rounds": {"kind": "exponential", "factor": 0.5}}
    prototypes = [
        {"name": "main", "architecture": "mlp", "options": {"hidden": [4]}, "local": {"optimizer": {"kind": "adam"}}}
    ]
    fed = world.running(local=local, prototypes=prototypes, seed=3)
    wanted = LocalPlan.model_validate(local | {"optimizer": {"kind": "adam"}})
    told = {name: world.assignment(device) for name, device in fed.devices.items()}
    for name, assignment in told.items():
        epochs = PartialWork().draw(20, 3, 1, name)
        assert assignment["local"]["epochs"] == epochs
        assert LocalPlan.model_validate(assignment["local"]) == wanted.in_round(3, 1, 2, name)
        assert "rate_over_rounds" not in assignment["local"]
        assert "local" not in assignment["prototype"]
    assert told["a"]["local"]["epochs"] != told["b"]["local"]["epochs"]


def test_a_prototypes_plan_that_does_not_go_with_the_objective_is_refused_at_creation(world: World) -> None:
    prototypes = [{"architecture": "mlp", "options": {"hidden": [4]}, "local": {"optimizer": {"kind": "adam"}}}]
    response = world.op("POST", "/v1/federations", json=world.body(recipe={"name": "scaffold"}, prototypes=prototypes))
    assert (kind(response), response.json()["field"]) == ("invalid-field", "prototypes.0.local.objective")
    assert "plain SGD" in response.json()["detail"]
