"""`local.privacy` and all that devices send: noised and counted, or refused at creation."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from contract.choices import Choice, slots
from contract.local import ClientObjective, LocalPlan, Privacy
from contract.recipes import parts
from contract.recipes.checks import check_with_local
from contract.recipes.errors import RecipeError
from contract.recipes.presets import PRESETS, build
from contract.recipes.recipe import Recipe
from contract.wire.devices import Declaration, Enrolment, Heartbeat, UpdateMetadata, UpdateMetrics

PRIVATE = Privacy()
ALL = [choice for choices in slots().values() for choice in choices]

TOLD: dict[type[BaseModel], dict[str, str]] = {
    Enrolment: {
        "name": "public",
        "num_samples": "public: the promise is about what a sample holds, not how many there are",
        "label_counts": "refused with local.privacy",
        "classes": "public: the operator's own list",
        "capabilities": "public: of the machine",
        "prototype": "public",
    },
    Declaration: {
        "num_samples": "public: as when enrolling",
        "label_counts": "refused with local.privacy",
    },
    Heartbeat: {
        "epoch": "public: the plan's number",
        "step": "public: steps are as many whatever is drawn",
        "of": "public",
        "passes": "public: batches are as many whatever is drawn",
        "pass_seconds": "public: of the machine",
    },
    UpdateMetadata: {
        "num_samples": "public",
        "base_model": "public",
        "metrics": "below",
        "control_reset": "refused with local.privacy, with SCAFFOLD",
        "session": "public: the service's own word",
    },
    UpdateMetrics: {
        "loss": "stays on the device",
        "accuracy": "stays on the device",
        "steps": "public",
        "seconds": "is not sent",
        "epsilon": "what was spent",
        "clipped": "of weights that noise has reached",
        "evaluation": "asked for by the plan alone, of samples that are not trained on; shown of five devices together",
    },
}
"""What a device tells beside tensors -> what becomes of it with differential privacy."""


@pytest.mark.parametrize("body", TOLD, ids=lambda body: body.__name__)
def test_whatever_a_device_tells_was_thought_of(body: type[BaseModel]) -> None:
    assert body.model_fields.keys() == TOLD[body].keys(), "a new field: is it public, noised and counted, or refused?"


def _asks_devices(choice: type[Choice]) -> bool:
    """Whether devices send more of their data for it than weights, as its class shows."""
    sends_more = issubclass(choice, ClientObjective) and (
        not choice.sends_weights or choice.adds is not ClientObjective.adds
    )
    return (
        sends_more
        or bool(choice.declares.needs & {"scores", "label_counts"})
        or issubclass(choice, parts.GeneratorFederated)
    )


@pytest.mark.parametrize("choice", ALL, ids=lambda choice: choice.__name__)
def test_every_choice_that_asks_devices_for_more_declares_it(choice: type[Choice]) -> None:
    assert bool(choice.declares.sends) == _asks_devices(choice)


def test_a_choice_that_asks_by_its_options_declares_it_by_them() -> None:
    assert parts.FuseMatchedMean(by_class=True).sends and not parts.FuseMatchedMean().sends
    product = parts.WeighProduct(factors=(parts.WeighOdds(), parts.WeighUniform()))
    assert "scores" in product.needs


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_taken_or_refused_by_what_they_have_devices_send(name: str) -> None:
    row = PRESETS[name]
    try:
        local = LocalPlan.model_validate(row.local.model_dump() | {"privacy": PRIVATE})
        check_with_local(row.recipe, local)
        refused = ""
    except (ValidationError, RecipeError) as error:
        refused = str(error)
    expected = {
        "dafkd": "a generator, and a discriminator's head, would be sent without noise",
        "scaffold": "control variates would be sent without noise",
        "fedtgp": "class means of features, and the samples of each class, would be sent without noise",
        "feddisco": "samples per class would be sent without noise (disco); set fuse to 'weighted_mean'",
        "fedma": "samples per class would be sent without noise (matched_mean); set fuse.by_class to false",
        "feduv": "FedUV compares the samples of a batch",
        "reflux": "the classes' shares on a device, which move every gradient, get no noise",
        "reflux-sharp": "the classes' shares on a device, which move every gradient, get no noise",
        "reflux-anchor": "the classes' shares on a device, which move every gradient, get no noise",
    }.get(name, "")
    assert expected in refused and bool(refused) == bool(expected)


def test_what_is_set_otherwise_as_the_refusal_says_is_taken() -> None:
    local = LocalPlan(privacy=PRIVATE)
    with pytest.raises(RecipeError) as caught:
        check_with_local(build("feddisco"), local)
    assert caught.value.field == "local.privacy"
    check_with_local(build("feddisco", {"fuse": {"kind": "weighted_mean"}}), local)
    check_with_local(Recipe(name="mine", fuse=parts.FuseMatchedMean(by_class=False)), local)


@pytest.mark.parametrize("kind", ["scaffold", "fedtgp", "feduv"])
def test_a_plan_says_why_and_what_to_take(kind: str) -> None:
    given: dict[str, Any] = {"objective": {"kind": kind}, "privacy": {}}
    with pytest.raises(ValidationError, match="privacy: "):
        LocalPlan.model_validate(given)
