"""Who learns what, in the words that choices declare; every choice that sends or reads something has them."""

from typing import Any

import pytest

from contract.choices import Choice, slots
from contract.federation import FederationConfig
from contract.local import LocalPlan
from contract.recipes.presets import PRESETS, build
from contract.updates import SENT_WORDS
from contract.wire.federations import DatasetRefs, Prototype, Task
from contract.wire.plans import RoundsPlan, SecurePlan
from contract.wire.report import Learnt
from service.domain.learning import learnt

ALL = [choice for choices in slots().values() for choice in choices]


def config(name: str, local: dict[str, Any] | None = None, **options: Any) -> FederationConfig:
    given = PRESETS[name].local.model_dump() | (local or {})
    return FederationConfig(
        task=Task.model_validate({"num_classes": 3, "input": {"shape": [5]}}),
        prototypes=[Prototype(architecture="mlp")],
        recipe=build(name, options) if options else PRESETS[name].recipe,
        local=LocalPlan.model_validate(given),
        rounds=RoundsPlan(total=5),
        datasets=DatasetRefs(),
    )


def told(made: FederationConfig, party: str) -> list[str]:
    return [each.what for each in learnt(made) if each.party == party]


def find(made: FederationConfig, words: str) -> Learnt:
    (found,) = [each for each in learnt(made) if words in each.what]
    return found


@pytest.mark.parametrize("choice", ALL, ids=lambda choice: choice.__name__)
def test_every_choice_that_sends_or_reads_something_has_its_words(choice: type[Choice]) -> None:
    for sent in choice.declares.sends:
        assert sent.what
        assert bool(sent.exposed) != bool(sent.noised), "with DP-SGD it is refused, or noise reaches it: say how"
    assert set(choice.declares.reads) <= SENT_WORDS.keys()


@pytest.mark.parametrize("name", PRESETS)
def test_whatever_a_recipe_has_devices_send_is_told(name: str) -> None:
    made = config(name)
    said = told(made, "server")
    objective = made.local.objective
    assert ("the device's model" in " ".join(said)) == objective.sends_weights
    for sent in objective.sends:
        assert sent.what.rstrip(",") in said
    for what in objective.declares.reads:
        assert SENT_WORDS[what] in told(made, "devices")
    assert ("a discriminator of its data" in said) == made.recipe.reads_scores
    assert ("samples per class" in said) == ("label_counts" in made.recipe.needs)
    assert len(said) == len(set(said))


def test_averaging() -> None:
    made = config("fedavg")
    assert told(made, "devices") == ["the model of its prototype, which other devices' updates went into"]
    weights = find(made, "after local training")
    assert (weights.when, weights.guarded) == ("every round that it takes part in, 5 at most", "")


def test_fedgo_s_ledger() -> None:
    """G.1: of a client T eps_M and eps_D once; of the server eps_G once and T eps_M."""
    made = config("fedgo-small")
    assert find(made, "a discriminator of its data").when == "once, before the first round"
    assert find(made, "after local training").when.endswith("5 at most")
    assert find(made, "(eps_G)").when == "once, before the first round"
    assert find(made, "of the server's unlabelled data, what a model tells").when.endswith("5 at most")


def test_fedgo_s_ledger_without_server_data() -> None:
    """G3 with D2: T' (eps_D + eps_G) more of a client, and nothing of the server, which has no data."""
    made = config("fedgo-small", generator={"kind": "fedgan", "rounds": 7}, data={"kind": "generated"})
    assert find(made, "a critic of its data").when == "each of the generator's 7 rounds"
    assert not [each for each in told(made, "devices") if "server's" in each]


def test_noise_masks_and_bits_are_said() -> None:
    private = config("fedgo-small", {"privacy": {"noise_multiplier": 1.0}})
    assert "DP-SGD" in find(private, "after local training").guarded
    assert find(private, "a discriminator").guarded == "trained by DP-SGD like the model"
    assert not [each for each in told(private, "server") if "loss" in each]
    plain = config("fedavg")
    secure = plain.model_copy(update={"rounds": RoundsPlan(total=5, min_updates=4, secure=SecurePlan(min_group=4))})
    assert "sums over at least 4 devices" in find(secure, "after local training").guarded
    assert not [each for each in told(secure, "server") if "loss" in each]
    bits = config("fedavg", {"precision": {"kind": "binary"}})
    assert "one bit a weight" in find(bits, "after local training").guarded
