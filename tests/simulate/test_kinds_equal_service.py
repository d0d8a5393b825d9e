"""Tasks of every kind beside classification: a simulation's files are, bit for bit, what the service publishes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from client_sdk import RunReport, train_and_push
from contract.tasks import KINDS, TaskKind
from contract.tensors import write_file
from contract.wire.federations import FederationCreate
from potstill.simulate.config import SimulatedClient, SimulationConfig
from potstill.simulate.costs import report
from potstill.simulate.engine import Simulation
from potstill.simulate.history import digest_of
from tools.deployment import Deployment, at_once, running
from tools.tasks import body_of

from .test_tasks import CLIENTS, samples

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    made = Deployment(tmp_path_factory.mktemp("deployment") / "home")
    with running(made):
        yield made


def request_for(kind: TaskKind) -> FederationCreate:
    """Positions have labels of their own, so that what is ignored there is learnt from, too."""
    body = body_of(kind, "feddf")
    if kind in ("dense", "tokens"):
        body["recipe"]["options"] |= {"data": {"kind": "labeled"}}
    names = {role: f"{kind}-{role}" for role in ("unlabeled", "validation", "test")}
    return FederationCreate.model_validate(body | {"name": kind, "datasets": names})


def server_sets(deployment: Deployment, kind: TaskKind) -> dict[str, Path]:
    found = {}
    for seed, role in enumerate(("unlabeled", "validation", "test"), start=7):
        inputs, labels = samples(kind, seed, 12)
        path = found[role] = deployment.home / f"{kind}-{role}.safetensors"
        write_file(path, {"inputs": inputs, "labels": labels})
        deployment.operator.add_dataset(f"{kind}-{role}", path)
    return found


@pytest.mark.chaos
@pytest.mark.timeout(200)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "classification"])
def test_every_published_file_is_the_services(deployment: Deployment, kind: TaskKind, tmp_path: Path) -> None:
    sets = server_sets(deployment, kind)
    operator = deployment.operator
    created = operator.create_federation(request_for(kind))
    operator.start_federation(created.id)
    data = {name: samples(kind, seed, 9 + seed) for seed, name in enumerate(CLIENTS)}

    def device(_: int, name: str) -> RunReport:
        return train_and_push(
            deployment.url, data[name], federation=created.id, join_token=created.join_token, name=name,
            state_dir=tmp_path / "devices" / name, device="cpu", progress=False,
        )  # fmt: skip

    at_once(deployment, data, device)
    clients = [SimulatedClient(name, pair) for name, pair in data.items()]
    simulation = Simulation(SimulationConfig(request_for(kind), clients, sets, tmp_path / "simulated", threads=1))
    history = simulation.run()
    models = operator.models(federation=created.id, limit=100).items
    assert {m.round: m.digest for m in models if m.role in ("initial", "global")} == {
        record.index: digest_of(record.models["main"]) for record in (history.initial, *history.rounds)
    }
    first = history.initial.measured
    assert first is not None
    served = operator.report(created.id, targets=[first, -1.0 if first > 1 else 1.0])
    told = report("simulated", simulation.config, history, [each.target for each in served.targets])
    assert told is not None
    assert [(each.accuracy, each.measured) for each in told.rounds] == [
        (each.accuracy, each.measured) for each in served.rounds
    ]
    assert [each.round for each in told.targets] == [each.round for each in served.targets]
    assert served.targets[0].round == 0, "the first models are as good as themselves"
