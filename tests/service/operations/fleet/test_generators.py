"""The federated generator: rounds in which every client trains it, deadlines, late files, revocation, failures."""

import copy
from typing import Any

import pytest
from sqlalchemy import select

from service.config import Settings
from service.infra.sums import sums_of
from service.operations.fleet import generators
from service.operations.ledger.garbage import collect
from service.operations.progress import jobs, lifecycle, reading
from service.operations.steer import publishing
from service.operations.upkeep import sweep
from service.persistence.tables import GanUpdateRow, JobRow
from tests.service.conftest import Move
from tests.service.world import Fed, World
from worker.ledger import Claimed, Ledger
from worker.specs import GeneratorSpec

from ...world import refused

SMALL = {"architecture": "disc-mlp", "options": {"hidden": [4]}}


def training(world: World, *names: str, rounds: int = 2, **plan: Any) -> Any:
    """Return a federation whose clients train the first round of the generator."""
    fed = world.create(
        recipe={
            "name": "fedgo-small",
            "options": {
                "data": {"kind": "generated"},
                "discriminators": {"generator": {"kind": "fedgan", "rounds": rounds, **plan}, "plan": SMALL},
            },
        },
        rounds={"total": 2, "min_clients": 2},
    )
    for name in names:
        world.enrol(fed, name)
    world.ok("POST", f"/v1/federations/{fed.id}/start")
    world.finish(world.claim(), {"main": world.forge.arrays()})
    assert world.show(fed)["state"] == "preparing"
    average(world, 1)
    return fed


def average(world: World, seed: int) -> None:
    world.finish(world.claim(), {"gan": world.forge.arrays(seed)})


def end(world: World) -> None:
    files = {name: world.forge.arrays(i) for i, name in enumerate(("generator", "discriminator", "samples"), start=50)}
    world.finish(world.claim(), files, {"input_range": [0.0, 1.0]})


def file(world: World, task: dict[str, Any], seed: int = 7, **changes: Any) -> bytes:
    metadata = {"num_samples": "10", "base_model": task["model"]["id"], **changes}
    return world.forge.pack(world.forge.arrays(seed), {k: v for k, v in metadata.items() if v is not None})


def send(world: World, fed: Fed, name: str, body: bytes) -> Any:
    url, headers = f"/v1/federations/{fed.id}/gan", {"Content-Type": "application/octet-stream"}
    return world.site.request("PUT", url, token=fed.devices[name].token, body=body, headers=headers)


def give(world: World, fed: Fed, name: str, seed: int = 7) -> bytes:
    """Deliver what the client is asked for; return the file."""
    body = file(world, world.assignment(fed.devices[name]), seed)
    assert send(world, fed, name, body).status_code == 201
    return body


def queued(world: World) -> list[str]:
    return [job["kind"] for job in world.ok("GET", "/v1/jobs?state=queued")["items"]]


def test_all_clients_train_it_round_by_round_until_discriminators_are_collected(world: World) -> None:
    fed = training(world, "a", "b")
    for index in (1, 2):
        task = world.assignment(fed.devices["a"])
        assert (task["action"], task["state"], task["gan_round"]) == ("train_gan", "training_generator", index)
        assert (task["plan"]["kind"], task["plan"]["rounds"]) == ("fedgan", 2)
        assert task["upload_url"] == f"/v1/federations/{fed.id}/gan"
        assert world.show(fed)["gan_round"] == index
        got = world.site.request("GET", task["model"]["url"], token=fed.devices["a"].token)
        assert got.status_code == 200
        give(world, fed, "a", seed=10 * index)
        assert "other clients" in world.assignment(fed.devices["a"])["reason"]
        assert queued(world) == []
        give(world, fed, "b", seed=10 * index + 1)
        assert queued(world) == ["generator"]
        assert "averages" in world.assignment(fed.devices["b"])["reason"]
        if index == 1:
            average(world, 2)
    end(world)
    shown = world.show(fed)
    assert (shown["state"], shown["gan_round"]) == ("collecting_discriminators", 3)
    assert world.assignment(fed.devices["a"])["action"] == "train_discriminator"
    roles = [model["role"] for model in world.ok("GET", f"/v1/models?federation={fed.id}")["items"]]
    assert sorted(roles) == ["discriminator", "gan", "gan", "generator", "initial", "samples"]


