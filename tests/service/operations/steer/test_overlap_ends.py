"""FedSDD's overlap where it ends: a target that is met, a distillation that fails, operators, repeated calls."""

from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from contract.tensors import write_file
from service.operations.ledger.garbage import collect
from service.operations.progress import jobs
from service.operations.progress.jobs import LostLease
from service.operations.steer import publishing
from service.persistence.tables import RoundRow
from tests.service.conftest import Move
from tests.service.world import World
from worker.ledger import Claimed, Ledger
from worker.specs import Handover, JobFailure

from ...world import refused
from .overlapping import NAMES, ahead, answer, end, everybody, fail, groups_of, hand_over, start, states, sweep_now


# ------------------------------------------------------------------------------------------------------------ the end
def test_target_accuracy_withdraws_the_round_that_ran_ahead(world: World) -> None:
    fed, job = ahead(world, rounds={"target_accuracy": 0.8})
    sent = answer(world, fed, groups_of(world, fed)["main~1"][0], 9)["digest"]
    assert world.blobs.cache.path(sent).exists()
    late = world.assignment(fed.devices[groups_of(world, fed)["main~1"][1]])
    end(world, job, {"main": 50, "main~1": 51}, accuracy=0.81)
    shown, second = world.show(fed), world.round(fed, 2)
    assert (shown["state"], shown["round"], shown["accuracy"]) == ("finished", 1, 0.81)
    assert (second["state"], second["reason"]) == ("skipped", "withdrawn: the federation ended with round 1")
    assert second["waits_for"] is None
    assert not world.blobs.cache.path(sent).exists()
    body = world.forge.pack(world.forge.arrays(), {"num_samples": "10", "base_model": late["model"]["id"]})
    name = groups_of(world, fed, 2)["main~1"][1]
    assert refused(world.push(fed, name, body, url=late["upload_url"])) == (409, "round-closed")
    done = world.assignment(fed.devices[name])
    assert (done["action"], done["model"]["id"]) == ("done", world.round(fed, 1)["models"]["main"])


def test_a_first_model_above_the_target_does_not_end_the_federation_early(world: World) -> None:
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


def test_the_last_round_hands_over_and_opens_none(world: World) -> None:
    fed, job = ahead(world, rounds={"total": 1})
    assert states(world, fed) == ["aggregating"]
    end(world, job, {"main": 50, "main~1": 51})
    assert (world.show(fed)["state"], states(world, fed)) == ("finished", ["published"])


def test_a_cancelled_federation_ends_both_rounds(world: World) -> None:
    fed = start(world)
    before = everybody(world, fed)
    job = world.claim()
    hand_over(world, job, {"main~1": 51})
    sent = answer(world, fed, groups_of(world, fed)["main~1"][0], 9)["digest"]
    world.ok("POST", f"/v1/federations/{fed.id}/cancel")
    assert states(world, fed) == ["failed", "failed"]
    assert all("cancelled" in world.round(fed, index)["reason"] for index in (1, 2))
    assert not any(world.blobs.cache.path(digest).exists() for digest in [*before, sent])
    hand_over(world, job, {"main~1": 51})  # the worker has not heard of it yet
    end(world, job, {"main": 50, "main~1": 51})
    assert states(world, fed) == ["failed", "failed"]
    assert world.show(fed)["models"]["main~1"]["id"] == world.round(fed, 1)["models"]["main~1"]


# --------------------------------------------------------------------------------------------------- again and again
def test_a_job_that_is_done_again_says_the_same_again(world: World, move: Move) -> None:
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


def test_what_was_published_first_stays_if_another_machine_averages_otherwise(world: World, caplog: Any) -> None:
    fed, job = ahead(world)
    first = world.round(fed, 1)["models"]["main~1"]
    files = world.files()
    hand_over(world, job, {"main~1": 77})
    assert "main~1 came out otherwise" in caplog.text
    assert world.files() == files
    end(world, job, {"main": 50, "main~1": 77})
    assert world.round(fed, 1)["models"]["main~1"] == first
    assert len(world.files()) == len(files) + 1 - len(NAMES)  # the main model came, the updates went


