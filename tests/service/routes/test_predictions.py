"""DS-FL over HTTP: the public set goes out with the assignment, predictions come in and nothing else does."""

from typing import Any

import numpy as np
import pytest

from contract.wire.problems import TYPE_PREFIX
from tests.service.world import Fed, World

INPUTS = np.arange(10, dtype=np.float32).reshape(5, 2)


@pytest.fixture
def fed(world: World) -> Fed:
    data = world.dataset(inputs=INPUTS, labels=np.zeros(5, np.int64))
    made = world.create(recipe={"name": "ds-fl"}, datasets={"unlabeled": data["id"]}, rounds={"total": 2})
    for name in ("a", "b"):
        world.enrol(made, name)
    world.ok("POST", f"/v1/federations/{made.id}/start")
    world.finish(world.claim(), {"main": world.forge.arrays()}, state={"send.public": {"inputs": INPUTS}})
    return made


def body(world: World, fed: Fed, values: Any) -> bytes:
    metadata = {"num_samples": "10", "base_model": world.round(fed)["base_models"]["main"]}
    return world.forge.pack({"predictions": np.asarray(values, np.float32)}, metadata)


def fair(world: World, rows: int = 5) -> np.ndarray:
    classes = world.body()["task"]["num_classes"]
    return np.full((rows, classes), 1 / classes)


def test_the_public_set_reaches_devices_of_the_federation_and_no_others(world: World, fed: Fed) -> None:
    extras = world.assignment(fed.devices["a"])["extras"]
    assert set(extras) == {"public"}
    got = world.site.request("GET", extras["public"]["url"], token=fed.devices["a"].token)
    assert got.status_code == 200 and got.content == world.blobs.cache.path(extras["public"]["digest"]).read_bytes()
    stranger = world.enrol(world.create(), "c")
    assert world.site.request("GET", extras["public"]["url"], token=stranger.token).status_code == 403


def test_predictions_count_and_the_targets_go_out_next(world: World, fed: Fed) -> None:
    public = world.assignment(fed.devices["a"])["extras"]["public"]
    for number, name in enumerate(("a", "b")):
        values = fair(world)
        values[:, 0], values[:, 1] = values[:, 0] + 0.01 * number, values[:, 1] - 0.01 * number
        response = world.push(fed, name, body(world, fed, values))
        assert response.status_code == 201, response.text
    state = {"send.public": {"inputs": INPUTS}, "send.targets": {"targets": fair(world).astype(np.float32)}}
    world.finish(world.claim(), {"main": world.forge.arrays(2)}, state=state)
    extras = world.assignment(fed.devices["a"])["extras"]
    assert set(extras) == {"public", "targets"}
    assert extras["public"] == public


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda values: values * 2, "invalid-values"),
        (lambda values: values + np.eye(5, values.shape[1]), "invalid-values"),
        (lambda values: values[:4], "invalid-tensors"),
        (lambda values: values[:, :1], "invalid-tensors"),
    ],
    ids=["sum 2", "some rows", "a row too few", "one class"],
)
def test_what_is_no_prediction_is_refused_and_leaves_nothing(world: World, fed: Fed, change: Any, kind: str) -> None:
    before = world.files()
    response = world.push(fed, "a", body(world, fed, change(fair(world))))
    assert response.status_code == 422
    assert response.json()["type"] == TYPE_PREFIX + kind
    assert response.json()["tensor"] == "predictions"
    assert world.files() == before and world.updates() == 0


def test_weights_are_refused(world: World, fed: Fed) -> None:
    response = world.push(fed, "a", world.update(fed))
    assert response.status_code == 422
    assert response.json()["type"] == TYPE_PREFIX + "invalid-tensors"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"recipe": {"name": "ds-fl"}}, "recipe.distil.data"),
        ({"recipe": {"name": "fedavg"}, "local": {"objective": {"kind": "ds_fl"}}}, "recipe.fuse"),
        ({"recipe": {"name": "ds-fl"}, "local": {}}, "recipe.fuse"),
    ],
)
def test_half_of_the_method_is_refused_at_creation(world: World, changes: Any, field: str) -> None:
    response = world.op("POST", "/v1/federations", json=world.body(**changes))
    assert response.status_code == 422
    assert response.json()["field"] == field
