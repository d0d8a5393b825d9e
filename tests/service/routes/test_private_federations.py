"""Federations whose devices train with differential privacy: what is asked, taken and refused."""

import json

import numpy as np
import pytest

from tests.service.world import World, refused

PLAN = {"privacy": {"noise_multiplier": 1.5}}
NETWORK = {"architecture": "disc-mlp", "options": {"hidden": [4]}}


def fedgo(**options: object) -> dict[str, object]:
    return {"name": "fedgo-small", "options": {"discriminators": {"plan": NETWORK}, **options}}


@pytest.mark.parametrize(
    ("recipe", "field", "said"),
    [
        ({"name": "feddisco"}, "local.privacy", "samples per class would be sent without noise"),
        ({"name": "fedma"}, "local.privacy", "set fuse.by_class to false"),
    ],
)
def test_recipes_that_would_send_more_are_refused_at_creation(
    world: World, recipe: dict[str, object], field: str, said: str
) -> None:
    response = world.op("POST", "/v1/federations", json=world.body(recipe=recipe, local=PLAN))
    assert refused(response) == (422, "invalid-field")
    assert response.json()["field"] == field and said in response.json()["detail"]


def test_discriminators_are_asked_for_with_noise_and_say_what_they_cost(world: World) -> None:
    """Whoever does not say so has an SDK that trained it without: it is not kept."""
    fed = world.collecting(["a", "b"], local=PLAN)
    task = world.assignment(fed.devices["a"])
    assert task["action"] == "train_discriminator" and task["privacy"]["noise_multiplier"] == 1.5
    url, before = f"/v1/federations/{fed.id}/discriminator", world.files()
    arrays = world.forge.arrays(2)
    for metadata in ({}, {"metrics": "{}"}, {"metrics": json.dumps({"epsilon": None})}):
        response = world.site.request("PUT", url, token=fed.devices["a"].token, body=world.forge.pack(arrays, metadata))
        assert refused(response) == (422, "invalid-field") and response.json()["field"] == "metrics.epsilon"
    assert world.files() == before and world.show(fed)["discriminators"] == 0
    body = world.forge.pack(arrays, {"metrics": json.dumps({"epsilon": 2.5})})
    assert world.site.request("PUT", url, token=fed.devices["a"].token, body=body).status_code == 201


def test_generators_are_asked_for_with_noise_and_say_what_they_cost(world: World) -> None:
    generator = {"kind": "fedgan", "rounds": 1}
    options = {"data": {"kind": "generated"}, "discriminators": {"generator": generator, "plan": NETWORK}}
    fed = world.create(
        recipe={"name": "fedgo-small", "options": options}, local=PLAN, rounds={"total": 2, "min_clients": 1}
    )
    world.enrol(fed, "a")
    world.ok("POST", f"/v1/federations/{fed.id}/start")
    world.finish(world.claim(), {"main": world.forge.arrays()})
    world.finish(world.claim(), {"gan": world.forge.arrays(1)})
    task = world.assignment(fed.devices["a"])
    assert task["action"] == "train_gan" and task["privacy"]["noise_multiplier"] == 1.5
    metadata = {"num_samples": "10", "base_model": task["model"]["id"]}
    answers = []
    for more in ({}, {"metrics": json.dumps({"epsilon": 1.0})}):
        body = world.forge.pack(world.forge.arrays(7), metadata | more)
        answers.append(world.site.request("PUT", task["upload_url"], token=fed.devices["a"].token, body=body))
    assert refused(answers[0]) == (422, "invalid-field") and answers[1].status_code == 201


def test_without_privacy_nothing_of_it_is_asked(world: World) -> None:
    fed = world.collecting(["a", "b"])
    assert world.assignment(fed.devices["a"])["privacy"] is None


def test_samples_per_class_are_not_kept(world: World) -> None:
    fed = world.create(local=PLAN)
    body = {"name": "a", "num_samples": 10, "label_counts": [5, 5, 0]}
    response = world.site.request("POST", f"/v1/federations/{fed.id}/clients", token=fed.join_token, json=body)
    assert refused(response) == (422, "invalid-field") and response.json()["field"] == "label_counts"
    assert world.ok("GET", f"/v1/federations/{fed.id}/clients")["items"] == []


def test_a_critic_that_cannot_be_trained_privately_is_refused(world: World) -> None:
    images = np.zeros((5, 3, 32, 32), np.float32)
    data = world.dataset(inputs=images)
    task = {"kind": "classification", "num_classes": 3, "input": {"shape": [3, 32, 32], "dtype": "float32"}}
    plan = {"architecture": "disc-cnn-4"}
    recipe = {"name": "fedgo-small", "options": {"discriminators": {"plan": plan}}}
    body = world.body(recipe=recipe, local=PLAN, task=task, datasets={"unlabeled": data["id"]})
    response = world.op("POST", "/v1/federations", json=body)
    assert refused(response) == (422, "invalid-field")
    assert response.json()["field"] == "recipe.discriminators.plan.architecture"
    assert "norm=gn" in response.json()["detail"]