def test_what_came_counts_once_and_is_released_with_its_round(world: World, settings: Settings) -> None:
    fed = training(world, "a", "b")
    first = world.assignment(fed.devices["a"])
    body = give(world, fed, "a")
    again, other = send(world, fed, "a", body), send(world, fed, "a", file(world, first, seed=8))
    assert (again.status_code, again.json()["gan_round"]) == (200, 1)
    assert refused(other) == (409, "already-delivered")
    give(world, fed, "b", seed=9)
    assert collect(world.store.database, world.blobs.store, -1) == 0  # the averaging job needs them
    with world.store.read() as session:
        sent = [world.blobs.cache.path(row.digest) for row in session.query(GanUpdateRow)]
    assert [path.exists() for path in sent] == [True, True]
    average(world, 2)
    assert [path.exists() for path in sent] == [False, False]
    assert send(world, fed, "a", body).status_code == 200  # the answer was lost: the row still knows the bytes
    assert [path.exists() for path in sent] == [False, False]


def test_late_files_are_refused_and_leave_nothing(world: World) -> None:
    fed = training(world, "a", "b")
    task = world.assignment(fed.devices["a"])
    give(world, fed, "a")
    give(world, fed, "b", seed=8)
    world.enrol(fed, "late")
    assert "averages" in world.assignment(fed.devices["late"])["reason"]
    before = world.files()
    assert refused(send(world, fed, "late", file(world, task, seed=9))) == (409, "round-closed")
    assert world.files() == before
    average(world, 2)
    response = send(world, fed, "late", file(world, task, seed=9))
    assert refused(response) == (409, "round-closed")
    assert (response.json()["round"], response.json()["current_round"]) == (1, 2)
    assert world.assignment(fed.devices["late"])["gan_round"] == 2


def test_at_the_deadline_a_round_goes_on_with_enough_and_waits_for_them(world: World, move: Move) -> None:
    fed = training(world, "a", "b", "c", deadline_seconds=60)
    task = world.assignment(fed.devices["c"])
    give(world, fed, "a")
    move(61)
    sweep.sweep(world.store)
    assert queued(world) == []  # one is fewer than min_clients
    give(world, fed, "b", seed=8)
    assert queued(world) == ["generator"]
    assert refused(send(world, fed, "c", file(world, task, seed=9))) == (409, "round-closed")
    average(world, 2)
    assert world.assignment(fed.devices["c"])["gan_round"] == 2


def test_the_sweep_closes_a_round_whose_deadline_has_passed(world: World, move: Move) -> None:
    fed = training(world, "a", "b", "c", deadline_seconds=60)
    give(world, fed, "a")
    give(world, fed, "b", seed=8)
    sweep.sweep(world.store)
    assert queued(world) == []
    move(61)
    for _ in range(2):
        sweep.sweep(world.store)
    assert queued(world) == ["generator"]


def test_a_revoked_client_is_neither_waited_for_nor_averaged(world: World) -> None:
    fed = training(world, "a", "b", "bad", "gone")
    for seed, name in enumerate(("a", "b", "bad")):
        give(world, fed, name, seed=seed + 7)
    for name in ("bad", "gone"):
        world.ok("DELETE", f"/v1/federations/{fed.id}/clients/{fed.devices[name].id}")
    assert queued(world) == ["generator"]
    spec = load(world)
    assert [(each.client, each.num_samples) for each in spec.updates] == [("a", 10), ("b", 10)]
    assert all(each.weights.exists() for each in spec.updates)


