"""What is wrong is told by the sender's own path, the real reason first, and never in the words of our validators."""

from typing import Any

import pytest
from pydantic import ValidationError

from contract.bodies import stored
from contract.faults import faults_of
from contract.wire.devices import Enrolment, Heartbeat
from contract.wire.federations import FederationCreate
from contract.wire.retention import Retention

BODY: dict[str, Any] = {
    "name": "f",
    "task": {"num_classes": 3, "input": {"shape": [4]}},
    "prototypes": [{"architecture": "mlp"}],
    "recipe": {"name": "fedavg"},
}
WHOLE: dict[str, Any] = {"name": "mine", "fuse": {"kind": "weighted_mean"}}


def first(kind: Any, body: dict[str, Any]) -> tuple[str, str]:
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(body)
    field, message = faults_of(caught.value, body)[0]
    for ours in ("function-", "RecipeChoice", "[", "Value error", "tagged", "permitted", "named", "whole-"):
        assert ours not in f"{field}: {message}"
    return field, message


@pytest.mark.parametrize(
    ("recipe", "field", "said"),
    [
        ({**WHOLE, "distil": {"members": {"kind": "groups"}}}, "recipe.distil.members", "set groups to 'random'"),
        ({**WHOLE, "distil": {"schedule": {"epochs": 1, "steps": 2}}}, "recipe.distil.schedule", "either"),
        ({**WHOLE, "discriminators": {}}, "recipe.discriminators", "leave the part out"),
        ({**WHOLE, "fuse": {"kind": "predictions"}}, "recipe.fuse", "add the part 'distil'"),
        ({**WHOLE, "fuse": {"kind": "magic"}}, "recipe.fuse.kind", "one of 'weighted_mean'"),
        ({**WHOLE, "fuse": {}}, "recipe.fuse.kind", "is missing"),
        ({**WHOLE, "fuse": {"kind": "momentum", "beta": "1"}}, "recipe.fuse.beta", "valid number"),
        ({**WHOLE, "magic": 1}, "recipe.magic", "no such field"),
        ({"distil": {}}, "recipe.name", "is missing"),
        ({"name": "fedavg", "colour": 1}, "recipe.colour", "no such field"),
        ("fedavg", "recipe", "should be an object"),
        (None, "recipe", "should be an object"),
    ],
)
def test_a_recipe_that_cannot_be(recipe: Any, field: str, said: str) -> None:
    found, message = first(FederationCreate, BODY | {"recipe": recipe})
    assert found == field and said in message


@pytest.mark.parametrize(
    ("local", "field"),
    [
        ({"optimizer": {"kind": "adam", "betas": [0.9, True]}}, "local.optimizer.betas.1"),
        ({"optimizer": {"kind": "adam", "momentum": 0.9}}, "local.optimizer.momentum"),
        ({"objective": {"kind": "scaffold", "option": True}}, "local.objective.option"),
        ({"objective": {"kind": "scaffold"}, "clip_norm": 1.0}, "local.objective"),
    ],
)
def test_a_choice_is_no_step_of_the_path(local: dict[str, Any], field: str) -> None:
    assert first(FederationCreate, BODY | {"local": local})[0] == field


def test_a_place_for_several_things_is_told_once() -> None:
    field, message = first(Retention, {"updates": True})
    assert (field, message) == ("updates", "Input should be a valid integer or 'all'")
    field, message = first(Enrolment, {"name": "a", "num_samples": 1, "capabilities": {"memory": None}})
    assert field == "capabilities.memory" and message.count("valid") == 4


def test_a_rule_over_several_fields_names_the_one_at_fault() -> None:
    rounds = {"clients_per_round": 2, "min_updates": 3}
    assert first(FederationCreate, BODY | {"rounds": rounds})[0] == "rounds.min_updates"
    task = BODY["task"] | {"classes": ["a", "b"]}
    assert first(FederationCreate, BODY | {"task": task})[0] == "task.classes"


@pytest.mark.parametrize("mark", ["\x1b[2J", "\u202e", "\u2066", "\n", "\0", "\u200b"])
def test_names_of_classes_have_no_marks_that_steer_what_is_shown(mark: str) -> None:
    task = BODY["task"] | {"classes": ["a", f"b{mark}", "c"]}
    assert first(FederationCreate, BODY | {"task": task})[0] == "task.classes.1"
    assert first(Enrolment, {"name": "a", "num_samples": 1, "classes": [f"{mark}b"]})[0] == "classes.0"
    assert stored(FederationCreate, BODY | {"task": task}).task.classes == task["classes"]


def test_of_what_may_stand_in_a_place_the_reason_of_the_one_that_was_meant_is_told() -> None:
    field, message = first(Enrolment, {"name": "a", "num_samples": 1, "capabilities": {"cpu": "x" * 1001}})
    assert (field, message) == ("capabilities.cpu", "has 1001 characters, and may have 1000")


def test_a_path_is_short_and_plain_whatever_the_keys_are() -> None:
    for key in ("k" * 5000, "a\u202eb", "\x1bc"):
        field, _ = first(Enrolment, {"name": "a", "num_samples": 1, "capabilities": {key: 1}})
        assert field.startswith("capabilities.") and len(field) < 200 and field.isprintable()


@pytest.mark.parametrize(("beat", "field"), [({"of": 0}, "of"), ({"step": 4, "of": 3}, "step"), ({"step": -1}, "step")])
def test_a_heartbeat_is_within_its_steps(beat: dict[str, Any], field: str) -> None:
    assert first(Heartbeat, beat)[0] == field
    Heartbeat.model_validate({"step": 3, "of": 3})
