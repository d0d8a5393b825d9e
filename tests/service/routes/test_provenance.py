"""What a model was made from, as the service shows it."""

import json
from typing import Any

from service.infra.sums import sums_of
from service.operations.steer import publishing, retention
from service.operations.store import provenance
from service.operations.store.outcome import Outcome
from service.operations.store.provenance import digest_of
from tests.service.world import Fed, World

ORIGIN = {
    "seeds": [["round", 1, "distil", "main"]],
    "code": {"version": "1", "commit": None, "digest": "sha256-" + "c" * 64},
    "environment": {"device": "cpu", "threads": 2},
}


def publish(world: World, fed: Fed, spec: dict[str, Any], metrics: dict[str, Any]) -> dict[str, Any]:
    """Publish round 1 as a worker would that was told `spec`; return the round."""
    job = world.claim()
    path = world.blobs.scratch.temp()
    path.write_bytes(world.forge.pack(world.forge.arrays(77)))
    sums = sums_of(path)
    digest, size = sums.digest, sums.size
    world.blobs.store.keep(path, digest)
    outcome = Outcome({"main": (digest, size)}, metrics, origin={"spec": spec, **ORIGIN})
    with world.store.write() as session:
        publishing.publish(session, job.id, job.fence, outcome)
    with world.store.write() as session:
        retention.tidy(session, fed.id, world.settings.retention)
    return world.round(fed, 1)


def spec_of(world: World, fed: Fed, digests: dict[str, str]) -> dict[str, Any]:
    base = world.show(fed)["models"]["main"]["digest"]
    return {
        "kind": "round",
        "seed": 0,
        "prototypes": [{"name": "main", "network": {"weights": base}}],
        "updates": [{"client": name, "weights": digest} for name, digest in digests.items()],
        "datasets": {"unlabeled": None, "test": None},
    }


def fused(world: World, **changes: Any) -> tuple[Any, dict[str, Any]]:
    fed = world.running(["a", "b"], **changes)
    base = world.show(fed)["models"]["main"]["digest"]
    sent = {name: world.push(fed, name, world.update(fed, seed)).json() for seed, name in enumerate(("a", "b"), 1)}
    spec = spec_of(world, fed, {name: receipt["digest"] for name, receipt in sent.items()})
    spec["prototypes"][0]["network"]["weights"] = base
    return fed, publish(world, fed, spec, {"weights": {"a": 0.25, "b": 0.75}})


def test_a_document_names_every_input_and_its_digest_can_be_checked(world: World) -> None:
    fed, round_ = fused(world, retention={"updates": "all"})
    shown = world.ok("GET", f"/v1/rounds/{round_['id']}/provenance")
    document = shown["document"]
    assert shown["replayable"]
    assert shown["removed"] == []
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert digest_of(text) == shown["digest"]
    updates = [each for each in document["inputs"] if each.get("kind") == "update"]
    assert [(each["client"], each["num_samples"], each["weight"]) for each in updates] == [
        ("a", 10, 0.25),
        ("b", 10, 0.75),
    ]
    assert [each["place"] for each in updates] == [["updates", 0, "weights"], ["updates", 1, "weights"]]
    (base,) = [each for each in document["inputs"] if each.get("kind") == "model"]
    assert base["id"] == round_["base_models"]["main"]
    assert document["seeds"] == {"federation": 0, "derived": ORIGIN["seeds"]}
    assert document["job"] == {"id": round_["job_id"], "attempt": 1}
    assert (document["code"], document["environment"]) == (ORIGIN["code"], ORIGIN["environment"])
    model = round_["models"]["main"]
    assert document["outputs"]["models"]["main"] == world.ok("GET", f"/v1/models/{model}")["digest"]
    for path in (f"/v1/models/{model}/provenance", f"/v1/jobs/{round_['job_id']}/provenance"):
        assert world.ok("GET", path) == shown


def test_what_retention_has_removed_is_shown_so_and_is_no_error(world: World) -> None:
    _, round_ = fused(world)
    shown = world.ok("GET", f"/v1/rounds/{round_['id']}/provenance")
    gone = {each["digest"] for each in shown["document"]["inputs"] if each["kind"] == "update"}
    assert set(shown["removed"]) == gone
    assert len(gone) == 2
    assert not shown["replayable"]


def test_what_has_no_document_is_not_found(world: World) -> None:
    fed = world.running(["a"])
    model = world.show(fed)["models"]["main"]["id"]
    round_ = world.round(fed)["id"]
    job = world.ok("GET", "/v1/jobs")["items"][0]["id"]
    for path in (f"models/{model}", f"rounds/{round_}", f"jobs/{job}", "models/mdl_1", "rounds/rnd_1", "jobs/job_1"):
        answer = world.op("GET", f"/v1/{path}/provenance")
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:potstill:problem:not-found"), path


def test_devices_may_not_read_who_took_part(world: World) -> None:
    fed, round_ = fused(world)
    answer = world.site.request("GET", f"/v1/rounds/{round_['id']}/provenance", token=fed.devices["a"].token)
    assert answer.status_code == 403


def test_a_client_name_with_any_letters_keeps_its_place() -> None:
    digest = "sha256-" + "a" * 64
    tree = {"scores": {"a.b/ü": digest}, "n": [1, {"x": digest}], "text": f"{digest} and more"}
    assert list(provenance.places(tree)) == [(("scores", "a.b/ü"), digest), (("n", 1, "x"), digest)]
