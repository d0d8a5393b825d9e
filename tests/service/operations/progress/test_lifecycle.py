"""How a federation goes on: rounds that are full, due, skipped or failed; stages; pause, cancel, retry."""

from typing import Any

import pytest
from sqlalchemy import select

from service.operations.progress import deadlines, jobs
from service.operations.steer import publishing
from service.operations.upkeep import sweep
from service.persistence.tables import JobRow, RoundRow
from tests.service.conftest import Move
from tests.service.world import Fed, World

from ...world import refused


def sweep_now(world: World) -> None:
    sweep.sweep(world.store)


def test_from_creation_to_the_end(world: World) -> None:
    fed = world.create(rounds={"total": 2})
    device = world.enrol(fed, "a")
    assert world.assignment(device)["action"] == "wait"
    assert world.ok("POST", f"/v1/federations/{fed.id}/start")["state"] == "preparing"
    world.finish(world.claim(), {"main": world.forge.arrays()}, {"accuracy": 0.1})
    for index in (1, 2):
        task = world.assignment(device)
        assert (task["action"], task["round"]["index"], task["round"]["total"]) == ("train", index, 2)
        assert task["model"]["id"] == world.round(fed)["base_models"]["main"]
        assert world.push(fed, "a", world.update(fed, seed=index), url=task["upload_url"]).status_code == 201
        assert world.assignment(device)["action"] == "wait"
        metrics = {"accuracy": index / 4, "weights": {"a": 1.0}, "model": {"prototypes": {"main": index / 4}}}
        world.finish(world.claim(), {"main": world.forge.arrays(10 + index)}, metrics)
    done = world.assignment(device)
    assert (done["action"], done["state"], done["accuracy"]) == ("done", "finished", 0.5)
    shown = world.show(fed)
    assert (shown["state"], shown["round"], shown["accuracy"]) == ("finished", 2, 0.5)
    assert shown["accuracies"] == [[1, 0.25], [2, 0.5]]
    assert shown["models"]["main"] == done["model"]
    assert shown["finished_at"].endswith("Z")
    first, second = world.round(fed, 1), world.round(fed, 2)
    assert second["base_models"]["main"] == first["models"]["main"]
    assert first["participants"][0]["weight"] == 1.0
    model = world.ok("GET", f"/v1/models/{second['models']['main']}")
    assert (model["round"], model["role"], model["current"], model["recipe"]["name"]) == (2, "global", True, "fedavg")
    base = world.ok("GET", f"/v1/models/{second['base_models']['main']}")
    assert base["current"] is False
    assert model["parents"][0] == base["digest"]
    assert len(model["parents"]) == 2


def test_updates_are_removed_after_publishing_and_models_stay(world: World) -> None:
    fed = world.running(["a", "b"])
    digests = [world.push(fed, n, world.update(fed, seed=i)).json()["digest"] for i, n in enumerate("ab", 1)]
    assert all(world.blobs.cache.path(d).exists() for d in digests)
    world.finish(world.claim(), {"main": world.forge.arrays(5)})
    assert not any(world.blobs.cache.path(d).exists() for d in digests)
    for model in world.ok("GET", f"/v1/models?federation={fed.id}")["items"]:
        assert world.blobs.cache.path(model["digest"]).exists()


def test_an_update_that_is_also_a_model_is_kept(world: World) -> None:
    fed = world.running(["a"])
    body = world.update(fed)
    imported = world.ok("POST", "/v1/models", body=body)
    assert world.push(fed, "a", body).json()["digest"] == imported["digest"]
    world.finish(world.claim(), {"main": world.forge.arrays(5)})
    assert world.blobs.cache.path(imported["digest"]).read_bytes() == body


def test_target_accuracy_ends_a_federation_early(world: World) -> None:
    fed = world.running(["a"], rounds={"total": 9, "target_accuracy": 0.8})
    world.push(fed, "a")
    world.finish(world.claim(), {"main": world.forge.arrays(5)}, {"accuracy": 0.81})
    assert (world.show(fed)["state"], world.show(fed)["round"]) == ("finished", 1)


def test_rounds_open_when_enough_clients_are_there(world: World) -> None:
    fed = world.create(rounds={"min_clients": 2})
    world.ok("POST", f"/v1/federations/{fed.id}/start")
    world.finish(world.claim(), {"main": world.forge.arrays()})
    first = world.enrol(fed, "a")
    waiting = world.assignment(first)
    assert (waiting["action"], waiting["state"]) == ("wait", "running")
    assert "2 clients" in waiting["reason"]
    world.enrol(fed, "b")
    assert world.assignment(first)["action"] == "train"


