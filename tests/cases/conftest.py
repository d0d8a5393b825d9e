"""The cases of this folder are what operators of such services tripped over in public. A test bears its case's id.

`live` is a service of real processes on a real socket; `world` (see tests/service) is one in this process.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk import Client
from contract.tensors import TensorFile, write_file
from contract.wire.devices import Enrolment
from contract.wire.federations import Federation, FederationCreate
from contract.wire.rounds import RoundDetail
from tests.cases.wire import Answer, put
from tests.service.conftest import (  # noqa: F401 - fixtures of this folder, too
    make_settings,
    settings,
    template,
    unhurried,
    world,
)
from tools.deployment import Deployment, running, wait_for

LIMIT = 8 * 1024 * 1024
Arrays = dict[str, np.ndarray]
NETWORK: Arrays = {
    "conv.weight": np.ones((8, 1, 3, 3), np.float32),
    "bn.weight": np.ones(8, np.float32),
    "bn.running_mean": np.zeros(8, np.float32),
    "bn.running_var": np.ones(8, np.float32),
    "bn.num_batches_tracked": np.array(3, np.int64),
    "fc.weight": np.ones((10, 8), np.float32),
    "fc.bias": np.zeros(10, np.float32),
}
"""A network that only devices can run: the service averages it, and never builds it."""


@dataclass
class Party:
    """A federation and its devices, driven by hand."""

    deployment: Deployment
    id: str
    join_token: str
    tokens: dict[str, str]
    folder: Path

    def client(self, name: str) -> Client:
        """Return a device's client."""
        return Client(self.deployment.url, self.tokens[name])

    def round(self, index: int = 0) -> RoundDetail:
        """Return a round in full: the newest, or the one of an index."""
        rounds = self.deployment.operator.rounds(self.id).items
        return self.deployment.operator.round(rounds[index - 1].id)

    def url(self, round_: RoundDetail | None = None) -> str:
        """Return where updates of a round go."""
        return f"{self.deployment.url}/v1/rounds/{(round_ or self.round()).id}/update"

    def body(self, arrays: Arrays | None = None, *, num_samples: int | str = 10, **metadata: str) -> bytes:
        """Return the bytes of an update of the newest round."""
        path = self.folder / "update.safetensors"
        base = self.round().base_models["main"]
        write_file(path, arrays or NETWORK, {"num_samples": str(num_samples), "base_model": base, **metadata})
        return path.read_bytes()

    def push(self, name: str, arrays: Arrays | None = None, **metadata: Any) -> Answer:
        """Upload an update of the newest round."""
        return put(self.url(), self.tokens[name], self.body(arrays, **metadata))

    def state(self) -> Federation:
        """Return the federation."""
        return self.deployment.operator.federation(self.id)

    def reach(self, index: int) -> None:
        """Wait for a round to be the newest."""
        wait_for(lambda: self.round().index == index, why="no next round")

    def finish(self) -> None:
        """Wait for the federation's end."""
        wait_for(lambda: self.state().state == "finished", why="the federation does not end")

    def model(self) -> Arrays:
        """Return the current global model's tensors."""
        path = self.folder / "global.safetensors"
        with Client(self.deployment.url, self.deployment.token) as client:
            client.download(self.state().models["main"], path)
        with TensorFile(path) as file:
            return {name: np.array(file.read(name)) for name in file.names}


Invite = Callable[..., Party]
"""(names of devices, recipe, rounds) -> a federation whose first round is open."""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """An API and a worker as processes, with a small limit on bodies."""
    made = Deployment(tmp_path_factory.mktemp("live") / "home", POTSTILL_MAX_UPLOAD_BYTES=str(LIMIT))
    with running(made):
        yield made


@pytest.fixture
def party(live: Deployment, tmp_path: Path, request: pytest.FixtureRequest) -> Invite:
    """Return a function that opens the first round of a federation with some devices."""

    numbers = count(1)

    def make(*names: str, recipe: dict[str, Any] | None = None, **rounds: Any) -> Party:
        path = tmp_path / "initial.safetensors"
        write_file(path, NETWORK)
        body = {
            "name": f"{request.node.name[:60]} {next(numbers)}",
            "task": {"num_classes": 10, "input": {"shape": [1, 8, 8]}},
            "prototypes": [{"architecture": "custom", "initial_model": live.operator.import_model(path).id}],
            "recipe": recipe or {"name": "fedavg"},
            "rounds": {"total": 2, "min_clients": len(names), **rounds},
        }
        created = live.operator.create_federation(FederationCreate.model_validate(body))
        made = Party(live, created.id, created.join_token, {}, tmp_path)
        for name in names:
            with Client(live.url) as client:
                enrolment = Enrolment(name=name, num_samples=10)
                made.tokens[name] = client.enrol(created.id, enrolment, join_token=created.join_token).token
        live.operator.start_federation(created.id)
        wait_for(lambda: made.state().current_round, why="no round opens")
        return made

    return make
