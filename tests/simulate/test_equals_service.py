"""The claim of the simulator: its model files are the service's, byte for byte, for the same seed, names and data."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from client_sdk import train_and_push
from contract.wire.federations import FederationCreate
from potstill.simulate.config import SimulatedClient, SimulationConfig
from potstill.simulate.engine import Simulation
from potstill.simulate.history import History, digest_of
from tools.deployment import Deployment, add_server_data, federation_request, images

NAMES = ("east", "north", "south", "west")
SCHEDULE = {"epochs": 2, "batch_size": 32}
SGD = {"optimizer": {"kind": "sgd", "lr": 0.05}, "epochs": 1, "batch_size": 16}
FEDGO = {
    "schedule": SCHEDULE,
    "generator": {"steps": 15},
    "plan": {"epochs": 2, "batch_size": 16},
    "link": "sigmoid",
}
FEDGAN = {
    "schedule": SCHEDULE,
    "data": {"kind": "generated", "count": 60},
    "generator": {"kind": "fedgan", "rounds": 2, "epochs": 1, "batch_size": 16},
    "plan": {"epochs": 1, "batch_size": 16},
}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "fedavg": ({"name": "fedavg"}, {}),
    "feddf": ({"name": "feddf", "options": {"schedule": SCHEDULE}}, {}),
    "fedgo": ({"name": "fedgo", "options": FEDGO}, {}),
    "fedgan": ({"name": "fedgo", "options": FEDGAN}, {"datasets": {"test": "test"}}),
    # state on the server and on the devices, and what is sent beside the model
    "scaffold": ({"name": "scaffold"}, {"local": {"objective": {"kind": "scaffold"}, **SGD}}),
    "fedgkd": ({"name": "fedgkd"}, {"local": {"objective": {"kind": "fedgkd"}, **SGD}}),
    "ds-fl": (
        {"name": "ds-fl", "options": {"schedule": SCHEDULE}},
        {"local": {"objective": {"kind": "ds_fl", "imitation_epochs": 2}, **SGD}},
    ),
    # several models of one prototype
    "fedsdd": ({"name": "fedsdd", "options": {"schedule": SCHEDULE, "groups": {"count": 2}}}, {"local": SGD}),
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def data_of(number: int) -> tuple[Any, Any]:
    return images(number, 40 + 10 * number, classes=[number, (number + 1) % 4])


def request_for(case: str) -> FederationCreate:
    recipe, more = CASES[case]
    rounds = {"total": 2, "clients_per_round": 3, "min_clients": len(NAMES), "min_updates": 3}
    return FederationCreate.model_validate(federation_request(case, recipe, rounds=rounds, **more))


def run_service(deployment: Deployment, request: FederationCreate, folder: Path) -> str:
    """Run a federation with a thread a device; return its id."""
    created = deployment.operator.create_federation(request)
    deployment.operator.start_federation(created.id)
    errors: list[Exception] = []

    def device(number: int, name: str) -> None:
        try:
            train_and_push(
                deployment.url, data_of(number), federation=created.id, join_token=created.join_token, name=name,
                state_dir=folder / name, device="cpu", progress=False,
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - it is reported in the main thread
            errors.append(error)

    threads = [threading.Thread(target=device, args=pair, daemon=True) for pair in enumerate(NAMES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not errors, errors
    assert deployment.operator.federation(created.id).state == "finished", deployment.log("worker")[-3000:]
    return created.id


def simulate(deployment: Deployment, request: FederationCreate, folder: Path) -> History:
    config = SimulationConfig(
        federation=request,
        clients=[SimulatedClient(name, data_of(number)) for number, name in enumerate(NAMES)],
        server={role: deployment.home / f"{file}.safetensors" for role, file in _SETS.items()},
        folder=folder,
        threads=1,
    )
    return Simulation(config).run()


_SETS = {"unlabeled": "server", "test": "test"}


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_published_file_is_the_services(deployment: Deployment, tmp_path: Path) -> None:
    add_server_data(deployment)
    for case in CASES:
        request = request_for(case)
        federation = run_service(deployment, request, tmp_path / "devices" / case)
        history = simulate(deployment, request, tmp_path / "simulated" / case)
        models = deployment.operator.models(federation=federation, limit=100).items
        served = {(m.prototype, m.round): m.digest for m in models if m.role in ("initial", "global")}
        simulated = {
            (name, record.index): digest_of(record.models[name])
            for record in (history.initial, *history.rounds)
            for name in record.published
        }
        assert simulated == served, case
        assert {index for _, index in served} == {0, 1, 2}
        shown = deployment.operator.federation(federation).accuracies
        assert shown == [(record.index, record.accuracy) for record in history.rounds]
        asked = [deployment.operator.round(item.id) for item in deployment.operator.rounds(federation).items]
        assert {r.index: sorted(p.name for p in r.participants) for r in asked} == {
            record.index: [part.client for part in record.participants] for record in history.rounds
        }
        if case in ("fedgo", "fedgan"):
            others = {m.role: m.digest for m in models if m.role in ("generator", "discriminator", "samples")}
            assert others == {name: digest_of(path) for name, path in history.generator.items()}
