"""A device whose data set has grown says so by itself before it uploads."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from client_sdk import errors
from client_sdk.state import StateFolder
from contract.wire.problems import KINDS, TYPE_PREFIX

Run = Callable[..., Any]


def data(samples: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    inputs = rng.normal(size=(samples, 2)).astype("float32")
    return inputs, (inputs[:, 0] > 0).astype("int64")


def declared(service: Any) -> list[Any]:
    return [json.loads(each.content)["num_samples"] for each in service.sent("PUT", "/v1/declaration")]


def too_many(request: httpx.Request) -> httpx.Response:
    body = {"type": TYPE_PREFIX + "invalid-field", "title": "T", "status": KINDS["invalid-field"][0]}
    return httpx.Response(422, json=body | {"detail": "num_samples: more than declared", "field": "num_samples"})


def test_a_data_set_that_has_grown_is_declared_before_the_update_leaves(
    service: Any, take_part: Run, tmp_path: Path
) -> None:
    take_part(dataset=data(20), rounds=1)
    assert declared(service) == [], "enrolling has said it"
    take_part(dataset=data(30), rounds=1, join_token=None)
    paths = [each.url.path for each in service.requests]
    assert declared(service) == [30]
    assert paths.index("/v1/declaration") < paths.index("/v1/rounds/rnd_2/update")
    take_part(dataset=data(25), join_token=None)
    assert declared(service) == [30], "fewer need no declaration"
    kept = StateFolder(tmp_path / "device").identity()
    assert kept is not None and kept.declared == 30


def test_a_folder_that_remembers_no_number_declares_it_once(service: Any, take_part: Run, tmp_path: Path) -> None:
    take_part(dataset=data(20), rounds=1)
    note = tmp_path / "device" / "identity.json"
    tree = json.loads(note.read_text())
    del tree["declared"]
    note.write_text(json.dumps(tree))
    take_part(dataset=data(20), join_token=None)
    assert declared(service) == [20]


def test_a_service_that_has_forgotten_is_told_again_and_the_update_is_not_lost(service: Any, take_part: Run) -> None:
    service.fault("PUT", "/v1/rounds/rnd_1/update", too_many)
    report = take_part(dataset=data(20), rounds=1)
    assert report.rounds_trained == 1
    assert declared(service) == [20]


def test_a_service_that_has_forgotten_is_told_the_whole_data_set_with_its_counts(service: Any, take_part: Run) -> None:
    inputs, labels = data(20)
    counts = np.bincount(labels, minlength=2).tolist()
    service.fault("PUT", "/v1/rounds/rnd_1/update", too_many)
    assert take_part(dataset=(inputs, labels), label_counts=counts, rounds=1).rounds_trained == 1
    told = [json.loads(each.content) for each in service.sent("PUT", "/v1/declaration")]
    assert told == [{"num_samples": 20, "label_counts": counts}]


def test_an_update_of_a_data_set_that_was_larger_is_declared_by_its_own_size(service: Any, take_part: Run) -> None:
    service.fault("PUT", "/v1/rounds/rnd_1/update", lambda request: httpx.Response(403, text="a proxy"))
    with pytest.raises(errors.ApiError, match="is sent at the next start"):
        take_part(dataset=data(20), rounds=1)
    service.fault("PUT", "/v1/rounds/rnd_1/update", too_many)
    inputs, labels = data(10)
    counts = np.bincount(labels, minlength=2).tolist()
    take_part(dataset=(inputs, labels), label_counts=counts, join_token=None, rounds=1)
    told = [json.loads(each.content) for each in service.sent("PUT", "/v1/declaration")]
    assert told[0]["num_samples"] == 20 and told[0].get("label_counts") is None


def test_a_service_without_declarations_is_no_obstacle(service: Any, take_part: Run) -> None:
    take_part(dataset=data(20), rounds=1)
    service.fault(
        "PUT",
        "/v1/declaration",
        lambda request: httpx.Response(
            404,
            json={"type": TYPE_PREFIX + "not-found", "title": "T", "status": 404, "detail": "there is no such route"},
        ),
    )
    assert take_part(dataset=data(30), join_token=None, rounds=1).rounds_trained == 1


def test_more_than_the_federation_takes_is_said_before_anything_is_trained(service: Any, take_part: Run) -> None:
    take_part(dataset=data(20), rounds=1)
    service.fault("PUT", "/v1/declaration", too_many)
    with pytest.raises(errors.InvalidField, match="num_samples"):
        take_part(dataset=data(30), join_token=None)
    assert len(service.updates) == 1
