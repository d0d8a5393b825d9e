"""Federations that train a part of a network, by the service and its worker: what is stored, served, made again."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.nn.codec import save_state
from contract.nn.registry import initialise
from contract.tensors import TensorFile, parse_header, write_file
from contract.updates import BASE_KEY, FEATURES_KEY
from contract.wire.federations import Task
from potstill.ensembles import load_ensemble
from tests.service.conftest import SettingsMaker
from tests.service.plant import Plant
from tests.service.world import TASK, Fed, World, refused

pytestmark = pytest.mark.timeout(600)  # a loaded machine is no defect
NETWORK = {"architecture": "mlp", "options": {"hidden": [4]}}
PARTED = [{**NETWORK, "trains": ["3.*"]}]
TRAINED, BASE = {"3.weight", "3.bias"}, {"1.weight", "1.bias"}
STEPS = {"schedule": {"steps": 3, "batch_size": 8}}


@pytest.fixture(scope="module")
def plant(make_settings: SettingsMaker, world_of: type[World]) -> Iterator[Plant]:
    made = Plant(world_of(make_settings(device="cpu", torch_threads=1)))
    yield made
    made.close()


def names(body: bytes) -> set[str]:
    return set(parse_header(body, len(body)).tensors)


def download(plant: Plant, url: str, **headers: str) -> Any:
    response = plant.world.op("GET", url, headers=headers)
    assert response.is_success, response.text
    return response


@pytest.fixture(scope="module")
def fed(plant: Plant) -> Fed:
    recipe = {"name": "feddf", "options": STEPS}
    fed = plant.begin(recipe, prototypes=PARTED, test=True, rounds={"total": 2, "keep_ensemble": True})
    assert isinstance(fed, Fed)
    task = plant.world.assignment(fed.devices["a"])
    assert task["prototype"]["trains"] == ["3.*"]
    assert task["model"]["url"].endswith("?part=trained")
    assert set(task["extras"]) == {"base"}
    plant.go_on(fed)
    return fed


def test_a_device_is_sent_the_trained_tensors_and_the_base_by_itself(plant: Plant, fed: Fed) -> None:
    done = plant.world.assignment(fed.devices["a"])
    assert done["action"] == "done"
    device = fed.devices["a"].token
    model, base = (
        plant.world.site.request("GET", done[what]["url"], token=device).content for what in ("model", "base")
    )
    assert (names(model), names(base)) == (TRAINED, BASE)
    assert (len(model), len(base)) == (done["model"]["size"], done["base"]["size"])
    assert parse_header(model, len(model)).metadata[BASE_KEY] == done["base"]["digest"]


def test_a_model_is_downloaded_whole_unless_its_trained_tensors_are_asked_for(plant: Plant, fed: Fed) -> None:
    shown = plant.world.show(fed)["models"]["main"]
    model = plant.world.ok("GET", f"/v1/models/{shown['id']}")
    assert model["base"] is not None
    assert model["url"] == shown["url"] == f"/v1/models/{shown['id']}/weights?part=trained"
    trained = download(plant, model["url"])
    assert names(trained.content) == TRAINED
    assert trained.headers["etag"] == f'"{model["digest"]}"'
    whole = download(plant, f"/v1/models/{shown['id']}/weights")
    assert names(whole.content) == TRAINED | BASE
    assert whole.headers["etag"] != trained.headers["etag"]


def test_the_whole_file_has_a_digest_and_goes_on_where_it_broke_off(plant: Plant, fed: Fed) -> None:
    url = f"/v1/models/{plant.world.show(fed)['models']['main']['id']}/weights"
    whole = download(plant, url)
    assert whole.headers["etag"] == f'"sha256-{hashlib.sha256(whole.content).hexdigest()}"'
    assert whole.headers["content-length"] == str(len(whole.content))
    for start in (1, 20, len(whole.content) - 70, len(whole.content) - 3):  # in the head, and in either blob
        rest = download(plant, url, Range=f"bytes={start}-")
        assert (rest.status_code, rest.content) == (206, whole.content[start:])
    assert download(plant, url, Range="bytes=300-310").content == whole.content[300:311]
    assert plant.world.op("GET", url, headers={"If-None-Match": whole.headers["etag"]}).status_code == 304
    assert plant.world.op("HEAD", url).headers["content-length"] == str(len(whole.content))


def test_all_rounds_have_one_base(plant: Plant, fed: Fed) -> None:
    listed = plant.world.ok("GET", f"/v1/models?federation={fed.id}")["items"]
    states = [each for each in listed if each["role"] == "state"]
    assert len(states) == 1
    parted = [each for each in listed if each["role"] in ("initial", "global")]
    assert [each["round"] for each in parted] == [0, 1, 2]
    assert {each["base"] for each in parted} == {states[0]["digest"]}


def test_what_was_published_is_made_again_from_base_and_updates(plant: Plant, fed: Fed) -> None:
    reports = plant.again(fed)
    assert [report.verdict for report in reports] == ["equal"] * len(reports)
    assert {result.name for report in reports for result in report.results} >= {"main", "send.base.main"}


def test_predictions_and_ensembles_run_the_whole_network(plant: Plant, fed: Fed, tmp_path: Path) -> None:
    data = plant.world.show(fed)["datasets"]["test"]
    for wish in ({"dataset": data}, {"dataset": data, "ensemble": True}):
        asked = plant.world.ok("POST", f"/v1/federations/{fed.id}/predict", json=wish)
        plant.runner.drain()
        found = plant.world.ok("GET", f"/v1/predictions/{asked['id']}")
        assert found["state"] == "done", found
        if not wish.get("ensemble"):
            assert found["accuracy"] == plant.world.show(fed)["accuracies"][-1][1]
    file = tmp_path / "ensemble.tar"
    file.write_bytes(download(plant, f"/v1/rounds/{plant.world.round(fed, 2)['id']}/ensemble/bundle").content)
    with TensorFile(plant.world.blobs.cache.path(plant.world.ok("GET", f"/v1/datasets/{data}")["digest"])) as samples:
        inputs, labels = samples.read("inputs"), samples.read("labels")
    with load_ensemble(file, threads=1) as loaded:
        loaded._computers.close()
        loaded._computers = plant.computers
        assert loaded.predict(inputs, labels).accuracy == found["accuracy"]


def test_a_rollback_and_a_promotion_keep_the_base(plant: Plant, fed: Fed) -> None:
    plant.world.ok("POST", f"/v1/federations/{fed.id}/rollback", json={"round": 1})
    done = plant.world.assignment(fed.devices["a"])
    assert done["base"] is not None
    first = plant.world.round(fed, 1)["models"]["main"]
    assert done["model"]["id"] == first
    assert plant.world.ok("POST", f"/v1/models/{plant.world.round(fed, 2)['models']['main']}/promote")["base"]


def test_a_part_of_another_network_is_not_promoted(plant: Plant, fed: Fed) -> None:
    arrays = {"3.weight": np.ones((3, 4), np.float32), "3.bias": np.ones(3, np.float32)}
    made = plant.world.ok(
        "POST", "/v1/models?architecture=mlp", body=plant.world.forge.pack(arrays, {FEATURES_KEY: "4"})
    )
    wish = {"federation": fed.id, "prototype": "main"}
    response = plant.world.op("POST", f"/v1/models/{made['id']}/promote", json=wish)
    assert refused(response) == (422, "invalid-field")
    assert BASE_KEY in response.json()["detail"]


# ------------------------------------------------------------------------------------------------ how they begin
def imported(plant: Plant, tmp_path: Path, without: set[str], **metadata: str) -> str:
    module = initialise("mlp", {"hidden": [4]}, Task.model_validate(TASK), 5)
    save_state(module, tmp_path / "all.safetensors")
    with TensorFile(tmp_path / "all.safetensors") as file:
        arrays = {name: file.read(name) for name in file.names if name not in without}
    write_file(tmp_path / "some.safetensors", arrays, metadata)
    body = (tmp_path / "some.safetensors").read_bytes()
    return str(plant.world.ok("POST", "/v1/models?architecture=mlp", body=body)["id"])


def started(plant: Plant, prototype: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return plant.world.show(plant.begin({"name": "fedavg"}, "ab", prototypes=[prototype], **changes))


def test_an_imported_network_may_lack_what_devices_train(plant: Plant, tmp_path: Path) -> None:
    model = imported(plant, tmp_path, without=TRAINED)
    found = started(plant, {**NETWORK, "trains": ["3.*"], "initial_model": model})
    assert found["state"] == "running", found["detail"]
    again = started(plant, {**NETWORK, "trains": ["3.*"], "initial_model": model})
    assert again["models"]["main"]["digest"] == found["models"]["main"]["digest"]  # drawn from the seed


def test_an_imported_network_may_lack_nothing_else(plant: Plant, tmp_path: Path) -> None:
    found = started(plant, {**NETWORK, "trains": ["3.*"], "initial_model": imported(plant, tmp_path, {"1.bias"})})
    assert (found["state"], found["error"]) == ("failed", "schema_mismatch")
    assert "missing: '1.bias'" in found["detail"] or "unknown: '1.bias'" in found["detail"]


def test_an_adapter_is_no_first_model(plant: Plant, tmp_path: Path) -> None:
    model = imported(plant, tmp_path, BASE, **{BASE_KEY: "sha256-" + "0" * 64})
    found = started(plant, {**NETWORK, "initial_model": model})
    assert (found["state"], found["error"]) == ("failed", "schema_mismatch")
    assert "2 trained tensors of a network whose base is sha256-000" in found["detail"]


def test_a_pattern_of_no_tensor_fails_before_a_device_has_trained(plant: Plant) -> None:
    found = started(plant, {**NETWORK, "trains": ["3.*", "hood.*"]})
    assert (found["state"], found["error"]) == ("failed", "bad_option")
    assert "prototype 'main': trains.1: 'hood.*' is the name of none of the network's 4 tensors" in found["detail"]


def test_a_pattern_of_no_tensor_of_an_imported_module_is_refused_at_creation(plant: Plant) -> None:
    model = plant.world.ok(
        "POST", "/v1/models?architecture=custom", body=plant.world.forge.pack(plant.world.forge.arrays())
    )
    prototype = {"architecture": "custom", "initial_model": model["id"], "trains": ["fc.*", "hood.*"]}
    response = plant.world.op("POST", "/v1/federations", json=plant.world.body(prototypes=[prototype]))
    assert refused(response) == (422, "invalid-field")
    assert response.json()["field"] == "prototypes.0.trains.1"
    prototype["trains"] = ["fc.*"]
    fed = plant.world.create(prototypes=[prototype])
    card = plant.world.site.request("GET", f"/v1/federations/{fed.id}/card", token=fed.join_token).json()
    assert set(card["tensors"]["main"]) == set(plant.world.forge.specs)
    plant.world.ok("POST", f"/v1/federations/{fed.id}/start")
    plant.runner.drain()
    card = plant.world.site.request("GET", f"/v1/federations/{fed.id}/card", token=fed.join_token).json()
    assert set(card["tensors"]["main"]) == set(plant.world.forge.specs)  # base and trained tensors


DISTILS = {"recipe": {"name": "feddf"}, "datasets": {"unlabeled": "data"}}
KEEPS = [{**NETWORK, "keeps": ["3.*"]}]


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"prototypes": KEEPS, **DISTILS}, "recipe.distil", "take a recipe that only averages"),
        ({"prototypes": KEEPS, "datasets": {"test": "data"}}, "datasets.test", "leave it out"),
        (
            {"prototypes": KEEPS, "datasets": {"test": "data"}, "rounds": {"gate": {"metric": "test_accuracy"}}},
            "rounds.gate",
            "leave one of them out",
        ),
        ({"prototypes": KEEPS, "rounds": {"keep_ensemble": True}}, "rounds.keep_ensemble", "leave it out"),
        ({"prototypes": PARTED, "recipe": {"name": "fedma"}}, "prototypes.0.trains", "matches all layers"),
        ({"prototypes": [{**NETWORK, "lora": "a_frozen"}]}, "prototypes.0.lora", "name them"),
        ({"prototypes": [{**NETWORK, "trains": "fc.*"}]}, "prototypes.0.trains", 'a list of texts: ["fc.*"]'),
        ({"prototypes": [{**NETWORK, "keeps": "3.*"}]}, "prototypes.0.keeps", 'a list of texts: ["3.*"]'),
        ({"prototypes": [{**NETWORK, "trains": []}]}, "prototypes.0.trains", "at least 1 item"),
        ({"prototypes": [{**NETWORK, "trains": ["x"] * 65}]}, "prototypes.0.trains", "at most 64"),
        ({"prototypes": [{**NETWORK, "keeps": ["x" * 513]}]}, "prototypes.0.keeps.0", "513"),
    ],
)
def test_what_does_not_go_together_is_refused_with_what_to_choose(
    plant: Plant, changes: dict[str, Any], field: str, says: str
) -> None:
    if "datasets" in changes:
        labels = {"labels": np.zeros(5, np.int64)}
        made = plant.world.dataset(**labels)["id"]
        changes = changes | {"datasets": dict.fromkeys(changes["datasets"], made)}
    response = plant.world.op("POST", "/v1/federations", json=plant.world.body(**changes))
    assert refused(response)[0] == 422
    assert (response.json()["field"], says in response.json()["detail"]) == (field, True), response.text


def test_nothing_is_predicted_with_models_of_which_devices_keep_a_part(plant: Plant) -> None:
    fed = plant.begin({"name": "fedavg"}, "ab", prototypes=KEEPS)
    data = plant.world.dataset()["id"]
    response = plant.world.op("POST", f"/v1/federations/{fed.id}/predict", json={"dataset": data})
    assert refused(response) == (422, "invalid-field")
    assert "predict on a device" in response.json()["detail"]