def test_at_the_deadline_enough_updates_are_fused(world: World, move: Move) -> None:
    fed = world.running(["a", "b", "c"], rounds={"min_updates": 2, "deadline_seconds": 30})
    world.push(fed, "a")
    world.push(fed, "b", world.update(fed, seed=2))
    move(31)
    sweep_now(world)
    round_ = world.round(fed)
    assert (round_["state"], round_["answered"], round_["closed_at"] is not None) == ("aggregating", 2, True)


def test_at_the_deadline_too_few_updates_skip_the_round(world: World, move: Move) -> None:
    fed = world.running(["a", "b", "c"], rounds={"total": 2, "min_updates": 3, "deadline_seconds": 30})
    base = world.round(fed)["base_models"]
    world.push(fed, "a")
    move(31)
    sweep_now(world)
    skipped, opened = world.round(fed, 1), world.round(fed, 2)
    assert (skipped["state"], skipped["reason"]) == ("skipped", "got 1 of 3 updates by the deadline")
    assert (opened["state"], opened["base_models"], opened["answered"]) == ("collecting", base, 0)
    move(63)
    sweep_now(world)
    ended = world.show(fed)
    assert (ended["state"], ended["error"]) == ("failed", "too_few_updates")


def test_a_revoked_client_is_not_waited_for(world: World) -> None:
    fed = world.running(["a", "b"])
    world.push(fed, "a")
    world.ok("DELETE", f"/v1/federations/{fed.id}/clients/{fed.devices['b'].id}")
    assert world.round(fed)["state"] == "aggregating"
    infos = {c["name"]: c for c in world.ok("GET", f"/v1/federations/{fed.id}/clients")["items"]}
    assert infos["b"]["revoked_at"] is not None
    assert infos["a"]["updates"] == 1
    fresh = world.enrol(fed, "b")
    assert fresh.id != infos["b"]["id"]


def test_a_revoked_clients_update_still_counts(world: World) -> None:
    fed = world.running(["a", "b"])
    world.push(fed, "b")
    world.ok("DELETE", f"/v1/federations/{fed.id}/clients/{fed.devices['b'].id}")
    world.push(fed, "a", world.update(fed, seed=4))
    assert (world.round(fed)["answered"], world.round(fed)["state"]) == (2, "aggregating")


def test_closing_by_hand(world: World) -> None:
    fed = world.running(["a", "b", "c"], rounds={"min_updates": 2})
    url = f"/v1/rounds/{world.round(fed)['id']}/close"
    response = world.op("POST", url + "?force=true")
    assert refused(response) == (409, "too-few-updates")
    world.push(fed, "a")
    response = world.op("POST", url)
    assert refused(response) == (409, "too-few-updates")
    assert "force=true" in response.json()["detail"]
    assert (response.json()["answered"], response.json()["min_updates"]) == (1, 2)
    assert world.ok("POST", url + "?force=true")["state"] == "aggregating"
    assert refused(world.op("POST", url)) == (409, "invalid-transition")


def test_while_paused_nothing_closes_or_opens_and_a_result_is_still_published(world: World, move: Move) -> None:
    fed = world.running(["a", "b"], rounds={"deadline_seconds": 30, "min_updates": 1})
    url = f"/v1/federations/{fed.id}"
    world.ok("POST", url + "/pause")
    for i, name in enumerate("ab"):
        assert world.push(fed, name, world.update(fed, seed=i)).status_code == 201
    assert world.round(fed)["state"] == "collecting"
    assert world.assignment(fed.devices["a"])["action"] == "wait"
    world.ok("POST", url + "/resume")
    assert world.round(fed)["state"] == "aggregating"
    world.ok("POST", url + "/pause")
    world.finish(world.claim(), {"main": world.forge.arrays(5)})
    assert (world.round(fed)["state"], world.show(fed)["round"]) == ("published", 1)
    world.ok("POST", url + "/resume")
    assert world.show(fed)["round"] == 2


def test_a_failed_round_pauses_and_a_retry_goes_on(world: World) -> None:
    fed = world.running(["a"])
    world.push(fed, "a")
    job = world.claim()
    with world.store.write() as session:
        publishing.give_up(session, jobs.held(session, job.id, job.fence), "non_finite", "tensor 'w' has NaN")
    shown, round_ = world.show(fed), world.round(fed)
    assert (shown["state"], shown["error"], shown["round"]) == ("paused", "non_finite", 1)
    assert (round_["state"], round_["reason"]) == ("failed", "non_finite: tensor 'w' has NaN")
    assert world.ok("GET", f"/v1/jobs/{job.id}")["error"] == "non_finite"
    assert world.ok("POST", f"/v1/jobs/{job.id}/retry")["state"] == "queued"
    assert (world.show(fed)["state"], world.show(fed)["error"]) == ("running", None)
    assert world.round(fed)["reason"] is None
    world.finish(world.claim(), {"main": world.forge.arrays(5)})
    assert world.round(fed, 1)["state"] == "published"


