"""What a device must say before it may join: the same classes in the same order, and a possible number of samples."""

from typing import Any

import pytest

from contract.wire.problems import TYPE_PREFIX
from tests.service.world import Fed, World

TASK = {"num_classes": 3, "input": {"shape": [2]}, "classes": ["cat", "dog", "fox"]}


def enrol(world: World, fed: Fed, **changes: Any) -> Any:
    body = {"name": world.fresh_name("device"), "num_samples": 10, **changes}
    return world.site.request("POST", f"/v1/federations/{fed.id}/clients", token=fed.join_token, json=body)


def test_classes_must_be_the_federations_own_in_its_order(shared: World) -> None:
    fed = shared.create(task=TASK)
    for declared, said in (
        (["cat", "fox", "owl"], "1 is 'fox', not 'dog'"),
        (["dog", "cat", "fox"], "0 is 'dog', not 'cat'"),
        (["cat", "dog"], "2, not 3"),
        (["cat", "dog", "fox", "owl"], "4, not 3"),
        (None, "declare yours"),
    ):
        response = enrol(shared, fed, classes=declared)
        assert response.status_code == 422
        problem = response.json()
        assert problem["type"] == TYPE_PREFIX + "invalid-field"
        assert (problem["field"], problem["expected"], problem["actual"]) == ("classes", TASK["classes"], declared)
        assert said in problem["detail"]
    assert shared.ok("GET", f"/v1/federations/{fed.id}/clients")["items"] == []
    assert enrol(shared, fed, classes=TASK["classes"]).status_code == 201
    card = shared.site.request("GET", f"/v1/federations/{fed.id}/card", token=fed.join_token).json()
    assert card["task"]["classes"] == TASK["classes"]


def test_a_federation_that_names_no_classes_asks_for_none(shared: World) -> None:
    fed = shared.create()
    assert enrol(shared, fed).status_code == 201
    assert enrol(shared, fed, classes=["a", "b"]).status_code == 201


@pytest.mark.parametrize("classes", [["cat", "dog"], ["cat", "dog", "dog"], ["cat", "dog", ""], ["x" * 101, "b", "c"]])
def test_a_task_whose_class_names_do_not_fit(shared: World, classes: list[str]) -> None:
    response = shared.op("POST", "/v1/federations", json=shared.body(task={**TASK, "classes": classes}))
    assert response.status_code == 422
    assert "classes" in response.text


def test_more_samples_than_the_federation_takes(shared: World) -> None:
    fed = shared.create(rounds={"max_samples_per_client": 100})
    assert enrol(shared, fed, num_samples=100).status_code == 201
    response = enrol(shared, fed, num_samples=101)
    assert (response.status_code, response.json()["field"]) == (422, "num_samples")
    assert "100" in response.json()["detail"]
