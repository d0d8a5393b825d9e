"""The gate in a live federation: what is not published, what stays, what follows."""

from typing import Any

import numpy as np
import pytest

from contract.wire.problems import TYPE_PREFIX
from service.operations.progress import reading
from tests.service.world import Fed, World

LABELS = np.arange(5, dtype=np.int64) % 3


def gated(world: World, names: str = "ab", gate: dict[str, Any] | None = None, **changes: Any) -> Any:
    data = world.dataset(labels=LABELS)
    rounds = {"total": 9, "gate": {"max_drop": 0.05, **(gate or {})}, **changes.pop("rounds", {})}
    return world.running(names, rounds=rounds, datasets={"validation": data["id"], "test": data["id"]}, **changes)


def fuse(world: World, fed: Fed, seed: int, before: float, after: float, **more: Any) -> Any:
    """Let a round end with these accuracies; return it."""
    for number, name in enumerate(fed.devices):
        assert world.push(fed, name, world.update(fed, seed=100 * seed + number)).status_code == 201
    index = world.show(fed)["round"]
    gate = {"metric": "validation_accuracy", "models": {"main": {"before": before, "after": after}}}
    metrics = {"accuracy": after, "gate": gate, "weights": {}}
    world.finish(world.claim(), {"main": world.forge.arrays(seed)}, metrics, **more)
    return world.round(fed, index)


def current(world: World, fed: Fed) -> str:
    return str(world.show(fed)["models"]["main"]["digest"])


@pytest.mark.parametrize("metric", ["validation_accuracy", "test_accuracy"])
def test_a_gate_needs_the_set_that_it_measures_on(world: World, metric: str) -> None:
    body = world.body(rounds={"gate": {"metric": metric}})
    response = world.op("POST", "/v1/federations", json=body)
    assert (response.status_code, response.json()["type"]) == (422, TYPE_PREFIX + "invalid-field")
    assert response.json()["field"] == "rounds.gate"
    assert f"datasets.{metric.removesuffix('_accuracy')}" in response.json()["detail"]


@pytest.mark.parametrize("gate", [{"max_drop": 1.5}, {"max_drop": -0.1}, {"action": "hope"}, {"metric": "loss"}])
def test_gates_that_cannot_be(world: World, gate: dict[str, Any]) -> None:
    data = world.dataset(labels=LABELS)
    body = world.body(rounds={"gate": gate}, datasets={"validation": data["id"], "test": data["id"]})
    assert world.op("POST", "/v1/federations", json=body).status_code == 422


def test_a_model_that_falls_too_far_is_not_published(world: World) -> None:
    fed = gated(world)
    first = fuse(world, fed, 1, 0.5, 0.6)
    assert first["state"] == "published"
    assert first["metrics"]["gate"]["models"]["main"] == {"before": 0.5, "after": 0.6, "passed": True}
    good, url = current(world, fed), f"/v1/models?federation={fed.id}"
    weights = world.blobs.cache.path(good).read_bytes()
    second = fuse(world, fed, 2, 0.6, 0.5)
    assert (second["state"], second["models"], second["published_at"]) == ("skipped", {}, None)
    assert second["reason"].startswith("gate_rejected: validation accuracy of 'main' fell from 0.6000 to 0.5000")
    assert second["metrics"]["gate"]["models"]["main"]["passed"] is False
    shown = world.show(fed)
    assert (current(world, fed), shown["accuracy"], shown["state"]) == (good, 0.6, "running")
    assert "gate_rejected" in shown["detail"]
    assert world.blobs.cache.path(good).read_bytes() == weights
    assert len(world.ok("GET", url)["items"]) == 2  # the first one and round 1's
    third = world.round(fed)
    assert (third["index"], third["state"], third["base_models"]) == (3, "collecting", first["models"])
    stored = {name for name in world.files() if not name.startswith("tmp")}
    assert not any(p["digest"].removeprefix("sha256-") in name for p in second["participants"] for name in stored)
    fuse(world, fed, 3, 0.6, 0.56)  # by less than it may
    assert (world.round(fed, 3)["state"], world.show(fed)["accuracy"], world.show(fed)["detail"]) == (
        "published",
        0.56,
        None,
    )


def test_it_can_pause_the_federation(world: World) -> None:
    fed = gated(world, gate={"action": "pause"})
    good = current(world, fed)
    round_ = fuse(world, fed, 1, 0.6, 0.5)
    shown = world.show(fed)
    assert (round_["state"], shown["state"], shown["error"]) == ("skipped", "paused", "gate_rejected")
    assert "fell from" in shown["detail"]
    assert current(world, fed) == good
    resumed = world.ok("POST", f"/v1/federations/{fed.id}/resume")
    assert (resumed["state"], resumed["round"], resumed["error"]) == ("running", 2, None)


