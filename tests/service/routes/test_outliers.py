"""What a round's job found of distances is shown with each participant, told as events, and may leave an update out."""

from typing import Any

import pytest

from tests.service.world import World

from ..world import refused

FIGURES: dict[str, Any] = {
    "distances": {
        "a": {"distance": 2.0, "relative": 0.5, "norm_ratio": 1.1},
        "b": {"distance": 400.0, "relative": 100.0, "norm_ratio": 101.0},
    },
    "outliers": {"b": "its norm is 101 of the model's, the median 1.1"},
}


def test_distances_are_shown_and_an_outlier_is_an_event_with_its_name(world: World) -> None:
    fed = world.running()
    for name in fed.devices:
        assert world.push(fed, name).is_success
    world.finish(world.claim(), {"main": world.forge.arrays(5)}, FIGURES)
    people = {each["name"]: each for each in world.round(fed, 1)["participants"]}
    assert [people[name]["distance"] for name in "ab"] == [0.5, 100.0]
    assert [people[name]["norm_ratio"] for name in "ab"] == [1.1, 101.0]
    assert [people[name]["outlier"] for name in "ab"] == [None, FIGURES["outliers"]["b"]]
    events = world.ok("GET", f"/v1/federations/{fed.id}/events?format=json")["items"]
    (told,) = [each["data"] for each in events if each["kind"] == "update.outlier"]
    assert (told["client"], told["round"], told["detail"]) == ("b", 1, FIGURES["outliers"]["b"])


def test_one_that_was_left_out_for_its_distance_says_so(world: World) -> None:
    fed = world.running(rounds={"max_distance": 3})
    for name in fed.devices:
        assert world.push(fed, name).is_success
    reason = "it lies 100 of the model's norm off, and rounds.max_distance is 3"
    world.finish(world.claim(), {"main": world.forge.arrays(5)}, FIGURES | {"excluded": {"b": reason}})
    people = {each["name"]: each for each in world.round(fed, 1)["participants"]}
    assert (people["b"]["state"], people["b"]["excluded"]) == ("excluded", reason)
    shown = world.op("PATCH", f"/v1/federations/{fed.id}/plan", json={"rounds": {"max_distance": None}})
    assert shown.json()["rounds"]["max_distance"] is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rounds": {"max_distance": 3.0, "secure": {}}}, "nobody's distance is seen in a sum"),
        ({"rounds": {"max_distance": 0}}, "max_distance"),
        ({"rounds": {"max_distance": "3"}}, "max_distance"),
        ({"rounds": {"max_distance": 3.0}, "recipe": {"name": "ds-fl"}}, "send no weights"),
        ({"rounds": {"max_distance": 3.0}, "recipe": {"name": "fedma"}}, "may begin with networks of their own"),
    ],
)
def test_a_limit_that_cannot_work_is_refused_at_creation(shared: World, changes: dict[str, Any], said: str) -> None:
    more = {"datasets": {"unlabeled": shared.dataset()["id"]}} if changes.get("recipe") == {"name": "ds-fl"} else {}
    response = shared.op("POST", "/v1/federations", json=shared.body(**changes | more))
    assert refused(response) == (422, "invalid-field")
    assert said in response.text
