"""FedSDD's overlap (App. A.6): groups that start a round while the main model of the one before is distilled."""

from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from contract.tensors import write_file
from contract.wire.problems import TYPE_PREFIX
from service.operations import clock, federations, hearing, jobs, lifecycle, overlap, publishing, sweep, updates
from service.operations.jobs import LostLease
from service.operations.release import collect
from service.persistence.tables import JobRow, RoundRow
from worker.ledger import Claimed, Ledger
from worker.specs import Handover, JobFailure

NAMES = ["a", "b", "c", "d"]


@pytest.fixture
def move(monkeypatch: pytest.MonkeyPatch) -> Any:
    def forward(seconds: float) -> None:
        moment = clock.now() + timedelta(seconds=seconds)
        for module in (jobs, sweep, federations, hearing, lifecycle, publishing, updates):
            monkeypatch.setattr(module, "now", lambda: moment)

    return forward


def sweep_now(world: Any) -> None:
    sweep.sweep(world.store, world.settings.max_attempts)


def start(world: Any, groups: dict[str, Any] | None = None, names: list[str] = NAMES, **changes: Any) -> Any:
    """Return a FedSDD federation whose first round collects; its models are `main` and `main~1` of each prototype."""
    recipe = {"name": "fedsdd", "options": {"groups": {"count": 2, **(groups or {})}, "schedule": {"steps": 1}}}
    rounds = {"total": 3, "min_clients": len(names), **changes.pop("rounds", {})}
    fed = world.create(recipe=recipe, rounds=rounds, datasets={"unlabeled": world.dataset()["id"]}, **changes)
    for name in names:
        world.enrol(fed, name)
    world.ok("POST", f"/v1/federations/{fed.id}/start")
    made = [
        name for each in changes.get("prototypes", [{"name": "main"}]) for name in (each["name"], each["name"] + "~1")
    ]
    world.finish(world.claim(), {name: world.forge.arrays(40 + number) for number, name in enumerate(made)})
    return fed


def groups_of(world: Any, fed: Any, index: int = 0) -> dict[str, list[str]]:
    """Return model -> names of those who train it in a round, the newest by default."""
    found: dict[str, list[str]] = {"main": [], "main~1": []}
    for person in world.round(fed, index)["participants"]:
        found.setdefault(person["prototype"], []).append(person["name"])
    return found


def answer(world: Any, fed: Any, name: str, seed: int = 1) -> Any:
    """Deliver what the client's assignment asks for."""
    task = world.assignment(fed.devices[name])
    assert task["action"] == "train", task.get("reason")
    body = world.forge.pack(world.forge.arrays(seed), {"num_samples": "10", "base_model": task["model"]["id"]})
    response = world.push(fed, name, body, url=task["upload_url"])
    assert response.status_code == 201, response.text
    return response.json()


def everybody(world: Any, fed: Any) -> list[str]:
    """Have all clients of the newest round answer; return the digests of what they sent."""
    index = world.round(fed)["index"]
    asked = [person["name"] for person in world.round(fed)["participants"]]
    return [answer(world, fed, name, 100 * index + number)["digest"] for number, name in enumerate(asked)]


def hand_over(world: Any, job: JobRow, files: dict[str, int]) -> None:
    """Do what the worker does once a round is averaged; files are given by their seed."""
    stored = {name: world._stored(world.forge.arrays(seed)) for name, seed in files.items()}
    with world.store.write() as session:
        made = publishing.Outcome(stored)
        overlap.publish_groups(session, job.id, job.fence, made, world.settings.max_attempts)


def end(world: Any, job: JobRow, files: dict[str, int], **figures: Any) -> None:
    """Publish a round's result."""
    world.finish(job, {name: world.forge.arrays(seed) for name, seed in files.items()}, figures)


def ahead(world: Any, **changes: Any) -> tuple[Any, JobRow]:
    """Return a federation whose round 1 distils while round 2 is open for the group `main~1`, and the job."""
    fed = start(world, **changes)
    everybody(world, fed)
    job = world.claim()
    hand_over(world, job, {"main~1": 51})
    return fed, job


