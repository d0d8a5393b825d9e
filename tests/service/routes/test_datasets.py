"""Server data: what is taken, what is refused, what keeps it from being removed."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.service.world import World

from ..world import refused

F32 = np.float32


def test_a_data_set_is_described(world: World) -> None:
    made = world.dataset(inputs=np.zeros((4, 1, 8, 8), F32), labels=np.array([0, 9, 3, 1]))
    assert (made["num_samples"], made["shape"], made["dtype"]) == (4, [1, 8, 8], "float32")
    assert (made["labeled"], made["num_classes"]) == (True, 10)
    assert made == world.ok("GET", f"/v1/datasets/{made['id']}") == world.ok("GET", f"/v1/datasets/{made['name']}")
    tokens = world.dataset(inputs=np.zeros((3, 64), np.int64))
    assert (tokens["dtype"], tokens["labeled"], tokens["num_classes"]) == ("int64", False, None)
    assert [d["id"] for d in world.ok("GET", "/v1/datasets")["items"]] == [made["id"], tokens["id"]]


PIXELS = np.array([[[0, 255], [1, 2]]] * 2, np.uint8)
SEVERAL: dict[str, tuple[np.ndarray, np.ndarray, dict[str, Any], dict[str, Any]]] = {
    "pixels": (
        np.zeros((2, 1, 2, 2), np.uint8),
        PIXELS,
        {"dtype": "uint8", "num_classes": 3, "label_shape": [2, 2], "label_dtype": "uint8"},
        {"kind": "dense", "num_classes": 3, "input": {"shape": [1, 2, 2], "dtype": "uint8"}},
    ),
    "pixels of floats": (
        np.zeros((2, 1, 2, 2), np.uint8),
        PIXELS.astype(F32),
        {"num_classes": 3, "label_dtype": "float32"},
        {"kind": "dense", "num_classes": 3, "input": {"shape": [1, 2, 2], "dtype": "uint8"}},
    ),
    "tokens": (
        np.ones((2, 3), np.int64),
        np.array([[4, -100, 0]] * 2),
        {"num_classes": 5, "label_shape": [3], "label_dtype": "int64"},
        {"kind": "tokens", "num_classes": 5, "input": {"shape": [3], "dtype": "int64"}},
    ),
    "labels": (
        np.zeros((2, 3), np.float16),
        np.array([[0, 1]] * 2, np.uint8),
        {"dtype": "float16", "num_classes": 2, "label_shape": [2], "label_dtype": "uint8"},
        {"kind": "multilabel", "num_classes": 2, "input": {"shape": [3], "dtype": "float16"}},
    ),
    "values": (
        np.zeros((2, 3), F32),
        np.array([[0.5, 1]] * 2, F32),
        {"num_classes": None, "label_shape": [2], "label_dtype": "float32"},
        {"kind": "regression", "num_classes": 2, "input": {"shape": [3]}},
    ),
}


@pytest.mark.parametrize("case", SEVERAL)
def test_labels_of_several_values_are_described_and_held_against_the_task(world: World, case: str) -> None:
    inputs, labels, described, task = SEVERAL[case]
    made = world.dataset(inputs=inputs, labels=labels)
    assert made.items() >= ({"labeled": True, "num_samples": 2} | described).items()
    architecture = {"pixels": "unet-small", "pixels of floats": "unet-small", "tokens": "transformer-causal-tiny"}.get(
        case, "mlp"
    )
    more = {"prototypes": [{"architecture": architecture}], "datasets": {"test": made["name"]}}
    if case.startswith("pixels"):  # four pixels an edge at least
        inputs, labels = (np.kron(each, np.ones((2, 2))).astype(each.dtype) for each in (inputs, labels))
        more["datasets"] = {"test": world.dataset(inputs=inputs, labels=labels)["name"]}
        task = task | {"input": {"shape": [1, 4, 4], "dtype": "uint8"}}
    assert world.create(task=task, **more)
    fewer = task | {"num_classes": 3 if case == "labels" else task["num_classes"] - 1 or 1}
    if case != "values":
        response = world.op("POST", "/v1/federations", json=world.body(name="other", task=fewer, **more))
        assert refused(response) == (422, "invalid-field") and response.json()["field"] == "datasets.test"
    classes = {"num_classes": 5, "input": task["input"]}
    plain = more | {"prototypes": [{"architecture": "lstm" if case == "tokens" else "mlp"}]}
    response = world.op("POST", "/v1/federations", json=world.body(name="other", task=classes, **plain))
    assert refused(response) == (422, "invalid-field")
    said = "has labels that are float32 values" if case == "values" else "has labels of shape"
    assert said in response.json()["detail"], response.text


def test_a_number_a_sample_is_a_regressions_and_what_makes_labels_the_tasks_is_said(world: World) -> None:
    x = np.zeros((2, 1, 4, 4), F32)
    task = {"kind": "regression", "num_classes": 1, "input": {"shape": [1, 4, 4]}}
    numbers = world.dataset(inputs=x, labels=np.array([3, 0]))["name"]
    assert world.create(name="one", task=task, prototypes=[{"architecture": "mlp"}], datasets={"test": numbers})
    for kind, labels, said in (
        ("dense", np.zeros((2, 1, 4, 4), np.uint8), "take y[:, 0]"),
        ("classification", np.zeros((2, 3), np.int64), "argmax(1)"),
        ("multilabel", np.full((2, 3), 2), "has label 2; a label is there, 1, or not, 0"),
        ("dense", np.full((2, 4, 4), 3), "has label 3; the task's are 0 to 2"),
    ):
        name = world.dataset(inputs=x, labels=labels)["name"]
        task = {"kind": kind, "num_classes": 3, "input": {"shape": [1, 4, 4]}}
        network = [{"architecture": "unet-small" if kind == "dense" else "mlp"}]
        body = world.body(name="no", task=task, prototypes=network, datasets={"test": name})
        assert said in world.op("POST", "/v1/federations", json=body).json()["detail"]
    nan = world.forge.pack({"inputs": np.full((3, 2), np.nan, F32)})
    assert "repair that sample" in world.op("POST", "/v1/datasets?name=nan", body=nan).json()["detail"]


def test_truth_values_are_classes_0_and_1_and_no_numbers(world: World) -> None:
    one = world.dataset(labels=np.array([True, False, True, False, True]))
    several = world.dataset(labels=np.ones((5, 2), np.bool_))
    assert [(each["num_classes"], each["label_dtype"]) for each in (one, several)] == [(2, "bool")] * 2
    assert world.create(datasets={"test": one["name"]})
    task = {"kind": "multilabel", "num_classes": 2, "input": {"shape": [2]}}
    assert world.create(task=task, datasets={"test": several["name"]})
    body = world.body(task=task | {"kind": "regression"}, datasets={"test": several["name"]})
    answer = world.op("POST", "/v1/federations", json=body)
    assert refused(answer) == (422, "invalid-field") and "truth values" in answer.json()["detail"]


TEXT = {"num_classes": 2, "input": {"shape": [4], "dtype": "int64"}}


def test_token_ids_that_a_network_does_not_know_are_told_at_creation(world: World) -> None:
    good = world.dataset(inputs=np.array([[0, 1, 9, 0]] * 3), labels=np.array([0, 1, 1]))
    large = world.dataset(inputs=np.array([[0, 1, 10, 0]] * 3), labels=np.array([0, 1, 1]))
    below = world.dataset(inputs=np.array([[0, 1, -1, 0]] * 3), labels=np.array([0, 1, 1]))
    assert (good["token_ids"], below["token_ids"], world.dataset()["token_ids"]) == ([0, 9], [-1, 1], None)
    networks = [
        {"name": name, "architecture": "lstm", "options": {"vocab_size": n}} for name, n in (("a", 99), ("b", 10))
    ]
    more: dict[str, Any] = {"task": TEXT, "prototypes": networks}
    assert world.create(datasets={"test": good["name"]}, **more)
    for role, found, id_ in (("test", large, 10), ("validation", below, -1), ("unlabeled", large, 10)):
        answer = world.op("POST", "/v1/federations", json=world.body(datasets={role: found["name"]}, **more))
        assert refused(answer) == (422, "invalid-field") and answer.json()["field"] == f"datasets.{role}"
        said = f"{found['name']!r} has the token id {id_}; prototype 'b' (lstm) knows 10, 0 to 9; make them with"
        assert said in answer.json()["detail"], answer.text


def test_the_same_name_with_the_same_bytes_is_the_same_and_with_others_taken(world: World) -> None:
    one = world.forge.pack({"inputs": np.zeros((2, 2), F32)})
    two = world.forge.pack({"inputs": np.ones((2, 2), F32)})
    first = world.ok("POST", "/v1/datasets?name=d", body=one)
    before = world.files()
    assert world.ok("POST", "/v1/datasets?name=d", body=one) == first
    assert refused(world.op("POST", "/v1/datasets?name=d", body=two)) == (409, "name-taken")
    assert world.files() == before


BAD: list[tuple[dict[str, np.ndarray], str, str]] = [
    ({"labels": np.zeros(3, np.int64)}, "invalid-tensors", "inputs"),
    ({"inputs": np.zeros((3, 2), F32), "extra": np.zeros(1, F32)}, "invalid-tensors", "extra"),
    ({"inputs": np.zeros((3, 2), np.float64)}, "invalid-tensors", "inputs"),
    ({"inputs": np.zeros((0, 2), F32)}, "invalid-tensors", "inputs"),
    ({"inputs": np.zeros(3, F32)}, "invalid-tensors", "inputs"),
    ({"inputs": np.zeros((3, 2), F32), "labels": np.zeros(2, np.int64)}, "invalid-tensors", "labels"),
    ({"inputs": np.zeros((3, 2), F32), "labels": np.full(3, 0.5, F32)}, "invalid-values", "labels"),
    ({"inputs": np.zeros((3, 2), F32), "labels": np.zeros((3, 0), np.int64)}, "invalid-tensors", "labels"),
    ({"inputs": np.zeros((3, 2), F32), "labels": np.zeros((2, 2), np.int64)}, "invalid-tensors", "labels"),
    ({"inputs": np.zeros((3, 2), F32), "labels": np.full((3, 2), np.nan, F32)}, "invalid-values", "labels"),
    ({"inputs": np.zeros((3, 2), F32), "labels": np.array([[0, 1], [0, -2], [0, 0]])}, "invalid-values", "labels"),
    ({"inputs": np.full((3, 2), np.nan, F32)}, "invalid-values", "inputs"),
    ({"inputs": np.zeros((3, 2), F32), "labels": np.array([0, -1, 2])}, "invalid-values", "labels"),
    ({"inputs": np.zeros((3, 2), F32), "labels": np.zeros(3, ml_dtypes.bfloat16)}, "invalid-tensors", "labels"),
]


@pytest.mark.parametrize(("arrays", "kind", "tensor"), BAD, ids=[f"{i}-{b[2]}" for i, b in enumerate(BAD)])
def test_data_that_is_refused_leaves_nothing(shared: World, arrays: Any, kind: str, tensor: str) -> None:
    before = shared.files()
    response = shared.op("POST", "/v1/datasets?name=bad", body=shared.forge.pack(arrays))
    assert refused(response) == (422, kind), response.text
    assert response.json()["tensor"] == tensor
    assert shared.files() == before
    assert shared.op("GET", "/v1/datasets/bad").status_code == 404


@pytest.mark.parametrize("name", ["", "..", "a%2Fb", "%00", "x" * 101, "%3Cb%3E"])
def test_names_that_are_not_taken(shared: World, name: str) -> None:
    body = shared.forge.pack({"inputs": np.zeros((2, 2), F32)})
    response = shared.op("POST", f"/v1/datasets?name={name}", body=body)
    assert refused(response) == (422, "invalid-field")
    assert response.json()["field"] == "query.name"


def test_a_data_set_in_use_stays_until_its_federation_is_over(world: World) -> None:
    data = world.dataset()
    fed = world.create(recipe={"name": "feddf"}, datasets={"unlabeled": data["name"]})
    response = world.op("DELETE", f"/v1/datasets/{data['id']}")
    assert refused(response) == (409, "in-use")
    assert world.show(fed)["name"] in response.json()["detail"]
    world.ok("POST", f"/v1/federations/{fed.id}/cancel")
    assert world.op("DELETE", f"/v1/datasets/{data['id']}").status_code == 204
    assert not world.blobs.cache.path(data["digest"]).exists()
    assert world.op("DELETE", f"/v1/datasets/{data['id']}").status_code == 404


def test_bytes_that_another_name_has_stay_when_one_is_removed(world: World) -> None:
    one, two = world.dataset(), world.dataset()
    assert one["digest"] == two["digest"]
    world.op("DELETE", f"/v1/datasets/{one['id']}")
    assert world.blobs.cache.path(two["digest"]).exists()
    world.op("DELETE", f"/v1/datasets/{two['id']}")
    assert not world.blobs.cache.path(two["digest"]).exists()
