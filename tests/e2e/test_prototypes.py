"""Two networks in one live federation: assigned by capability, one labelling pass for both, absent ones untouched."""

import threading
from pathlib import Path
from typing import Any

import pytest

from client_sdk import RunReport, train_and_push
from contract.wire.federations import FederationCreate
from tools.deployment import Deployment, add_server_data, federation_request, images

NETWORKS = [
    {"name": "large", "architecture": "cnn-digits", "options": {"widths": [24, 48]}, "requires": {"memory_mb": 1000}},
    {"name": "small", "architecture": "mlp", "options": {"hidden": [16]}},
]


@pytest.mark.slow
def test_two_prototypes_learn_from_all_teachers(deployment: Deployment, tmp_path: Path) -> None:
    add_server_data(deployment)
    request = federation_request(
        "mixed",
        {"name": "feddf", "options": {"schedule": {"epochs": 1}}},
        prototypes=NETWORKS,
        rounds={"total": 3, "min_clients": 2, "min_updates": 1, "clients_per_round": 1},
    )
    created = deployment.operator.create_federation(FederationCreate.model_validate(request))
    deployment.operator.start_federation(created.id)
    reports: dict[str, RunReport] = {}

    def device(name: str, number: int, capabilities: dict[str, Any]) -> None:
        reports[name] = train_and_push(
            deployment.url,
            images(number, 60, classes=[number, number + 1]),
            federation=created.id,
            join_token=created.join_token,
            name=name,
            state_dir=tmp_path / name,
            capabilities=capabilities,
            device="cpu",
            progress=False,
        )

    devices = [("server-room", 0, {"memory_mb": 64_000}), ("watch", 2, {"memory_mb": 512})]
    threads = [threading.Thread(target=device, args=each, daemon=True) for each in devices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=150)
    federation = deployment.operator.federation(created.id)
    assert federation.state == "finished", deployment.log("worker")[-2000:]
    clients = {client.name: client.prototype for client in deployment.operator.clients(created.id).items}
    assert clients == {"server-room": "large", "watch": "small"}
    trained = {name: report.rounds_trained for name, report in reports.items()}
    assert sum(trained.values()) == 3
    models = deployment.operator.models(federation=created.id).items
    for prototype, name in (("large", "server-room"), ("small", "watch")):
        made = [model for model in models if model.prototype == prototype]
        assert len(made) == 1 + trained[name], "a round without participants must leave the prototype as it was"
        assert made[-1].current
    for each in deployment.operator.rounds(created.id).items:
        assert each.metrics["teacher_forwards"] == 200