def states(world: Any, fed: Any) -> list[str]:
    return [each["state"] for each in world.ok("GET", f"/v1/federations/{fed.id}/rounds")["items"]]


def fail(world: Any, job: JobRow) -> None:
    with world.store.write() as session:
        publishing.give_up(session, jobs.held(session, job.id, job.fence), "non_finite", "teacher 'a'")


def refused(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["type"].removeprefix(TYPE_PREFIX)


# -------------------------------------------------------------------------------------------------------- two rounds
def test_the_other_group_trains_while_the_main_model_is_distilled(world: Any) -> None:
    fed, job = ahead(world)
    first, second = world.round(fed, 1), world.round(fed, 2)
    assert [first["state"], second["state"]] == ["aggregating", "collecting"]
    assert (first["published_at"], second["waits_for"]) == (None, first["id"])
    assert first["groups_published_at"] <= second["opened_at"]
    assert list(first["models"]) == ["main~1"]
    assert second["base_models"] == first["models"]
    told = world.ok("GET", f"/v1/federations/{fed.id}/events?format=json&after=0&limit=200")["items"]
    kinds = [
        (each["kind"], each["data"].get("round")) for each in told if each["kind"].startswith(("round.", "model."))
    ]
    assert kinds[-4:] == [
        ("round.closed", 1), ("model.published", 1), ("round.groups_published", 1), ("round.opened", 2),
    ]  # fmt: skip
    shown = world.show(fed)
    assert (shown["round"], shown["current_round"]) == (2, second["id"])
    assert shown["models"]["main~1"]["id"] == first["models"]["main~1"]
    assert shown["models"]["main"]["id"] == first["base_models"]["main"]
    groups = groups_of(world, fed)
    for name in groups["main"]:
        told = world.assignment(fed.devices[name])
        assert (told["action"], told["reason"]) == (
            "wait", "this client trains 'main' next, which round 1 still makes",
        )  # fmt: skip
    for name in groups["main~1"]:
        assert world.assignment(fed.devices[name])["round"]["index"] == 2
        answer(world, fed, name)
    assert states(world, fed) == ["aggregating", "collecting"]

    end(world, job, {"main": 50, "main~1": 51}, accuracy=0.5, model={"prototypes": {"main": 0.5, "main~1": 0.4}})
    first, second = world.round(fed, 1), world.round(fed, 2)
    assert (first["state"], second["state"], second["waits_for"]) == ("published", "collecting", None)
    assert second["base_models"] == first["models"]
    assert second["base_models"].keys() == {"main", "main~1"}
    for name, accuracy in (("main", 0.5), ("main~1", 0.4)):
        model = world.ok("GET", f"/v1/models/{first['models'][name]}")
        assert (model["current"], model["round"], model["metrics"]) == (True, 1, {"accuracy": accuracy})
        assert model["recipe"]["name"] == "fedsdd"
        assert len(model["parents"]) == 1 + len(NAMES)
    for name in groups["main"]:
        answer(world, fed, name)
    assert states(world, fed) == ["published", "aggregating"]


def test_everybody_is_drawn_once_as_in_order(world: Any) -> None:
    """Membership of round 2 is what it would have been, and does not change when the main model comes."""
    fed, job = ahead(world)
    before = groups_of(world, fed)
    end(world, job, {"main": 50, "main~1": 51})
    assert groups_of(world, fed) == before
    plain = start(world, groups={"overlap": False})
    everybody(world, plain)
    end(world, world.claim(), {"main": 50, "main~1": 51})
    assert groups_of(world, plain, 2) == before


def test_to_the_end(world: Any) -> None:
    fed = start(world)
    for index in (1, 2, 3):
        everybody(world, fed) if index == 1 else [answer(world, fed, name) for name in groups_of(world, fed)["main"]]
        job = world.claim()
        hand_over(world, job, {"main~1": 50 + index})
        assert len(states(world, fed)) == min(index + 1, 3)
        if index < 3:
            for name in groups_of(world, fed)["main~1"]:
                answer(world, fed, name, 60 + index)
        end(world, job, {"main": 70 + index, "main~1": 50 + index})
    assert states(world, fed) == ["published"] * 3
    assert (world.show(fed)["state"], world.show(fed)["round"]) == ("finished", 3)
    made = [m for m in world.ok("GET", f"/v1/models?federation={fed.id}&limit=100")["items"] if m["role"] == "global"]
    assert sorted((m["round"], m["prototype"]) for m in made) == [(i, n) for i in (1, 2, 3) for n in ("main", "main~1")]
    assert [m["prototype"] for m in made if m["current"]] == ["main~1", "main"]


def test_without_the_option_rounds_run_in_order(world: Any) -> None:
    fed = start(world, groups={"overlap": False})
    assert world.show(fed)["composition"]["groups"]["overlap"] is False
    everybody(world, fed)
    end(world, world.claim(), {"main": 50, "main~1": 51})
    first, second = world.round(fed, 1), world.round(fed, 2)
    assert (first["groups_published_at"], second["waits_for"]) == (None, None)
    assert second["opened_at"] >= first["published_at"]


def test_groups_nobody_trained_in_go_ahead_with_the_model_they_have(world: Any) -> None:
    """With one client and two groups the second is empty: its model stays, and there is nothing to hand over."""
    fed = start(world, names=["a"], rounds={"clients_per_round": 0.2})
    everybody(world, fed)
    job = world.claim()
    hand_over(world, job, {})
    first, second = world.round(fed, 1), world.round(fed, 2)
    assert (first["models"], second["base_models"]) == ({}, {"main~1": first["base_models"]["main~1"]})
    end(world, job, {"main": 50})
    assert world.round(fed, 2)["base_models"] == {
        **second["base_models"],
        "main": world.round(fed, 1)["models"]["main"],
    }


def test_each_prototype_has_a_main_model_of_its_own(world: Any) -> None:
    prototypes = [{"name": name, "architecture": "mlp", "options": {"hidden": [4]}} for name in ("main", "wide")]
    fed = start(world, names=[], rounds={"min_clients": 4}, prototypes=prototypes)
    for name in NAMES:
        world.enrol(fed, name, prototype="main" if name in "ab" else "wide")
    everybody(world, fed)
    job = world.claim()
    hand_over(world, job, {"main~1": 51, "wide~1": 52})
    assert world.round(fed)["base_models"].keys() == {"main~1", "wide~1"}
    groups = groups_of(world, fed)
    for name, members in groups.items():
        assert len(members) == 1
        assert (world.assignment(fed.devices[members[0]])["action"] == "train") is ("~" in name)
    end(world, job, {"main": 53, "wide": 54, "main~1": 51, "wide~1": 52})
    assert world.round(fed)["base_models"] == world.round(fed, 1)["models"]
    assert world.round(fed)["base_models"].keys() == groups.keys()


# ------------------------------------------------------------------------------------------------- doors that stay shut
def test_a_round_that_waits_cannot_be_closed_nor_takes_what_has_no_base(world: Any) -> None:
    fed, job = ahead(world)
    second, groups = world.round(fed), groups_of(world, fed)
    for name in groups["main~1"]:
        answer(world, fed, name)
    response = world.op("POST", f"/v1/rounds/{second['id']}/close?force=true")
    assert refused(response) == (409, "invalid-transition")
    assert "main model" in response.json()["detail"]
    old = world.round(fed, 1)["base_models"]["main"]
    body = world.forge.pack(world.forge.arrays(), {"num_samples": "10", "base_model": old})
    answered = world.push(fed, groups["main"][0], body, url=f"/v1/rounds/{second['id']}/update")
    assert refused(answered) == (409, "round-closed")
    assert answered.json()["current_round_id"] == second["id"]
    assert world.round(fed)["answered"] == len(groups["main~1"])
    with world.store.read() as session:
        assert session.scalars(select(JobRow.round_id).where(JobRow.kind == "round")).all() == [
            world.round(fed, 1)["id"]
        ]
    end(world, job, {"main": 50, "main~1": 51})
    assert world.op("POST", f"/v1/rounds/{second['id']}/close?force=true").status_code == 200


def test_a_deadline_counts_from_the_main_model_on(world: Any, move: Any) -> None:
    fed, job = ahead(world, rounds={"deadline_seconds": 300})
    others = groups_of(world, fed)["main~1"]
    move(3000)
    sweep_now(world)
    assert states(world, fed) == ["aggregating", "collecting"]
    answer(world, fed, others[0])  # after the deadline that the round was opened with
    end(world, job, {"main": 50, "main~1": 51})
    second = world.round(fed)
    assert (second["state"], second["answered"]) == ("collecting", 1)
    move(3200)  # the clock ticks beside it: a slow machine may take its time
    sweep_now(world)
    assert states(world, fed) == ["published", "collecting"]
    move(3301)
    sweep_now(world)
    assert states(world, fed) == ["published", "aggregating"]


def test_revoked_main_participants_are_not_waited_for(world: Any) -> None:
    fed, job = ahead(world)
    groups = groups_of(world, fed)
    for name in groups["main~1"]:
        answer(world, fed, name)
    for name in groups["main"]:
        world.ok("DELETE", f"/v1/federations/{fed.id}/clients/{fed.devices[name].id}")
    assert states(world, fed) == ["aggregating", "collecting"]
    end(world, job, {"main": 50, "main~1": 51})
    assert states(world, fed) == ["published", "aggregating"]


def test_if_everybody_is_revoked_the_round_waits_and_is_skipped_then(world: Any) -> None:
    fed, job = ahead(world)
    for device in fed.devices.values():
        world.ok("DELETE", f"/v1/federations/{fed.id}/clients/{device.id}")
    assert states(world, fed) == ["aggregating", "collecting"]
    end(world, job, {"main": 50, "main~1": 51})
    assert states(world, fed) == ["published", "skipped"]
    assert world.show(fed)["state"] == "running"


def test_too_few_clients_for_another_round_open_none(world: Any) -> None:
    fed = start(world, rounds={"min_updates": 4})
    everybody(world, fed)
    world.ok("DELETE", f"/v1/federations/{fed.id}/clients/{fed.devices['a'].id}")
    job = world.claim()
    hand_over(world, job, {"main~1": 51})
    assert states(world, fed) == ["aggregating"]
    world.enrol(fed, "a")  # now there are enough
    assert states(world, fed) == ["aggregating", "collecting"]
    end(world, job, {"main": 50, "main~1": 51})
    assert states(world, fed) == ["published", "collecting"]


# ------------------------------------------------------------------------------------------------------------ the end
def test_target_accuracy_withdraws_the_round_that_ran_ahead(world: Any) -> None:
    fed, job = ahead(world, rounds={"target_accuracy": 0.8})
    sent = answer(world, fed, groups_of(world, fed)["main~1"][0], 9)["digest"]
    assert world.blobs.path(sent).exists()
    late = world.assignment(fed.devices[groups_of(world, fed)["main~1"][1]])
    end(world, job, {"main": 50, "main~1": 51}, accuracy=0.81)
    shown, second = world.show(fed), world.round(fed, 2)
    assert (shown["state"], shown["round"], shown["accuracy"]) == ("finished", 1, 0.81)
    assert (second["state"], second["reason"]) == ("skipped", "withdrawn: the federation ended with round 1")
    assert second["waits_for"] is None
    assert not world.blobs.path(sent).exists()
    body = world.forge.pack(world.forge.arrays(), {"num_samples": "10", "base_model": late["model"]["id"]})
    name = groups_of(world, fed, 2)["main~1"][1]
    assert refused(world.push(fed, name, body, url=late["upload_url"])) == (409, "round-closed")
    done = world.assignment(fed.devices[name])
    assert (done["action"], done["model"]["id"]) == ("done", world.round(fed, 1)["models"]["main"])


def test_a_first_model_above_the_target_does_not_end_the_federation_early(world: Any) -> None:
    """The accuracy known when round 2 opens is that of the first models; only round 1's own may end it."""
    recipe = {"name": "fedsdd", "options": {"groups": {"count": 2}, "schedule": {"steps": 1}}}
    rounds = {"total": 3, "min_clients": 2, "target_accuracy": 0.8}
    fed = world.create(recipe=recipe, rounds=rounds, datasets={"unlabeled": world.dataset()["id"]})
    for name in "ab":
        world.enrol(fed, name)
    world.ok("POST", f"/v1/federations/{fed.id}/start")
    arrays = world.forge.arrays
    world.finish(world.claim(), {"main": arrays(40), "main~1": arrays(41)}, {"accuracy": 0.9})
    everybody(world, fed)
    job = world.claim()
    hand_over(world, job, {"main~1": 51})
    assert (world.show(fed)["state"], states(world, fed)) == ("running", ["aggregating", "collecting"])
    end(world, job, {"main": 50, "main~1": 51}, accuracy=0.5)
    assert (world.show(fed)["state"], states(world, fed)) == ("running", ["published", "collecting"])


def test_the_last_round_hands_over_and_opens_none(world: Any) -> None:
    fed, job = ahead(world, rounds={"total": 1})
    assert states(world, fed) == ["aggregating"]
    end(world, job, {"main": 50, "main~1": 51})
    assert (world.show(fed)["state"], states(world, fed)) == ("finished", ["published"])


def test_a_cancelled_federation_ends_both_rounds(world: Any) -> None:
    fed = start(world)
    before = everybody(world, fed)
    job = world.claim()
    hand_over(world, job, {"main~1": 51})
    sent = answer(world, fed, groups_of(world, fed)["main~1"][0], 9)["digest"]
    world.ok("POST", f"/v1/federations/{fed.id}/cancel")
    assert states(world, fed) == ["failed", "failed"]
    assert all("cancelled" in world.round(fed, index)["reason"] for index in (1, 2))
    assert not any(world.blobs.path(digest).exists() for digest in [*before, sent])
    hand_over(world, job, {"main~1": 51})  # the worker has not heard of it yet
    end(world, job, {"main": 50, "main~1": 51})
    assert states(world, fed) == ["failed", "failed"]
    assert world.show(fed)["models"]["main~1"]["id"] == world.round(fed, 1)["models"]["main~1"]


# --------------------------------------------------------------------------------------------------- again and again
def test_a_job_that_is_done_again_says_the_same_again(world: Any, move: Any) -> None:
    fed, job = ahead(world)
    first, second, groups = world.round(fed, 1), world.round(fed, 2), groups_of(world, fed)
    answer(world, fed, groups["main~1"][0])
    move(60)
    again = world.claim("wrk_2")
    assert (again.id, again.fence) == (job.id, 2)
    with pytest.raises(LostLease):
        hand_over(world, job, {"main~1": 51})
    hand_over(world, again, {"main~1": 51})
    assert {**world.round(fed, 1), "job_id": None} == {**first, "job_id": None}
    assert world.round(fed, 2)["opened_at"] == second["opened_at"]
    assert groups_of(world, fed) == groups
    end(world, again, {"main": 50, "main~1": 51})
    assert world.round(fed, 1)["models"]["main~1"] == first["models"]["main~1"]
    assert world.round(fed, 2)["answered"] == 1


def test_what_was_published_first_stays_if_another_machine_averages_otherwise(world: Any, caplog: Any) -> None:
    fed, job = ahead(world)
    first = world.round(fed, 1)["models"]["main~1"]
    files = world.files()
    hand_over(world, job, {"main~1": 77})
    assert "main~1 came out otherwise" in caplog.text
    assert world.files() == files
    end(world, job, {"main": 50, "main~1": 77})
    assert world.round(fed, 1)["models"]["main~1"] == first
    assert len(world.files()) == len(files) + 1 - len(NAMES)  # the main model came, the updates went


def test_what_is_no_model_is_not_handed_over(world: Any, tmp_path: Any) -> None:
    fed = start(world)
    everybody(world, fed)
    job = world.claim()
    held = Claimed(job.id, job.kind, job.fence, job.attempt, job.federation_id, job.round_id)
    files = world.files()
    ledger = Ledger(world.settings)
    try:
        for number, (change, code) in enumerate([(np.float32("nan"), "non_finite"), (None, "schema_mismatch")]):
            arrays = world.forge.arrays(51)
            if change is None:
                del arrays["fc.bias"]
            else:
                arrays["fc.bias"][0] = change
            path = tmp_path / str(number)
            write_file(path, arrays)
            with pytest.raises(JobFailure) as failure:
                ledger.publish_groups(held, Handover(models={"main~1": path}))
            assert failure.value.code == code
        assert (states(world, fed), world.files()) == (["aggregating"], files)
        path = tmp_path / "sound"
        write_file(path, world.forge.arrays(51))
        ledger.publish_groups(held, Handover(models={"main~1": path}))
    finally:
        ledger.leave()
    assert states(world, fed) == ["aggregating", "collecting"]
    assert len(world.files()) == len(files) + 1
    assert not path.exists()


def test_a_job_lost_before_it_handed_over_changes_nothing(world: Any, move: Any) -> None:
    fed = start(world)
    everybody(world, fed)
    lost = world.claim()
    move(60)
    job = world.claim("wrk_2")
    with pytest.raises(LostLease):
        hand_over(world, lost, {"main~1": 51})
    assert (states(world, fed), world.round(fed)["groups_published_at"]) == (["aggregating"], None)
    hand_over(world, job, {"main~1": 51})
    assert states(world, fed) == ["aggregating", "collecting"]


@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_a_failed_distillation_is_retried_while_the_next_round_waits(world: Any, how: str) -> None:
    fed = start(world)
    sent = everybody(world, fed)
    job = world.claim()
    hand_over(world, job, {"main~1": 51})
    if how == "failed":
        fail(world, job)
    else:
        world.ok("POST", f"/v1/jobs/{job.id}/cancel")
        with world.store.write() as session:
            publishing.cancelled(session, jobs.held(session, job.id, job.fence))
    assert (world.show(fed)["state"], states(world, fed)) == ("paused", ["failed", "collecting"])
    others = groups_of(world, fed)["main~1"]
    assert world.assignment(fed.devices[others[0]])["action"] == "wait"
    collect(world.services.database, world.blobs, -1)
    assert all(world.blobs.path(digest).exists() for digest in sent), "round 1 may be tried again"
    world.ok("POST", f"/v1/jobs/{job.id}/retry")
    assert (world.show(fed)["state"], states(world, fed)) == ("running", ["aggregating", "collecting"])
    answer(world, fed, others[0])
    again = world.claim()
    hand_over(world, again, {"main~1": 51})
    end(world, again, {"main": 50, "main~1": 51})
    assert states(world, fed) == ["published", "collecting"]
    assert world.round(fed)["base_models"] == world.round(fed, 1)["models"]
    assert not any(world.blobs.path(digest).exists() for digest in sent)


def test_a_failed_distillation_is_given_up_and_the_main_model_goes_on_from_the_one_before(
    world: Any, move: Any
) -> None:
    fed = start(world, rounds={"deadline_seconds": 30})
    sent = everybody(world, fed)
    job = world.claim()
    hand_over(world, job, {"main~1": 51})
    kept = answer(world, fed, groups_of(world, fed)["main~1"][0], 9)["digest"]
    fail(world, job)
    move(300)
    world.ok("POST", f"/v1/federations/{fed.id}/resume")
    first, second = world.round(fed, 1), world.round(fed, 2)
    assert (world.show(fed)["state"], states(world, fed)) == ("running", ["failed", "collecting"])
    assert second["waits_for"] is None
    assert second["base_models"] == {"main": first["base_models"]["main"], "main~1": first["models"]["main~1"]}
    assert not any(world.blobs.path(digest).exists() for digest in sent)
    assert world.blobs.path(kept).exists()
    response = world.op("POST", f"/v1/jobs/{job.id}/retry")
    assert refused(response) == (409, "invalid-transition")
    assert "round 2" in response.json()["detail"]
    move(331)
    sweep_now(world)
    assert states(world, fed) == ["failed", "aggregating"]  # its deadline counted from the resumption on


def test_a_client_left_out_of_a_retry_takes_back_what_its_group_handed_over(world: Any) -> None:
    """Its group is averaged anew without it; what others have trained from the old average does not count."""
    fed = start(world)
    everybody(world, fed)
    job = world.claim()
    hand_over(world, job, {"main~1": 51})
    poison = world.ok("GET", f"/v1/models/{world.round(fed, 1)['models']['main~1']}")
    bad = groups_of(world, fed, 1)["main~1"][0]
    others, drawn = groups_of(world, fed)["main~1"], groups_of(world, fed)
    sent = answer(world, fed, others[0], 9)["digest"]
    late = world.assignment(fed.devices[others[1]])
    fail(world, job)
    world.ok("POST", f"/v1/jobs/{job.id}/retry", json={"exclude": [bad], "force": True})
    first, second = world.round(fed, 1), world.round(fed, 2)
    assert (first["models"], first["groups_published_at"]) == ({}, None)
    assert (second["state"], second["waits_for"], second["base_models"]) == ("collecting", first["id"], {})
    assert (second["answered"], second["restarts"]) == (0, 1)
    assert world.show(fed)["models"]["main~1"]["id"] == first["base_models"]["main~1"]
    assert world.op("GET", f"/v1/models/{poison['id']}").status_code == 404
    assert not any(world.blobs.path(digest).exists() for digest in (poison["digest"], sent))
    assert {world.assignment(device)["action"] for device in fed.devices.values()} == {"wait"}
    body = world.forge.pack(world.forge.arrays(), {"num_samples": "10", "base_model": late["model"]["id"]})
    assert refused(world.push(fed, others[1], body, url=late["upload_url"])) == (409, "round-closed")

    again = world.claim()
    hand_over(world, again, {"main~1": 52})
    assert world.round(fed, 2)["base_models"] == world.round(fed, 1)["models"]
    assert groups_of(world, fed) == drawn
    for name in others:
        answer(world, fed, name)
    end(world, again, {"main": 50, "main~1": 52})
    assert world.round(fed, 2)["base_models"] == world.round(fed, 1)["models"]
    parents = world.ok("GET", f"/v1/models/{world.round(fed, 1)['models']['main~1']}")["parents"]
    assert len(parents) == len(NAMES)  # the base and the three that are left


def test_a_client_of_the_main_group_that_is_left_out_takes_nothing_back(world: Any) -> None:
    fed, job = ahead(world)
    bad = groups_of(world, fed, 1)["main"][0]
    models = world.round(fed, 1)["models"]
    answer(world, fed, groups_of(world, fed)["main~1"][0])
    fail(world, job)
    world.ok("POST", f"/v1/jobs/{job.id}/retry", json={"exclude": [bad], "force": True})
    assert (world.round(fed, 1)["models"], world.round(fed, 2)["answered"]) == (models, 1)


def test_another_model_by_an_operators_word_ends_the_failed_round(world: Any) -> None:
    """While the main model is made nothing can be changed; once that failed, a rollback restarts what ran ahead."""
    fed, job = ahead(world)
    url = f"/v1/federations/{fed.id}/rollback"
    assert refused(world.op("POST", url, json={"round": 0})) == (409, "invalid-transition")
    answer(world, fed, groups_of(world, fed)["main~1"][0])
    fail(world, job)
    world.ok("POST", url, json={"round": 0})
    second, bases = world.round(fed, 2), world.round(fed, 1)["base_models"]
    assert (second["base_models"], second["answered"]) == ({"main~1": bases["main~1"]}, 0)
    assert refused(world.op("POST", f"/v1/jobs/{job.id}/retry")) == (409, "invalid-transition")
    world.ok("POST", f"/v1/federations/{fed.id}/resume")
    assert (world.round(fed, 2)["base_models"], world.round(fed, 2)["waits_for"]) == (bases, None)
    everybody(world, fed)
    assert states(world, fed) == ["failed", "aggregating"]


def test_silent_devices_are_found_and_replaced_while_the_round_waits(world: Any, move: Any) -> None:
    fed, job = ahead(world, rounds={"clients_per_round": 2, "replace_lost": True, "deadline_seconds": 30})
    groups = groups_of(world, fed)
    (gone,), (waiting,) = groups["main~1"], groups["main"]
    beat = world.site.request(
        "POST", f"/v1/rounds/{world.round(fed)['id']}/heartbeat", token=fed.devices[gone].token, json={}
    )
    assert beat.is_success, beat.text
    move(100_000)
    sweep_now(world)
    people = {person["name"]: person for person in world.round(fed)["participants"]}
    assert (people[gone]["state"], people[waiting]["state"]) == ("lost", "asked")
    (other,) = [name for name, person in people.items() if person["replaces"] == fed.devices[gone].id]
    assert people[other]["prototype"] == "main~1"
    answer(world, fed, other)
    end(world, job, {"main": 50, "main~1": 51})
    answer(world, fed, waiting)
    assert states(world, fed) == ["published", "aggregating"]


def test_paused_before_the_averages_are_there(world: Any) -> None:
    """The models become current, as a round's do in a pause; the next round opens with the resumption."""
    fed = start(world)
    everybody(world, fed)
    job = world.claim()
    world.ok("POST", f"/v1/federations/{fed.id}/pause")
    hand_over(world, job, {"main~1": 51})
    assert states(world, fed) == ["aggregating"]
    assert world.show(fed)["models"]["main~1"]["id"] == world.round(fed, 1)["models"]["main~1"]
    world.ok("POST", f"/v1/federations/{fed.id}/resume")
    assert states(world, fed) == ["aggregating", "collecting"]
    assert world.round(fed)["waits_for"] == world.round(fed, 1)["id"]


def test_paused_while_the_main_model_is_distilled(world: Any, move: Any) -> None:
    fed, job = ahead(world, rounds={"deadline_seconds": 30})
    world.ok("POST", f"/v1/federations/{fed.id}/pause")
    end(world, job, {"main": 50, "main~1": 51})
    assert states(world, fed) == ["published", "collecting"]
    assert world.round(fed)["waits_for"] is not None
    move(300)
    world.ok("POST", f"/v1/federations/{fed.id}/resume")
    second = world.round(fed)
    assert (second["waits_for"], second["base_models"]) == (None, world.round(fed, 1)["models"])
    sweep_now(world)
    assert states(world, fed) == ["published", "collecting"]


def test_a_pause_does_not_hide_that_the_target_is_reached(world: Any) -> None:
    fed, job = ahead(world, rounds={"target_accuracy": 0.8})
    world.ok("POST", f"/v1/federations/{fed.id}/pause")
    end(world, job, {"main": 50, "main~1": 51}, accuracy=0.9)
    world.ok("POST", f"/v1/federations/{fed.id}/resume")
    assert (world.show(fed)["state"], states(world, fed)) == ("finished", ["published", "skipped"])


def test_updates_of_both_rounds_outlive_a_collection(world: Any) -> None:
    fed = start(world)
    sent = everybody(world, fed)
    job = world.claim()
    hand_over(world, job, {"main~1": 51})
    later = answer(world, fed, groups_of(world, fed)["main~1"][0], 9)["digest"]
    collect(world.services.database, world.blobs, -1)
    assert all(world.blobs.path(digest).exists() for digest in [*sent, later])
    with world.store.read() as session:
        current = {row.index: dict(row.models) for row in session.scalars(select(RoundRow))}
    end(world, job, {"main": 50, "main~1": 51})
    assert not any(world.blobs.path(digest).exists() for digest in sent)
    assert world.blobs.path(later).exists()
    assert current[1].items() <= world.round(fed, 1)["models"].items()
