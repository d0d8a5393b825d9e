"""The body of `potstill federation spec` creates the same federation again."""

from typing import Any

import pytest

from contract.recipes.parts import DropWorst
from contract.recipes.presets import PRESETS, build
from contract.recipes.recipe import Recipe
from contract.wire.federations import Federation, RecipeChoice
from potstill.commands.spec import body_like

TOLD: dict[str, Any] = {
    "id": "fed_1",
    "name": "digits",
    "state": "finished",
    "recipe": "feddf",
    "round": 3,
    "rounds_total": 3,
    "clients": 2,
    "created_at": "2026-01-01T00:00:00Z",
    "task": {"num_classes": 10, "input": {"shape": [1, 8, 8]}, "classes": list("abcdefghij")},
    "prototypes": [{"name": "small", "architecture": "cnn-digits", "requires": {"memory_mb": 512}}],
    "local": {"epochs": 7},
    "rounds": {"total": 3, "gate": {"metric": "validation_accuracy", "max_drop": 0.02, "action": "pause"}},
    "datasets": {"unlabeled": "dst_1", "validation": "dst_2"},
    "seed": 9,
    "queue": "cpu",
    "retention": {"updates": 5},
    "join": {"state": "open", "uses": 2, "max_uses": 20},
}


def like(composition: Recipe) -> Any:
    return body_like(Federation.model_validate(TOLD | {"composition": composition.model_dump(mode="json")}))


def test_all_that_was_said_is_said_again() -> None:
    body, whole = like(PRESETS["feddf"].recipe), Federation.model_validate(TOLD | {"composition": {"name": "x"}})
    for name in ("task", "prototypes", "local", "rounds", "datasets", "seed", "queue", "retention"):
        assert getattr(body, name) == getattr(whole, name), name
    assert body.join.max_uses is None


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("feddf", {}),
        ("feddf", {"weigh": {"kind": "entropy", "tau": 0.5}, "epochs": 10, "schedule.early_stop": None}),
        ("fedgo-small", {"data": {"kind": "generated"}, "discriminators": {"generator": {"kind": "fedgan"}}}),
        ("fedavgm", {"beta": 0.3}),
    ],
)
def test_a_preset_keeps_its_name_and_its_options(name: str, options: dict[str, Any]) -> None:
    wanted = build(name, options)
    choice = like(wanted).recipe
    assert isinstance(choice, RecipeChoice) and choice.name == name
    assert build(choice.name, choice.options) == wanted


def test_a_composition_of_ones_own_stays_whole() -> None:
    own = PRESETS["feddf"].recipe.model_copy(update={"name": "mine", "drop_worst": DropWorst()})
    assert like(own).recipe == own
