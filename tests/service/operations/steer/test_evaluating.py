"""What devices measured of a model: in the round, with the model, and not of single ones where data are private."""

import json
from typing import Any

import pytest

from tests.service.world import Fed, World


def fuse(world: World, fed: Fed, figures: dict[str, float | None], seed: int = 9) -> Any:
    """Let a round end in which these devices measured these accuracies; return it."""
    round_ = world.round(fed)
    for number, (name, value) in enumerate(figures.items()):
        told: dict[str, Any] = {"loss": 1.0, "epsilon": 0.5}
        if value is not None:
            told["evaluation"] = {"num_samples": 5, "loss": 0.5, "metrics": {"accuracy": value}}
        pushed = world.push(fed, name, world.update(fed, seed=number + 1, metrics=json.dumps(told)))
        assert pushed.status_code == 201, pushed.text
    world.finish(world.claim(), {"main": world.forge.arrays(seed)})
    return world.round(fed, round_["index"])


def test_a_round_says_how_good_its_model_was_on_devices(world: World) -> None:
    fed = world.running("abc", rounds={"evaluate": {}})
    done = fuse(world, fed, {"a": 0.5, "b": 0.75, "c": None})
    figures = done["metrics"]["evaluation"]["main"]
    assert (figures["devices"], figures["samples"]) == (2, 10)
    assert figures["figures"]["accuracy"]["median"] == 0.625
    assert figures["figures"]["accuracy"]["worst_decile"] == 0.5
    base = world.ok("GET", f"/v1/models/{done['base_models']['main']}")
    assert base["metrics"]["devices"] == 0.625
    by_name = {person["name"]: person for person in done["participants"]}
    assert by_name["b"]["metrics"]["evaluation"]["metrics"] == {"accuracy": 0.75}


def test_nobody_is_asked_and_nothing_is_shown_without_the_option(world: World) -> None:
    fed = world.running("ab")
    assert "evaluation" not in fuse(world, fed, {"a": 0.5, "b": 0.5})["metrics"]


def test_the_assignment_carries_the_share(world: World) -> None:
    fed = world.running("a", rounds={"evaluate": {"share": 0.25, "every": 2}})
    assignment = world.site.request("GET", "/v1/assignment", token=fed.devices["a"].token).json()
    assert assignment["evaluate"] == {"share": 0.25, "every": 2}


def test_private_devices_are_shown_five_together_or_not_at_all(world: World) -> None:
    options = {"rounds": {"evaluate": {}, "total": 3}, "local": {"privacy": {}}}
    fed = world.running("abcde", **options)
    done = fuse(world, fed, dict.fromkeys("abcde", 0.5))
    assert done["metrics"]["evaluation"]["main"]["devices"] == 5
    assert all("evaluation" not in person["metrics"] for person in done["participants"])
    few = fuse(world, fed, {**dict.fromkeys("abcd", 0.5), "e": None})
    assert "evaluation" not in few["metrics"]


def gated(world: World, action: str) -> Fed:
    gate = {"metric": "devices", "max_drop": 0.05, "action": action}
    return world.running("abc", rounds={"total": 9, "evaluate": {}, "gate": gate})


@pytest.mark.parametrize("action", ["reject", "rollback", "pause"])
def test_a_model_that_devices_find_worse_is_withdrawn(world: World, action: str) -> None:
    """Medians 0.5, 0.75, 0.625 of the models of rounds 0, 1, 2: what round 3 made is dropped, round 1 is back."""
    fed = gated(world, action)
    fuse(world, fed, {"a": 0.5, "b": 0.5, "c": 0.0}, seed=11)
    second = fuse(world, fed, {"a": 0.75, "b": 0.75, "c": 1.0}, seed=12)
    assert second["metrics"]["gate"]["models"]["main"] == {"before": 0.5, "after": 0.75, "passed": True}
    good = second["base_models"]["main"]
    third = fuse(world, fed, {"a": 0.625, "b": 0.625, "c": 1.0}, seed=13)
    assert (third["state"], third["models"]) == ("skipped", {})
    assert "devices accuracy of 'main' fell from 0.7500 to 0.6250" in third["reason"]
    assert third["metrics"]["gate"]["rolled_back"] == {"main": good}
    shown = world.show(fed)
    assert shown["state"] == ("paused" if action == "pause" else "running")
    assert shown["models"]["main"]["id"] == good
    if action != "pause":
        fourth = fuse(world, fed, {"a": 0.1, "b": 0.1, "c": 0.1}, seed=14)  # it was measured: it is not judged again
        assert (fourth["state"], fourth["base_models"]["main"]) == ("published", good)
        assert "gate" not in fourth["metrics"]


def test_a_gate_by_devices_needs_their_figures(world: World) -> None:
    response = world.op("POST", "/v1/federations", json=world.body(rounds={"gate": {"metric": "devices"}}))
    assert (response.status_code, response.json()["field"]) == (422, "rounds.gate.metric")


@pytest.mark.parametrize(
    ("evaluation", "field"),
    [
        ({"num_samples": 0}, "num_samples"),
        ({"metrics": {"accuracy": 0.5}}, "num_samples"),
        ({"num_samples": 1, "metrics": {"accuracy": 1e300}}, "accuracy"),
        ({"num_samples": 1, "metrics": {"accuracy": 1.5}}, "accuracy"),
        ({"num_samples": 1, "metrics": {f"m{number}": 0.0 for number in range(17)}}, "metrics"),
        ({"num_samples": 1, "loss": "high"}, "loss"),
    ],
)
def test_figures_that_cannot_be_are_refused_by_name(world: World, evaluation: dict[str, Any], field: str) -> None:
    fed = world.running("a", rounds={"evaluate": {}})
    response = world.push(fed, "a", world.update(fed, metrics=json.dumps({"evaluation": evaluation})))
    assert response.status_code == 422
    assert field in response.json()["field"]
    assert world.updates() == 0


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"rounds": {"evaluate": {"share": 0.9}}}, "rounds.evaluate.share"),
        ({"rounds": {"evaluate": {}, "secure": {}}}, "rounds.evaluate"),
        ({"rounds": {"evaluate": {}}, "recipe": {"name": "ds-fl"}}, "rounds.evaluate"),
    ],
)
def test_plans_that_cannot_be(world: World, more: dict[str, Any], field: str) -> None:
    if "recipe" in more:
        more |= {"datasets": {"unlabeled": world.dataset()["id"]}}
    response = world.op("POST", "/v1/federations", json=world.body(**more))
    assert (response.status_code, response.json()["field"]) == (422, field)
