"""A network of nobody's catalogue in a live federation: two files are registered, devices train it without its code."""

import threading
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from client_sdk import RunReport, export_network, train_and_push
from contract.nn.codec import load_state
from contract.wire.federations import FederationCreate
from tools.deployment import Deployment, add_server_data, federation_request, images


class Net(nn.Module):
    """BatchNorm, dropout and a head of a name of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 6, 3, stride=2, padding=1), nn.BatchNorm2d(6)
        self.drop, self.last = nn.Dropout(0.1), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(torch.relu(self.norm(self.conv(x))).mean((2, 3))))  # type: ignore[no-any-return]


@pytest.mark.slow
def test_devices_train_a_network_that_they_have_no_code_of(deployment: Deployment, tmp_path: Path) -> None:
    add_server_data(deployment)
    torch.manual_seed(0)
    author = Net()
    document = export_network(author, [1, 8, 8], tmp_path / "net.json", head="last")
    operator = deployment.operator
    first = operator.import_model(tmp_path / "net.safetensors")
    network = operator.register_network(tmp_path / "net.json", "ward-net", initial_model=first.id)
    request = federation_request(
        "own-network",
        {"name": "feddf", "options": {"schedule": {"epochs": 1}}},
        prototypes=[{"architecture": "net:ward-net"}],
        local={"objective": {"kind": "feduv"}},
        rounds={"total": 2, "min_clients": 2},
    )
    created = operator.create_federation(FederationCreate.model_validate(request))
    operator.start_federation(created.id)
    reports: dict[str, RunReport] = {}

    def device(number: int) -> None:
        reports[f"d{number}"] = train_and_push(
            deployment.url,
            images(number, 60, classes=[number, number + 1]),
            federation=created.id,
            join_token=created.join_token,
            name=f"d{number}",
            state_dir=tmp_path / f"d{number}",
            device="cpu",
            progress=False,
        )

    threads = [threading.Thread(target=device, args=(number,), daemon=True) for number in (0, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=150)
    assert operator.federation(created.id).state == "finished", deployment.log("worker")[-2000:]
    assert operator.federation(created.id).accuracies
    kept = [tmp_path / name / "networks" / f"{network.digest}.json" for name in reports]
    fetched = [file.read_bytes() for file in kept if file.exists()]  # once a process
    assert fetched and set(fetched) == {(tmp_path / "net.json").read_bytes()}
    path = reports["d0"].model_path
    assert path is not None
    load_state(author, path)
    assert document.train.features is not None
    assert author.eval()(torch.zeros(1, 1, 8, 8)).shape == (1, 4)
