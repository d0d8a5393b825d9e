"""What a round costs in operations, and what it takes to get to an accuracy; by hand."""

from typing import Any

import pytest

from contract.federation import FederationConfig
from contract.local import LocalPlan
from contract.recipes import presets
from contract.wire.federations import DatasetRefs, Prototype, Task
from contract.wire.plans import RoundsPlan
from contract.wire.report import Bytes, Cost, Flops, NetworkFigures, RoundCost, Seconds
from service.domain import costs
from service.domain.costs import Trained

NETWORK = NetworkFigures(
    name="main", role="prototype", architecture="mlp", bytes=200, parameters=39, forward_flops=64, training_flops=152
)
UNKNOWN = NETWORK.model_copy(update={"training_flops": None})


def config(recipe: str = "fedavg", local: dict[str, Any] | None = None, **options: Any) -> FederationConfig:
    return FederationConfig(
        task=Task.model_validate({"num_classes": 3, "input": {"shape": [5]}}),
        prototypes=[Prototype(architecture="mlp", options={"hidden": [4]})],
        recipe=presets.build(recipe, options),
        local=LocalPlan.model_validate({"epochs": 3} | (local or {})),
        rounds=RoundsPlan(total=5),
        datasets=DatasetRefs(),
    )


def flops(
    made: FederationConfig, figures: dict[str, Any] | None = None, network: NetworkFigures = NETWORK
) -> Flops | None:
    """Two clients with 10 and 20 samples; 7 are public."""
    trained = [Trained("a", "main", 10), Trained("b", "main", 20)]
    return costs.round_flops(made, 0, 1, trained, [network], figures, 7)


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        ({"kind": "sgd"}, 3 * 30 * 152),
        ({"kind": "fedprox"}, 3 * 30 * 152),
        ({"kind": "scaffold"}, 3 * 30 * 152),
        ({"kind": "scaffold", "option": 1}, 4 * 30 * 152),
        ({"kind": "fedgkd"}, 3 * 30 * (152 + 64)),
        ({"kind": "moon"}, 3 * 30 * (152 + 2 * 64)),
        ({"kind": "fedtgp"}, 30 * (3 * 152 + 64)),
        ({"kind": "ds_fl", "imitation_epochs": 2}, 3 * 30 * 152 + 2 * 7 * (2 * 152 + 64)),
    ],
)
def test_local_training(objective: dict[str, Any], expected: int) -> None:
    assert flops(config(local={"objective": objective})) == Flops(training=expected)


def test_each_client_its_own_epochs() -> None:
    made = config(local={"epochs": 9, "partial_work": {"least": 1}})
    epochs = [made.work_of(0, 1, name, "main").epochs for name in ("a", "b")]
    assert epochs != [9, 9]
    assert flops(made) == Flops(training=152 * (epochs[0] * 10 + epochs[1] * 20))


def test_the_server_s_are_the_job_s_own() -> None:
    distils = config("feddf")
    counted = {"labelling": 1000, "distillation": 5000}
    assert flops(distils, {"flops": counted}) == Flops(training=3 * 30 * 152, **counted)
    assert flops(distils) == Flops(training=3 * 30 * 152), "a round that was not fused has none"
    assert flops(distils, {"accuracy": 0.5}) is None, "one that was fused before anybody counted"
    assert flops(distils, {"flops": counted | {"labelling": None}}) is None
    assert flops(config(), {"accuracy": 0.5}) == Flops(training=3 * 30 * 152)


def test_what_is_not_known_is_not_zero() -> None:
    assert flops(config(), network=UNKNOWN) is None
    known, unknown = Cost(flops=Flops(training=3)), Cost(flops=None)
    assert (known + known).flops == Flops(training=6)
    assert (known + unknown).flops is None


def test_discriminators() -> None:
    """FedGO Alg. 3: each epoch shows each real sample, and a fresh fake that one pass of the generator makes."""
    made = config("fedgo-small", discriminators={"plan": {"epochs": 30}})
    generator = NETWORK.model_copy(update={"name": "generator", "role": "generator", "forward_flops": 1000})
    discriminator = NETWORK.model_copy(update={"name": "discriminator", "role": "discriminator"})
    found = costs.discriminator_flops(made, [10, 20], [NETWORK, generator, discriminator])
    assert found == Flops(discriminators=30 * 30 * (1000 + 2 * 152))
    assert costs.discriminator_flops(made, [10], [NETWORK, generator]) is None
    assert costs.discriminator_flops(made, [], [NETWORK]) == Flops()


def _round(index: int, accuracy: float | None, up: int, wire: int | None = None) -> RoundCost:
    return RoundCost(
        round=index,
        state="skipped" if accuracy is None else "published",
        accuracy=accuracy,
        devices=1,
        answered=1,
        files=Bytes(down=1, up=up),
        wire=None if wire is None else Bytes(up=wire),
        seconds=Seconds(jobs=0.5, phases={"average": 0.1, f"only {index}": 0.2}),
    )


def test_the_way_to_a_target() -> None:
    before = Cost(files=Bytes(down=100), wire=Bytes(down=120))
    rounds = [_round(1, 0.3, 10), _round(2, None, 20, wire=50), _round(3, 0.6, 30), _round(4, 0.5, 40)]
    found = costs.to_target(0.5, None, before, rounds)
    assert found.round == 3
    assert found.cost is not None
    assert found.cost.files == Bytes(down=103, up=60), "rounds that published nothing cost, too"
    assert found.cost.wire == Bytes(down=120, up=50)
    assert found.cost.seconds.jobs == 1.5
    assert found.cost.seconds.phases == {"average": 0.3, "only 1": 0.2, "only 2": 0.2, "only 3": 0.2}
    assert costs.to_target(0.9, 0.2, before, rounds).cost is None
    first = costs.to_target(0.2, 0.2, before, rounds)
    assert (first.round, first.cost) == (0, before)
    assert costs.total(before, rounds).files == Bytes(down=104, up=100)
