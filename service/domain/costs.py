"""What a federation has cost, put together from what each of its rounds has. Simulations use it, too."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from contract.federation import FederationConfig
from contract.local import LocalPlan
from contract.tasks import ACCURACY, Metric
from contract.updates import BASE
from contract.wire.report import Cost, Flops, NetworkFigures, Role, RoundCost, TargetCost

TARGETS = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares whose cost is told where nobody says which."""


def parts_of(config: FederationConfig, seed: int) -> dict[str, Any]:
    """Return what a federation is made of, by which two of them are told apart."""
    told = {"task", "prototypes", "server_model", "recipe", "local", "rounds", "datasets"}
    return config.model_dump(mode="json", include=told) | {"seed": seed}


@dataclass(frozen=True)
class Trained:
    """An update that was accepted: whose, of which model, from how many samples; or `count` of them that are alike.

    `client` may be left empty where nobody draws how much to train (`LocalPlan.partial_work`).
    """

    client: str
    prototype: str
    num_samples: int
    count: int = 1


def sent_down(model: int, beside: Mapping[str, int], first: bool) -> int:
    """Return the bytes that a device is sent for a round.

    Args:
        model: of the round's model.
        beside: of what goes out beside it, by what it is.
        first: whether this is its first round with the prototype: a base is kept from then on.
    """
    return model + sum(size for what, size in beside.items() if what != BASE or first)


def total(before: Cost, rounds: Sequence[RoundCost]) -> Cost:
    """Return the sum of what was before the rounds and of these."""
    return sum((Cost.model_validate(each.model_dump(include=set(Cost.model_fields))) for each in rounds), before)


def to_target(
    target: float, first: float | None, before: Cost, rounds: Sequence[RoundCost], metric: Metric = ACCURACY
) -> TargetCost:
    """Return what it cost until the published model first had an accuracy (Fed-ET's C_acc), or another metric's value.

    Args:
        target: of accuracies and other shares in [0, 1].
        first: what the first model was measured at, None if it was not.
        before: cost of what was before the rounds.
        rounds: all, in their order; those that published nothing cost, too.
        metric: what the task is measured by; with RMSE a target is reached from above.
    """
    if first is not None and not metric.better(target, first):
        return TargetCost(target=target, round=0, cost=before)
    for count, each in enumerate(rounds, start=1):
        value = getattr(each, metric.key)
        if value is not None and not metric.better(target, value):
            return TargetCost(target=target, round=each.round, cost=total(before, rounds[:count]))
    return TargetCost(target=target)


# ----------------------------------------------------------------------------------------------------------- operations
def round_flops(
    config: FederationConfig,
    seed: int,
    index: int,
    trained: Iterable[Trained],
    networks: Iterable[NetworkFigures],
    figures: Mapping[str, Any] | None,
    public: int,
) -> Flops | None:
    """Return the operations of a round; None where those of a network are not known.

    Args:
        config: as the round had it.
        seed: the federation's.
        index: the round's.
        trained: accepted updates.
        networks: all that take part.
        figures: of the job that fused it (`worker.pipeline.rounds.fuse_round`); None: none did.
        public: samples of the set that devices predict on, where they do.
    """
    prototypes = {each.name: each for each in networks if each.role == "prototype"}
    training = _training(config, seed, index, trained, prototypes, public)
    told: Any = {} if figures is None or config.recipe.distil is None else figures.get("flops", {"labelling": None})
    if training is None or None in told.values():
        return None
    return Flops(training=training, **told)


def _training(
    config: FederationConfig,
    seed: int,
    index: int,
    trained: Iterable[Trained],
    networks: Mapping[str, NetworkFigures],
    public: int,
) -> int | None:
    @cache
    def plan_of(model: str) -> LocalPlan:
        return config.plan_of(model)

    total = 0
    for each in trained:
        network, plan = networks.get(each.prototype), plan_of(each.prototype)
        if network is None or network.forward_flops is None or network.training_flops is None:
            return None
        partial = plan.partial_work
        epochs = plan.epochs if partial is None else partial.draw(plan.epochs, seed, index, each.client)
        passes = plan.objective.passes(epochs)
        one = passes.flops(network.forward_flops, network.training_flops, each.num_samples, public)
        total += each.count * one
    return total


def discriminator_flops(
    config: FederationConfig, samples: Iterable[int], networks: Iterable[NetworkFigures]
) -> Flops | None:
    """Return the operations of the discriminators that were delivered; None where a network's are not known.

    Each real sample is shown with a fresh fake (FedGO Alg. 3, Table 17): one pass of the generator, two of training.

    Args:
        config: the federation's.
        samples: of each client that delivered one.
        networks: all that take part.
    """
    shown, stage = sum(samples), config.recipe.discriminators
    if not shown or stage is None:
        return Flops()
    found = {each.role: each for each in networks}
    generator, discriminator = found.get("generator"), found.get("discriminator")
    if generator is None or discriminator is None:
        return None
    if generator.forward_flops is None or discriminator.training_flops is None:
        return None
    one = generator.forward_flops + 2 * discriminator.training_flops
    return Flops(discriminators=stage.plan.epochs * shown * one)


def network_of(
    name: str, role: Role, architecture: str | None, size: int, effort: Mapping[str, Any] | None
) -> NetworkFigures:
    """Return what is shown of a network.

    Args:
        name: of its model.
        role: what it is there for.
        architecture: its own.
        size: bytes of its first file.
        effort: what it costs (`worker.parts.flops.Effort`), None where nobody knows.
    """
    known = effort or {}
    return NetworkFigures(
        name=name,
        role=role,
        architecture=architecture,
        bytes=size,
        parameters=known.get("parameters"),
        forward_flops=known.get("forward"),
        training_flops=known.get("training"),
    )


def public_samples(config: FederationConfig, registered: int | None) -> int:
    """Return the size of the set that devices predict on: the server's, or as many as the recipe draws."""
    if registered is not None and "unlabeled" in config.recipe.needs:
        return registered
    return int(getattr(config.public, "count", 0))
