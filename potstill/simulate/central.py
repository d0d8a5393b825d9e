"""Central training, what federated learning is measured against: one model on the data of all clients together."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from client_sdk import data
from contract.federation import FederationConfig
from contract.wire.federations import FederationCreate
from potstill.samples import Samples
from potstill.simulate.config import SimulatedClient, SimulationError
from service.domain import selection

NAME = "central"


@dataclass
class Pooled(data.Samples):
    """Samples of which an epoch is so many batches, whatever there is: fewer or more than each sample once."""

    count: int = 1

    def batches(self, size: int, order: torch.Generator, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield `count` batches ``(inputs [B, *shape], labels [B])`` on `device`; each pass is shuffled anew."""
        left = self.count
        while left > 0:
            rows = data.cut(torch.randperm(self.size, generator=order), size)[:left]
            yield from self.read(rows, device)
            left -= len(rows)

    def steps(self, size: int) -> int:
        """Return how many batches an epoch has."""
        return self.count


def steps(config: FederationConfig, seed: int, clients: Mapping[str, Samples], models: Mapping[str, str]) -> int:
    """Return the steps that a round's devices take together, mean over all rounds.

    Args:
        config: of the federation whose devices are counted.
        seed: the federation's.
        clients: samples by name.
        models: what each trains, by name.
    """
    sizes = {name: len(samples) for name, samples in clients.items()}
    total = 0
    for index in range(1, config.rounds.total + 1):
        for name in selection.choose(config.rounds, seed, index, sizes, config.recipe.selection):
            work = config.work_of(seed, index, name, models[name])
            total += work.epochs * len(data.cut(torch.arange(sizes[name]), work.batch_size))
    return max(1, round(total / config.rounds.total))


def check(config: FederationConfig) -> None:
    """Refuse what one model that is trained in one place does not have.

    Raises:
        SimulationError: says what to leave out.
    """
    recipe = config.recipe
    if recipe.distil is not None or recipe.discriminators is not None or recipe.fuse.kind != "weighted_mean":
        raise SimulationError("pooled: one model on all data has nothing to fuse or to distil; take the plain mean")
    if config.local.privacy is not None:
        raise SimulationError("pooled: steps of local.privacy draw samples of their own; leave it out for this one")


def federation(body: FederationCreate, config: FederationConfig) -> FederationCreate:
    """Return the federation of one device, which trains the first prototype by its plan.

    Args:
        body: of the federation whose data it has.
        config: the same, resolved.
    """
    first = config.prototypes[0]
    alone = {"clients_per_round": None, "min_updates": 1, "min_clients": 1}
    return body.model_copy(
        update={
            "prototypes": [first.model_copy(update={"local": None})],
            "local": config.plan_of(first.name).model_copy(update={"epochs": 1, "partial_work": None}),
            "rounds": body.rounds.model_copy(update=alone),
        }
    )


def client(clients: Mapping[str, Samples], count: int) -> SimulatedClient:
    """Return the one device, which has the clients' samples in the order of their names."""
    parts = [clients[name] for name in sorted(clients)]
    held: list[Any] = [np.concatenate([getattr(each, name) for each in parts]) for name in ("inputs", "labels")]
    inputs, labels = map(torch.from_numpy, held)
    return SimulatedClient(NAME, Pooled(len(labels), inputs, labels, count=count))
