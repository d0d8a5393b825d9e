"""What a secure round cannot do is refused when the federation is created, with what to take instead."""

from typing import Any

import pytest

from tests.service.world import World

SECURE: dict[str, Any] = {"total": 2, "secure": {}}
FEDSDD = {"name": "fedsdd", "options": {"groups": {"count": 2}}}
CLIENT_TEACHERS = {"name": "feddf"}


def _refusal(world: World, **changes: Any) -> dict[str, Any]:
    rounds = SECURE | changes.pop("rounds", {})
    response = world.op("POST", "/v1/federations", json=world.body(rounds=rounds, **changes))
    assert response.status_code == 422, response.text
    found: dict[str, Any] = response.json()
    return found


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"recipe": {"name": "fedavg", "options": {"fuse": {"kind": "median"}}}}, "recipe.fuse", "take adagrad, adam"),
        (
            {"recipe": {"name": "scaffold"}, "local": {"objective": {"kind": "scaffold"}}},
            "recipe.fuse",
            "single updates",
        ),
        ({"recipe": CLIENT_TEACHERS}, "recipe.distil.members", "teachers are single clients' models"),
        (
            {"local": {"objective": {"kind": "fedtgp"}}},
            "local.objective",
            "more than the model's tensors",
        ),
        ({"local": {"precision": {"kind": "binary"}}}, "local.precision", "bits have no sum"),
        ({"recipe": FEDSDD, "rounds": {"clients_per_round": 4}}, "recipe.groups", "a group has 2"),
        ({"retention": {"updates": 1}}, "retention.updates", "cannot be replayed"),
    ],
    ids=["robust", "scaffold", "teachers", "objective", "bits", "groups", "retention"],
)
def test_what_reads_single_updates_is_refused(shared: World, changes: dict[str, Any], field: str, words: str) -> None:
    if changes.get("recipe") in (CLIENT_TEACHERS, FEDSDD):
        changes = changes | {"datasets": {"unlabeled": shared.dataset()["id"]}}
    found = _refusal(shared, **changes)
    assert found["field"] == field and words in found["detail"], found


@pytest.mark.parametrize(
    ("rounds", "words"),
    [
        ({"replace_lost": True}, "take over_selection instead"),
        ({"on_deadline": "fail"}, "take 'skip' or 'extend'"),
        ({"on_bad_teacher": "exclude"}, "take 'fail'"),
        ({"clients_per_round": 2}, "needs 3"),
        ({"max_samples_per_client": 50_000_000}, "set it to 42949672 or less"),
        ({"secure": {"modulus_bits": 32}}, "or take secure.modulus_bits 64"),
        ({"secure": {"threshold": 0.4}}, "greater than or equal to 0.5"),
        ({"secure": {"clips": 1}}, "no such field"),
    ],
)
def test_rounds_that_masks_rule_out_are_refused(shared: World, rounds: dict[str, Any], words: str) -> None:
    assert words in _refusal(shared, rounds=rounds)["detail"]


def test_sums_that_fit_are_taken_and_rounds_ask_no_more_than_they_can(shared: World) -> None:
    small = {"modulus_bits": 32, "bits": 16, "max_clients": 10}
    fed = shared.create(rounds=SECURE | {"max_samples_per_client": 6000, "secure": small})
    assert shared.show(fed)["state"] == "created"
    retention = shared.op("PUT", f"/v1/federations/{fed.id}/retention", json={"updates": "all"})
    assert retention.status_code == 422


def test_a_round_asks_no_more_devices_than_sums_have_room_for(world: World) -> None:
    fed = world.running("abcde", rounds={"secure": {"max_clients": 4}})
    shown = world.round(fed)
    assert (shown["asked"], shown["needed"], shown["min_updates"]) == (4, 4, 3)