def test_with_weights_that_read_no_discriminators_rounds_are_next(world: World) -> None:
    """The generator is for the data alone: nobody trains a discriminator, and nothing is scored."""
    generator = {"kind": "fedgan", "rounds": 1}
    options = {"data": {"kind": "generated"}, "weigh": {"kind": "uniform"}, "discriminators": {"generator": generator}}
    fed = world.create(recipe={"name": "fedgo-small", "options": options}, rounds={"total": 2, "min_clients": 1})
    world.enrol(fed, "a")
    world.ok("POST", f"/v1/federations/{fed.id}/start")
    world.finish(world.claim(), {"main": world.forge.arrays()})
    average(world, 1)
    give(world, fed, "a")
    assert load(world).discriminator is None
    with world.store.write() as session:
        (job,) = session.scalars(select(JobRow).where(JobRow.kind == "generator", JobRow.state == "running"))
    world.finish(job, {name: world.forge.arrays() for name in ("generator", "samples")}, {"input_range": [0.0, 1.0]})
    assert world.show(fed)["state"] == "running" and queued(world) == []
    late = world.enrol(fed, "late")
    assert world.assignment(fed.devices["a"])["action"] == "train"
    assert world.assignment(late)["action"] == "wait"
    refusal = world.site.request(
        "PUT", f"/v1/federations/{fed.id}/discriminator", token=late.token, body=world.forge.pack(world.forge.arrays(2))
    )
    assert refused(refusal) == (409, "invalid-transition")


def test_a_federation_that_waits_for_discriminators_that_nobody_reads_goes_on(world: World) -> None:
    """It was created by a version that collected them all the same."""
    fed = world.collecting(["a"])
    with world.store.write() as session:
        row = reading.get_locked(session, fed.id)
        tree = copy.deepcopy(row.config)
        tree["recipe"]["distil"] |= {"weigh": {"kind": "uniform"}, "data": {"kind": "generated"}}
        row.config = tree
    reading._parsed.cache_clear()
    with world.store.write() as session:
        lifecycle.proceed(session, reading.get_locked(session, fed.id))
    assert world.show(fed)["state"] == "running"
    assert world.assignment(fed.devices["a"])["action"] == "train"


def load(world: World) -> GeneratorSpec:
    """Claim the averaging job and return what the worker is told."""
    job = world.claim()
    ledger = Ledger(world.settings)
    try:
        spec = ledger.load(Claimed(job.id, job.kind, job.fence, job.attempt, job.federation_id, None))
    finally:
        ledger.leave()
    assert isinstance(spec, GeneratorSpec)
    return spec


def test_the_averaging_job_is_told_what_went_out_and_what_came_back_by_name(world: World) -> None:
    fed = training(world, "b", "a")
    task = world.assignment(fed.devices["a"])
    bodies = {name: file(world, task, seed, num_samples=str(seed)) for seed, name in enumerate(("b", "a"), start=3)}
    for name, body in bodies.items():
        assert send(world, fed, name, body).status_code == 201
    spec = load(world)
    assert (spec.gan_round, spec.generator.kind) == (1, "fedgan")
    assert spec.gan is not None and sums_of(spec.gan).digest == task["model"]["digest"]
    assert [(each.client, each.num_samples) for each in spec.updates] == [("a", 4), ("b", 3)]
    assert [each.weights.read_bytes() for each in spec.updates] == [bodies["a"], bodies["b"]]


def test_an_averaging_job_that_failed_is_retried_from_the_same_files(world: World) -> None:
    fed = training(world, "a", "b")
    give(world, fed, "a")
    give(world, fed, "b", seed=8)
    job = world.claim()
    with world.store.write() as session:
        publishing.give_up(session, jobs.held(session, job.id, job.fence), "internal", "a fault of ours")
    assert world.show(fed)["state"] == "failed"
    assert collect(world.store.database, world.blobs.store, -1) == 0
    world.ok("POST", f"/v1/jobs/{job.id}/retry")
    assert (world.show(fed)["state"], world.show(fed)["error"]) == ("training_generator", None)
    assert len(load(world).updates) == 2


def test_who_has_delivered_which_round_is_listed(world: World) -> None:
    fed = training(world, "a", "b", "idle")

    def listed() -> dict[str, list[int]]:
        items = world.ok("GET", f"/v1/federations/{fed.id}/clients")["items"]
        return {item["name"]: item["gan_rounds"] for item in items}

    assert listed() == {"a": [], "b": [], "idle": []}
    for name in ("a", "b"):
        give(world, fed, name)
    assert (listed(), world.show(fed)["gan_round"]) == ({"a": [1], "b": [1], "idle": []}, 1)
    give(world, fed, "idle", seed=9)
    average(world, 2)
    give(world, fed, "idle", seed=11)
    assert (listed(), world.show(fed)["gan_round"]) == ({"a": [1], "b": [1], "idle": [1, 2]}, 2)