def test_it_can_go_back_to_the_best(world: World) -> None:
    fed = gated(world, gate={"action": "rollback"})
    best = fuse(world, fed, 1, 0.5, 0.8)["models"]["main"]
    fuse(world, fed, 2, 0.8, 0.77, state={"velocity.main": {"x": np.zeros(1, np.float32)}})
    fuse(world, fed, 3, 0.77, 0.74, state={"velocity.main": {"x": np.ones(1, np.float32)}})
    bad = fuse(world, fed, 4, 0.74, 0.2, state={"velocity.main": {"x": np.full(1, 2, np.float32)}})
    assert bad["metrics"]["gate"]["rolled_back"] == {"main": best}
    assert world.round(fed)["base_models"]["main"] == best
    assert world.show(fed)["models"]["main"]["id"] == best
    with world.store.read() as session:
        assert reading.carried_state(session, fed.id) == {}
    again = fuse(world, fed, 5, 0.8, 0.1)  # there is nothing better to go back to
    assert "rolled_back" not in again["metrics"]["gate"]
    assert world.round(fed)["base_models"]["main"] == best


def test_it_goes_back_to_the_best_that_is_still_there(world: World) -> None:
    fed = gated(world, gate={"action": "rollback"}, retention={"models": 2})
    gone = fuse(world, fed, 1, 0.5, 0.8)["models"]["main"]
    better = fuse(world, fed, 2, 0.8, 0.77)["models"]["main"]
    fuse(world, fed, 3, 0.77, 0.74)
    assert world.ok("GET", f"/v1/models/{gone}")["removed_at"] is not None
    bad = fuse(world, fed, 4, 0.74, 0.2)
    assert bad["metrics"]["gate"]["rolled_back"] == {"main": better}


def test_rejections_do_not_go_on_for_ever(world: World) -> None:
    fed = gated(world, rounds={"max_skipped": 2})
    for seed in (1, 2):
        fuse(world, fed, seed, 0.6, 0.1)
    shown = world.show(fed)
    assert (shown["state"], shown["error"], shown["round"]) == ("paused", "rounds_skipped", 2)
    assert "gate_rejected" in shown["detail"]


def test_a_federation_that_published_nothing_says_that_the_gate_is_why(world: World) -> None:
    fed = gated(world, rounds={"total": 1})
    fuse(world, fed, 1, 0.6, 0.1)
    assert (world.show(fed)["state"], world.show(fed)["error"]) == ("failed", "gate_rejected")


def test_each_prototype_is_judged_alone(world: World) -> None:
    networks = [{"name": name, "architecture": "mlp", "options": {"hidden": [4]}} for name in ("small", "large")]
    data = world.dataset(labels=LABELS)
    plan = {"total": 9, "min_clients": 1, "gate": {"max_drop": 0.0}}
    fed = world.create(prototypes=networks, rounds=plan, datasets={"validation": data["id"]})
    world.enrol(fed, "a")
    world.ok("POST", f"/v1/federations/{fed.id}/start")
    world.finish(world.claim(), {"small": world.forge.arrays(1), "large": world.forge.arrays(2)})
    base = world.round(fed)["base_models"]
    metadata = {"num_samples": "10", "base_model": base["small"]}
    body = world.forge.pack(world.forge.arrays(3), metadata)
    assert world.push(fed, "a", body).status_code == 201
    figures = {"small": {"before": 0.5, "after": 0.7}, "large": {"before": 0.5, "after": 0.4}}
    gate = {"metric": "validation_accuracy", "models": figures}
    small = {"x": np.zeros(1, np.float32)}
    state = {"velocity.small": small, "velocity.large": small, "control.large": small}
    files = {"small": world.forge.arrays(4), "large": world.forge.arrays(5)}
    world.finish(world.claim(), files, {"gate": gate, "accuracy": 0.55}, state=state)
    round_ = world.round(fed, 1)
    assert (round_["state"], set(round_["models"])) == ("published", {"small"})
    assert round_["reason"].startswith("gate_rejected: validation accuracy of 'large'")
    assert "accuracy" not in round_["metrics"]
    following = world.round(fed)["base_models"]
    assert (following["large"], following["small"]) == (base["large"], round_["models"]["small"])
    with world.store.read() as session:
        assert set(reading.carried_state(session, fed.id)) == {"velocity.small", "control.large"}
