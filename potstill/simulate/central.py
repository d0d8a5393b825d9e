"""Central training, what federated learning is measured against: one model on the data of all clients together."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from client_sdk import data
from client_sdk.named import Inputs
from contract.federation import FederationConfig
from contract.wire.changes import PlanChange
from contract.wire.federations import FederationCreate
from potstill.samples import Samples
from potstill.simulate.config import SimulatedClient, SimulationConfig, SimulationError, planned, resolve
from service.domain import selection

NAME = "central"
_OF_DEVICES = {
    "local": {"epochs", "partial_work"},
    "rounds": {"clients_per_round", "min_updates", "over_selection", "replace_lost"},
}
"""What of a change of the plan is no matter of one device that takes so many steps."""


@dataclass
class Pooled(data.Samples):
    """Samples of which an epoch is so many batches, whatever there is: fewer or more than each sample once."""

    count: int = 1

    def batches(self, size: int, order: torch.Generator, device: torch.device) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield `count` batches ``(inputs [B, *shape], labels [B])`` on `device`; each pass is shuffled anew."""
        left = self.count
        while left > 0:
            rows = data.cut(torch.randperm(self.size, generator=order), size)[:left]
            yield from self.read(rows, device)
            left -= len(rows)

    def steps(self, size: int) -> int:
        """Return how many batches an epoch has."""
        return self.count


def alone(config: SimulationConfig, clients: Mapping[str, Samples]) -> SimulationConfig:
    """Return the simulation of one device with all clients' samples, with as many steps as all of them take together.

    It trains the first prototype, by its own plan.

    Args:
        config: of the federation that it is compared with.
        clients: the samples by name.

    Raises:
        SimulationError: it has parts that one model does not have; says what to leave out.
    """
    resolved = resolve(config)
    _check(resolved)
    count = steps(config, {name: len(samples) for name, samples in clients.items()})
    return replace(
        config,
        federation=_federation(config.federation, resolved),
        clients=[_client(clients, count)],
        changes=_changes(config.changes),
    )


def steps(config: SimulationConfig, sizes: Mapping[str, int]) -> int:
    """Return the steps that a round's devices take together, mean over all rounds; `sizes` are samples by name."""
    resolved, seed = resolve(config), config.federation.seed
    by_round, first = planned(config, resolved), resolved.prototypes[0].name
    models = {each.name: each.prototype or first for each in config.clients}
    plan, total, index = resolved, 0, 0
    while index < plan.rounds.total:
        index += 1
        plan = by_round.get(index, plan)
        for name in selection.choose(plan.rounds, seed, index, sizes, plan.recipe.selection):
            work = plan.work_of(seed, index, name, models[name])
            total += work.epochs * len(data.cut(torch.arange(sizes[name]), work.batch_size))
        plan = by_round.get(index + 1, plan)
    return max(1, round(total / index))


def _check(config: FederationConfig) -> None:
    recipe = config.recipe
    if recipe.distil is not None or recipe.discriminators is not None or recipe.fuse.kind != "weighted_mean":
        raise SimulationError("pooled: one model on all data has nothing to fuse or to distil; take the plain mean")
    if config.local.privacy is not None:
        raise SimulationError("pooled: steps of local.privacy draw samples of their own; leave it out for this one")


def _federation(body: FederationCreate, config: FederationConfig) -> FederationCreate:
    first = config.prototypes[0]
    one = {"clients_per_round": None, "min_updates": 1, "min_clients": 1}
    return body.model_copy(
        update={
            "prototypes": [first.model_copy(update={"local": None})],
            "local": config.plan_of(first.name).model_copy(update={"epochs": 1, "partial_work": None}),
            "rounds": body.rounds.model_copy(update=one),
        }
    )


def _changes(changes: Mapping[int, PlanChange]) -> dict[int, PlanChange]:
    found: dict[int, PlanChange] = {}
    for index, change in changes.items():
        told = {
            section: kept
            for section, without in _OF_DEVICES.items()
            if (kept := {key: value for key, value in change.told().get(section, {}).items() if key not in without})
        }
        if told:
            found[index] = PlanChange.model_validate(told)
    return found


def _client(clients: Mapping[str, Samples], count: int) -> SimulatedClient:
    """Return the one device, which has the clients' samples in the order of their names."""
    parts = [clients[name] for name in sorted(clients)]
    held: list[Any] = [np.concatenate([getattr(each, name) for each in parts]) for name in ("inputs", "labels")]
    inputs, labels = map(torch.from_numpy, held)
    return SimulatedClient(NAME, Pooled(len(labels), inputs, labels, count=count))