def test_a_round_that_fails_while_paused_does_not_end_the_federation(world: World) -> None:
    fed = world.running(["a"])
    world.push(fed, "a")
    job = world.claim()
    world.ok("POST", f"/v1/federations/{fed.id}/pause")
    with world.store.write() as session:
        publishing.give_up(session, jobs.held(session, job.id, job.fence), "out_of_memory", "too large")
    assert world.show(fed)["state"] == "paused"
    world.ok("POST", f"/v1/jobs/{job.id}/retry")
    assert (world.show(fed)["state"], world.round(fed)["state"]) == ("running", "aggregating")


def test_after_a_failed_round_resume_gives_it_up(world: World) -> None:
    fed = world.running(["a"])
    base = world.round(fed)["base_models"]
    world.push(fed, "a")
    job = world.claim()
    with world.store.write() as session:
        publishing.give_up(session, jobs.held(session, job.id, job.fence), "internal", "broken")
    assert world.ok("POST", f"/v1/federations/{fed.id}/resume")["round"] == 2
    assert world.round(fed)["base_models"] == base
    response = world.op("POST", f"/v1/jobs/{job.id}/retry")  # round 1 may not overtake round 2
    assert refused(response) == (409, "invalid-transition")
    assert "round 2" in response.json()["detail"]
    assert world.round(fed, 1)["state"] == "failed"


@pytest.mark.parametrize("running", [False, True])
def test_cancelling_a_federation_ends_its_job_and_round(world: World, running: bool) -> None:
    fed = world.running(["a"])
    world.push(fed, "a")
    job = world.claim() if running else None
    current = world.show(fed)["models"]
    assert world.ok("POST", f"/v1/federations/{fed.id}/cancel")["state"] == "cancelled"
    round_ = world.round(fed)
    assert (round_["state"], round_["reason"]) == ("failed", "cancelled: the federation was cancelled")
    if job is None:
        assert world.ok("GET", f"/v1/jobs/{round_['job_id']}")["state"] == "cancelled"
    else:
        world.finish(job, {"main": world.forge.arrays(5)})  # the worker was faster than the news
    assert world.show(fed)["models"] == current
    assert world.assignment(fed.devices["a"])["action"] == "done"
    assert refused(world.op("POST", f"/v1/jobs/{round_['job_id']}/retry")) == (409, "invalid-transition")


def test_a_queued_job_is_cancelled_at_once_and_retried(world: World) -> None:
    fed = world.running(["a"])
    world.push(fed, "a")
    id_ = world.round(fed)["job_id"]
    assert world.ok("POST", f"/v1/jobs/{id_}/cancel")["state"] == "cancelled"
    assert (world.show(fed)["state"], world.round(fed)["state"]) == ("paused", "failed")
    assert refused(world.op("POST", f"/v1/jobs/{id_}/cancel")) == (409, "invalid-transition")
    assert world.ok("POST", f"/v1/jobs/{id_}/retry")["state"] == "queued"
    assert world.show(fed)["state"] == "running"


def test_a_failed_preparation_fails_the_federation_and_a_retry_revives_it(world: World) -> None:
    fed = world.create()
    world.ok("POST", f"/v1/federations/{fed.id}/start")
    job = world.claim()
    with world.store.write() as session:
        publishing.give_up(session, jobs.held(session, job.id, job.fence), "architecture_failed", "cannot be built")
    assert (world.show(fed)["state"], world.show(fed)["error"]) == ("failed", "architecture_failed")
    world.ok("POST", f"/v1/jobs/{job.id}/retry")
    assert (world.show(fed)["state"], world.show(fed)["error"]) == ("preparing", None)
    world.finish(world.claim(), {"main": world.forge.arrays()})
    assert world.show(fed)["state"] == "running"


@pytest.mark.parametrize("verb", ["start", "pause", "resume", "cancel"])
@pytest.mark.parametrize("state", ["created", "preparing", "running", "paused", "cancelled"])
def test_what_may_be_done_in_which_state(world: World, state: str, verb: str) -> None:
    fed = world.running([]) if state in ("running", "paused") else world.create()
    url = f"/v1/federations/{fed.id}"
    for step in {"preparing": ["start"], "paused": ["pause"], "cancelled": ["cancel"]}.get(state, []):
        world.ok("POST", f"{url}/{step}")
    allowed = {
        "start": {"created"},
        "pause": {"running"},
        "resume": {"paused"},
        "cancel": {"created", "preparing", "running", "paused"},
    }
    response = world.op("POST", f"{url}/{verb}")
    if state in allowed[verb]:
        assert response.status_code == 200
    else:
        assert refused(response) == (409, "invalid-transition")
        assert response.json()["state"] == state
        assert state in response.json()["detail"]