def test_a_cancelled_federation_lets_go_of_its_generators(world: World) -> None:
    fed = training(world, "a", "b")
    task = world.assignment(fed.devices["b"])
    before = world.files()
    give(world, fed, "a")
    assert len(world.files()) == len(before) + 1
    world.ok("POST", f"/v1/federations/{fed.id}/cancel")
    assert world.files() == before
    assert refused(send(world, fed, "b", file(world, task, seed=8))) == (409, "round-closed")


def test_files_that_are_not_what_was_asked_for_leave_nothing(world: World) -> None:
    fed, imported = training(world, "a", "b"), world.collecting(["p"])
    task, before = world.assignment(fed.devices["a"]), world.files()
    arrays = world.forge.arrays(7)
    notes = {"num_samples": "10", "base_model": task["model"]["id"]}
    main = world.show(fed)["models"]["main"]["id"]
    for body, status, kind in (
        (world.forge.pack({**arrays, "fc.bias": arrays["fc.bias"] * float("nan")}, notes), 422, "invalid-values"),
        (world.forge.pack({**arrays, "more": arrays["fc.bias"]}, notes), 422, "invalid-tensors"),
        (file(world, task, num_samples=None), 422, "invalid-field"),
        (file(world, task, num_samples="10000001"), 422, "invalid-field"),
        (file(world, task, base_model=None), 422, "invalid-field"),
        (file(world, task, base_model=main), 409, "stale-base-model"),
        (file(world, task, base_model="mdl_none"), 409, "stale-base-model"),
    ):
        assert refused(send(world, fed, "a", body)) == (status, kind)
    body = file(world, task)
    assert refused(send(world, imported, "p", body)) == (409, "invalid-transition")
    response = world.site.request("PUT", f"/v1/federations/{imported.id}/gan", token=fed.devices["a"].token, body=body)
    assert refused(response) == (403, "forbidden")
    assert world.files() == before


def test_before_the_first_networks_are_made_none_is_taken(world: World) -> None:
    generator = {"kind": "fedgan"}
    options = {"data": {"kind": "generated"}, "discriminators": {"generator": generator, "plan": SMALL}}
    fed = world.create(recipe={"name": "fedgo-small", "options": options})
    world.enrol(fed, "a")
    body = world.forge.pack(world.forge.arrays(), {"num_samples": "1", "base_model": "mdl_1"})
    assert refused(send(world, fed, "a", body)) == (409, "invalid-transition")


def test_an_upload_that_ends_after_its_round_closed_does_not_count(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = training(world, "a", "b")
    body = file(world, world.assignment(fed.devices["a"]))
    accept = generators.accept

    def slow(session: Any, ticket: Any, *rest: Any) -> Any:
        federation = reading.locked(session, ticket.federation_id)
        federation.collect_deadline_at = None  # another upload closed the round before the last byte of this one
        session.flush()
        return accept(session, ticket, *rest)

    before = world.files()
    monkeypatch.setattr(generators, "accept", slow)
    assert refused(send(world, fed, "a", body)) == (409, "round-closed")
    assert world.files() == before


def test_a_generators_samples_are_held_to_what_was_declared(world: World) -> None:
    fed = training(world, "a", "b")
    task = world.assignment(fed.devices["a"])
    response = send(world, fed, "a", file(world, task, num_samples="11"))
    assert refused(response) == (422, "invalid-field")
    assert (response.json()["field"], response.json()["expected"]) == ("num_samples", 10)
    url, token = "/v1/declaration", fed.devices["a"].token
    assert world.site.request("PUT", url, token=token, json={"num_samples": 11}).status_code == 200
    body = file(world, task, num_samples="11")
    assert send(world, fed, "a", body).status_code == 201
    assert world.site.request("PUT", url, token=token, json={"num_samples": 3}).status_code == 200
    assert send(world, fed, "a", body).status_code == 200
