"""What a simulation is told: the body that would create the federation, its devices' data and the server's data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.federation import FederationConfig
from contract.wire.changes import PlanChange
from contract.wire.federations import DatasetRefs, FederationCreate
from potstill.console import CliError
from potstill.simulate.speeds import Speeds
from service.domain import federation as rules
from service.domain import plans
from service.domain.errors import DomainError
from service.domain.mixture import check_mixture

ROLES = ("unlabeled", "validation", "test")


class SimulationError(CliError):
    """A simulation that cannot be run as it was described; the message names the field and the remedy."""


@dataclass(frozen=True)
class SimulatedClient:
    """One device.

    Attributes:
        name: decides seeds and orders, as in the service.
        dataset: whatever `client_sdk.train_and_push` takes: a pair of arrays (x, y), a path, a torch Dataset.
        prototype: what it trains; None for the federation's first.
        model: its own module, for architecture `custom`.
        lie: what it sends in place of the truth (`potstill.simulate.liars`); None for an honest device.
    """

    name: str
    dataset: Any
    prototype: str | None = None
    model: Any = None
    lie: str | None = None


@dataclass(frozen=True)
class SimulationConfig:
    """A whole simulation.

    Attributes:
        federation: what `POST /v1/federations` would be sent; `datasets` is not read, `server` takes its place.
        clients: the devices; all of them are there from the start.
        server: the server's data by role (`unlabeled`, `validation`, `test`): a pair (x, y), x alone for `unlabeled`
            where no student learns its labels, or the path of a safetensors file with `inputs` and `labels`.
        folder: holds everything that is made; a simulation that is run again there goes on where it was.
        device: torch device of the devices' training and of the server's jobs; several, with commas between, are for a
            `crew.Crew`, the first of them for the jobs.
        threads: torch's threads; None leaves them as they are. Sums depend on them, and so do results.
        initial_models: safetensors files that prototypes start from, by name; the others start from the seed.
        generator: weights of the recipe's imported generator.
        keep_updates: keep all clients' models; else each round's are removed when it is over.
        keep_models: keep every round's global models; else only the newest.
        changes: round, from 2 on -> what of the plan is otherwise from it on; `PATCH /v1/federations/{id}/plan` would
            change it while the round before collects.
        speeds: how fast devices are, by a virtual clock; None: there is none, but in rounds that do not wait, whose
            devices have the default.
    """

    federation: FederationCreate
    clients: Sequence[SimulatedClient]
    server: Mapping[str, Any]
    folder: Path
    device: str = "cpu"
    threads: int | None = None
    initial_models: Mapping[str, Path] = field(default_factory=dict)
    generator: Path | None = None
    keep_updates: bool = False
    keep_models: bool = True
    changes: Mapping[int, PlanChange] = field(default_factory=dict)
    speeds: Speeds | None = None


def planned(config: SimulationConfig, resolved: FederationConfig) -> dict[int, FederationConfig]:
    """Return the configuration by the round from which it holds, 1 for the first, after the service's own checks.

    Raises:
        SimulationError: a change that the service would refuse, or one of a round that never opens.
    """
    found = {1: resolved}
    for index, change in sorted(config.changes.items()):
        before = found[max(found)]
        if not 1 < index <= before.rounds.total:
            raise SimulationError(
                f"changes: round {index} is none of 2 to {before.rounds.total}; the first has the plan itself"
            )
        try:
            found[index] = plans.changed(before, change, index - 1)
            check_mixture(found[index], config.server.keys())
        except DomainError as error:
            raise SimulationError(f"changes: round {index}: {error.detail}") from error
    return found


def resolve(config: SimulationConfig) -> FederationConfig:
    """Return the configuration as the service resolves it, after the service's own checks.

    Raises:
        SimulationError: an impossible mixture, or names that do not go together.
    """
    _check_names(config)
    request = config.federation
    try:
        resolved = rules.resolve(request, DatasetRefs(), config.server.keys())
        prototypes = [
            each.model_copy(update={"initial_model": each.name}) if each.name in config.initial_models else each
            for each in request.prototypes
        ]
        check_mixture(resolved.model_copy(update={"prototypes": prototypes}), config.server.keys())
    except DomainError as error:
        raise SimulationError(error.detail) from error
    return resolved


def _check_names(config: SimulationConfig) -> None:
    names = [client.name for client in config.clients]
    if not names:
        raise SimulationError("clients: there is none; a simulation needs at least one")
    if len(set(names)) != len(names):
        raise SimulationError("clients: a name appears twice; every client needs its own")
    if config.federation.rounds.quorum > len(names):
        raise SimulationError(
            f"rounds: {config.federation.rounds.quorum} clients are needed for the first round, there are {len(names)}"
        )
    prototypes = {prototype.name for prototype in config.federation.prototypes}
    for client in config.clients:
        if client.prototype is not None and client.prototype not in prototypes:
            raise SimulationError(f"client {client.name!r}: there is no prototype {client.prototype!r}")
    unknown = sorted(set(config.server) - set(ROLES))
    if unknown:
        raise SimulationError(f"server: {unknown[0]!r} is not one of {', '.join(ROLES)}")
