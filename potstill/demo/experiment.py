"""D1 through the real service: data sets, federations, device processes, results. The demo and the evidence use it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from client_sdk import OperatorClient
from contract.wire.federations import FederationCreated
from potstill.demo.data import Split, split
from potstill.demo.device import Membership
from potstill.demo.devices import Devices
from potstill.demo.methods import METHODS, Setting, request
from potstill.demo.service import LocalService
from potstill.demo.watch import Watched, watch

ENV = {"POTSTILL_TORCH_THREADS": "1"}  # tiny networks: threads cost more than they bring, and results do not vary


@dataclass
class Outcome:
    """A method's run: test accuracy per round, in [0, 1]."""

    method: str
    label: str
    seed: int
    accuracies: list[float]
    seconds: float | None = None
    rounds: list[dict[str, Any]] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """Mean accuracy over the rounds: single rounds swing by 5 to 10 points."""
        return sum(self.accuracies) / len(self.accuracies)

    @property
    def last_three(self) -> float:
        """Mean accuracy of the last three rounds."""
        last = self.accuracies[-3:]
        return sum(last) / len(last)

    def reached(self, bar: float) -> int | None:
        """Return the first round at `bar` or above."""
        return next((index for index, accuracy in enumerate(self.accuracies, 1) if accuracy >= bar), None)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**asdict(self), "mean": self.mean, "last_three": self.last_three}


def register(client: OperatorClient, data: Split, folder: Path, suffix: str = "") -> dict[str, str]:
    """Upload the server's unlabelled images and the test set; return their ids by role."""
    unlabeled = client.add_dataset(f"digits-server{suffix}", data.server.save(folder / "server.safetensors", False))
    test = client.add_dataset(f"digits-test{suffix}", data.test.save(folder / "test.safetensors"))
    return {"unlabeled": unlabeled.id, "test": test.id}


def create(
    client: OperatorClient, methods: Sequence[str], setting: Setting, datasets: Mapping[str, str]
) -> list[FederationCreated]:
    """Create and start a federation a method; they prepare at once and wait for their devices."""
    made = []
    for key in methods:
        made.append(client.create_federation(request(METHODS[key], setting, **datasets)))
        client.start_federation(made[-1].id)
    return made


def _rounds(client: OperatorClient, federation: str) -> list[dict[str, Any]]:
    details = (client.round(item.id) for item in client.each(client.rounds, federation))
    return sorted((detail.model_dump(mode="json") for detail in details), key=lambda detail: detail["index"])


def run_methods(
    service: LocalService, methods: Sequence[str], setting: Setting, *, folder: Path, logs: Path
) -> list[Outcome]:
    """Run D1 for some methods, one after the other.

    Args:
        service: a running service.
        folder: for the devices' data and state.

    Raises:
        CliError: a process ended, or a federation did not finish.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = split(setting.seed, setting.clients)
    with service.operator() as client:
        made = create(client, methods, setting, register(client, data, folder, setting.suffix))
        memberships = [Membership(federation=item.id, join_token=item.join_token) for item in made]
        items = [Watched(METHODS[key].label, item.id) for key, item in zip(methods, made, strict=True)]
        with Devices(service.url, data.clients, memberships, folder, logs) as devices:

            def check() -> None:
                service.check()
                devices.check()

            done = watch(client, items, check)
        return [
            Outcome(
                method=key,
                label=METHODS[key].label,
                seed=setting.seed,
                accuracies=[accuracy for _, accuracy in federation.accuracies],
                seconds=item.seconds,
                rounds=_rounds(client, federation.id),
            )
            for key, item, federation in zip(methods, items, done, strict=True)
        ]
