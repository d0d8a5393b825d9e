"""Why a round came out so: what its job found, shown with how often it was seen, and why there may be nothing."""

from typing import Any

import pytest

from service.operations.steer import explained
from tests.service.world import World

from ..world import refused

FOUND: dict[str, Any] = {
    "clients": {
        "a": {"cosine": 0.5, "accuracy": 0.9, "by_class": [1.0, None, 0.8], "accuracy_without": 0.6},
        "b": {"cosine": -0.4, "accuracy": 0.1, "by_class": [0.1, None, 0.1], "accuracy_without": 0.95},
    },
    "flags": {"b": [{"kind": "opposes", "detail": "its change points against the others': cosine -0.40"}]},
    "votes": {"set": "test", "samples": 256, "compared_with": "labels"},
    "without": {"model": "average", "accuracy": 0.8},
}


def rounds(world: World, *explained: dict[str, Any] | None, **plan: Any) -> list[str]:
    """Publish rounds that explain themselves so, and return their ids."""
    fed = world.running(rounds={"total": 9, **plan})
    ids = []
    for index, found in enumerate(explained, start=1):
        for name in fed.devices:
            assert world.push(fed, name).is_success
        figures = {} if found is None else {"explanation": found, "seconds": {"explain": 0.25}}
        world.finish(world.claim(), {"main": world.forge.arrays(index)}, figures)
        ids.append(world.round(fed, index)["id"])
    return ids


def test_it_is_shown_by_client_and_is_no_figure_of_the_round(world: World) -> None:
    (first,) = rounds(world, FOUND)
    shown = world.ok("GET", f"/v1/rounds/{first}/explanation")
    assert (shown["round"], shown["votes"], shown["without"]) == (1, FOUND["votes"], FOUND["without"])
    assert shown["seconds"] == 0.25
    people = {each["name"]: each for each in shown["clients"]}
    assert people["a"]["by_class"] == [1.0, None, 0.8] and people["a"]["flags"] == []
    assert people["a"]["relabels"] is None
    assert people["b"]["flags"] == [FOUND["flags"]["b"][0] | {"seen": 1}]
    detail = world.ok("GET", f"/v1/rounds/{first}")
    assert detail["explained"] and "explanation" not in detail["metrics"]


def test_samples_are_shown_with_their_pixels_to_operators_and_kept_for_the_newest_rounds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explained, "PICTURED", 2)
    image = {"channels": 1, "height": 1, "width": 2, "pixels": "AP8="}
    votes = [{"client": "a", "vote": 1, "weight": 0.75}, {"client": "b", "vote": 2, "weight": 0.25}]
    sample = {"row": 7, "label": 1, "together": None, "votes": votes, "image": image}
    ids = rounds(world, *(3 * [FOUND | {"samples": [sample]}]))
    shown = [world.ok("GET", f"/v1/rounds/{id_}/explanation") for id_ in ids]
    assert [each["samples"] for each in shown] == [[], [sample], [sample]]
    assert shown[0]["votes"] == FOUND["votes"], "the figures stay"
    viewer = world.ok("POST", "/v1/tokens", json={"name": "v"})["token"]
    seen = world.site.request("GET", f"/v1/rounds/{ids[2]}/explanation", token=viewer).json()
    assert seen["samples"] == [sample | {"image": None}]


def test_who_is_flagged_is_an_event(world: World) -> None:
    more = [*FOUND["flags"]["b"], {"kind": "disagrees", "detail": "agreement 0.10, the others' 0.90"}]
    rounds(world, FOUND | {"flags": {"b": more}}, FOUND | {"flags": {}})
    told = [
        each["data"] for each in world.ok("GET", "/v1/events?format=json")["items"] if each["kind"] == "update.flagged"
    ]
    assert [(each["client"], each["round"], each["flags"]) for each in told] == [("b", 1, ["opposes", "disagrees"])]
    assert told[0]["detail"] == "its change points against the others': cosine -0.40; agreement 0.10, the others' 0.90"


def test_what_is_seen_again_is_counted_over_the_last_three_rounds_of_a_client(world: World) -> None:
    quiet = FOUND | {"flags": {}}
    ids = rounds(world, FOUND, FOUND, quiet, FOUND, FOUND, FOUND)
    seen = []
    for id_ in ids:
        people = {each["name"]: each for each in world.ok("GET", f"/v1/rounds/{id_}/explanation")["clients"]}
        seen.append([flag["seen"] for flag in people["b"]["flags"]])
    assert seen == [[1], [2], [], [2], [2], [3]]


def test_without_one_the_reason_is_said(world: World) -> None:
    (off,) = rounds(world, None, explain="off")
    response = world.op("GET", f"/v1/rounds/{off}/explanation")
    assert refused(response) == (404, "not-found") and "rounds.explain of its plan is 'off'" in response.text
    fed = world.running()
    collecting = world.op("GET", f"/v1/rounds/{world.round(fed, 1)['id']}/explanation")
    assert refused(collecting) == (404, "not-found") and "it is collecting" in collecting.text
    assert world.op("GET", "/v1/rounds/rnd_none/explanation").status_code == 404