def test_what_is_no_model_is_not_handed_over(world: World, tmp_path: Any) -> None:
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


def test_a_job_lost_before_it_handed_over_changes_nothing(world: World, move: Move) -> None:
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
def test_a_failed_distillation_is_retried_while_the_next_round_waits(world: World, how: str) -> None:
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
    collect(world.services.database, world.blobs.store, -1)
    assert all(world.blobs.cache.path(digest).exists() for digest in sent), "round 1 may be tried again"
    world.ok("POST", f"/v1/jobs/{job.id}/retry")
    assert (world.show(fed)["state"], states(world, fed)) == ("running", ["aggregating", "collecting"])
    answer(world, fed, others[0])
    again = world.claim()
    hand_over(world, again, {"main~1": 51})
    end(world, again, {"main": 50, "main~1": 51})
    assert states(world, fed) == ["published", "collecting"]
    assert world.round(fed)["base_models"] == world.round(fed, 1)["models"]
    assert not any(world.blobs.cache.path(digest).exists() for digest in sent)


def test_a_failed_distillation_is_given_up_and_the_main_model_goes_on_from_the_one_before(
    world: World, move: Move
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
    assert not any(world.blobs.cache.path(digest).exists() for digest in sent)
    assert world.blobs.cache.path(kept).exists()
    response = world.op("POST", f"/v1/jobs/{job.id}/retry")
    assert refused(response) == (409, "invalid-transition")
    assert "round 2" in response.json()["detail"]
    move(331)
    sweep_now(world)
    assert states(world, fed) == ["failed", "aggregating"]  # its deadline counted from the resumption on


def test_a_client_left_out_of_a_retry_takes_back_what_its_group_handed_over(world: World) -> None:
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
    assert not any(world.blobs.cache.path(digest).exists() for digest in (poison["digest"], sent))
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


def test_a_client_of_the_main_group_that_is_left_out_takes_nothing_back(world: World) -> None:
    fed, job = ahead(world)
    bad = groups_of(world, fed, 1)["main"][0]
    models = world.round(fed, 1)["models"]
    answer(world, fed, groups_of(world, fed)["main~1"][0])
    fail(world, job)
    world.ok("POST", f"/v1/jobs/{job.id}/retry", json={"exclude": [bad], "force": True})
    assert (world.round(fed, 1)["models"], world.round(fed, 2)["answered"]) == (models, 1)


def test_another_model_by_an_operators_word_ends_the_failed_round(world: World) -> None:
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


def test_silent_devices_are_found_and_replaced_while_the_round_waits(world: World, move: Move) -> None:
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


def test_paused_before_the_averages_are_there(world: World) -> None:
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


def test_paused_while_the_main_model_is_distilled(world: World, move: Move) -> None:
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


def test_a_pause_does_not_hide_that_the_target_is_reached(world: World) -> None:
    fed, job = ahead(world, rounds={"target_accuracy": 0.8})
    world.ok("POST", f"/v1/federations/{fed.id}/pause")
    end(world, job, {"main": 50, "main~1": 51}, accuracy=0.9)
    world.ok("POST", f"/v1/federations/{fed.id}/resume")
    assert (world.show(fed)["state"], states(world, fed)) == ("finished", ["published", "skipped"])


def test_updates_of_both_rounds_outlive_a_collection(world: World) -> None:
    fed = start(world)
    sent = everybody(world, fed)
    job = world.claim()
    hand_over(world, job, {"main~1": 51})
    later = answer(world, fed, groups_of(world, fed)["main~1"][0], 9)["digest"]
    collect(world.services.database, world.blobs.store, -1)
    assert all(world.blobs.cache.path(digest).exists() for digest in [*sent, later])
    with world.store.read() as session:
        current = {row.index: dict(row.models) for row in session.scalars(select(RoundRow))}
    end(world, job, {"main": 50, "main~1": 51})
    assert not any(world.blobs.cache.path(digest).exists() for digest in sent)
    assert world.blobs.cache.path(later).exists()
    assert current[1].items() <= world.round(fed, 1)["models"].items()