# ------------------------------------------------------------------------------------ FedGO's first stage
def give(world: World, fed: Fed, name: str, seed: int = 7) -> Any:
    url = f"/v1/federations/{fed.id}/discriminator"
    body = world.forge.pack(world.forge.arrays(seed), {"num_samples": "10"})
    return world.site.request("PUT", url, token=fed.devices[name].token, body=body)


def scored(world: World, *names: str) -> None:
    world.finish(world.claim(), {name: world.forge.arrays(100 + i) for i, name in enumerate(names)})


def test_discriminators_are_collected_scored_and_then_rounds_begin(world: World) -> None:
    fed = world.collecting(["a", "b"])
    task = world.assignment(fed.devices["a"])
    assert (task["action"], task["state"], task["link"]) == (
        "train_discriminator",
        "collecting_discriminators",
        "double_sigmoid",
    )
    assert task["generator"]["input_range"] == [-1.0, 1.0]
    assert world.site.request("GET", task["generator"]["model"]["url"], token=fed.devices["a"].token).status_code == 200
    first, again, other = give(world, fed, "a"), give(world, fed, "a"), give(world, fed, "a", seed=8)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert refused(other) == (409, "already-delivered")
    assert world.assignment(fed.devices["a"])["action"] == "wait"
    assert world.show(fed)["discriminators"] == 1
    give(world, fed, "b")
    assert world.show(fed)["state"] == "scoring"
    scored(world, "a", "b")
    assert world.show(fed)["state"] == "running"
    assert world.assignment(fed.devices["a"])["action"] == "train"
    infos = world.ok("GET", f"/v1/federations/{fed.id}/clients")["items"]
    assert all(client["has_discriminator"] for client in infos)


def test_bad_discriminators_leave_nothing(world: World) -> None:
    fed, plain = world.collecting(["a"]), world.running(["p"])
    token, before = fed.devices["a"].token, world.files()
    arrays = world.forge.arrays(7)
    nan = {**arrays, "fc.bias": arrays["fc.bias"] * float("nan")}
    extra = {**arrays, "more": arrays["fc.bias"]}
    for body, status, kind in (
        (world.forge.pack(nan), 422, "invalid-values"),
        (world.forge.pack(extra), 422, "invalid-tensors"),
        (world.forge.pack(arrays)[:-3], 422, "invalid-container"),
    ):
        response = world.site.request("PUT", f"/v1/federations/{fed.id}/discriminator", token=token, body=body)
        assert refused(response) == (status, kind)
    body = world.forge.pack(arrays)
    response = world.site.request("PUT", f"/v1/federations/{plain.id}/discriminator", token=token, body=body)
    assert refused(response) == (403, "forbidden")
    response = world.site.request(
        "PUT", f"/v1/federations/{plain.id}/discriminator", token=plain.devices["p"].token, body=body
    )
    assert refused(response) == (409, "invalid-transition")
    assert world.files() == before
    assert world.show(fed)["discriminators"] == 0


def test_at_the_deadline_the_stage_goes_on_with_those_who_delivered(world: World, move: Move) -> None:
    fed = world.collecting(["a", "b", "c"], rounds={"min_clients": 2, "min_updates": 2})
    give(world, fed, "a")
    move(3601)
    sweep_now(world)
    assert world.show(fed)["state"] == "collecting_discriminators"  # one is fewer than the round needs
    give(world, fed, "b", seed=8)
    assert world.show(fed)["state"] == "scoring"
    scored(world, "a", "b")
    assert {p["name"] for p in world.round(fed)["participants"]} == {"a", "b"}


def test_a_latecomer_is_scored_while_rounds_run_and_takes_part_in_the_next(world: World) -> None:
    fed = world.collecting(["a"])
    give(world, fed, "a")
    scored(world, "a")
    late = world.enrol(fed, "late")
    assert world.assignment(late)["action"] == "train_discriminator"
    give(world, fed, "late", seed=9)
    kinds = [job["kind"] for job in world.ok("GET", "/v1/jobs?state=queued")["items"]]
    assert kinds == ["score"]
    world.push(fed, "a", world.update(fed))
    assert [job["kind"] for job in world.ok("GET", "/v1/jobs?state=queued")["items"]] == ["score", "round"]
    scored(world, "late")
    world.finish(world.claim(), {"main": world.forge.arrays(5)})
    assert {p["name"] for p in world.round(fed, 2)["participants"]} == {"a", "late"}
    assert world.assignment(late)["action"] == "train"


def test_one_open_round_and_no_more_however_often_it_proceeds(world: World) -> None:
    fed = world.running(["a", "b"])
    for _ in range(3):
        with world.store.write() as session:
            deadlines.proceed(session, fed.id)
    with world.store.read() as session:
        assert len(list(session.scalars(select(RoundRow).where(RoundRow.federation_id == fed.id)))) == 1
        assert len(list(session.scalars(select(JobRow)))) == 1
