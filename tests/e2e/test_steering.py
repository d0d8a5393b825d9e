"""An operator goes back to earlier models while devices train, and a gate keeps a bad round from being published."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk import RunReport, train_and_push
from contract.tensors import write_file
from contract.wire.federations import FederationCreate
from tools.deployment import CLASSES, Deployment, at_once, federation_request, images, wait_for

NAMES = ("east", "west")


def request(name: str, **rounds: Any) -> FederationCreate:
    body = federation_request(
        name,
        {"name": "fedavg"},
        rounds={"total": 3, "min_clients": 2, "min_updates": 2, "heartbeat_seconds": 1, **rounds},
        datasets={"validation": "held-out"},
    )
    return FederationCreate.model_validate(body)


def run(deployment: Deployment, made: Any, folder: Path, shift: int = 0, rounds: int | None = None) -> list[RunReport]:
    """Run two devices whose labels are off by `shift`."""

    def device(number: int, name: str) -> RunReport:
        pictures, labels = images(number, 80)
        return train_and_push(
            deployment.url,
            (pictures, (labels + shift) % CLASSES),
            federation=made.id,
            join_token=made.join_token,
            name=name,
            state_dir=folder / name,
            device="cpu",
            progress=False,
            rounds=rounds,
        )

    return list(at_once(deployment, NAMES, device).values())


@pytest.mark.slow
def test_rollback_in_a_live_federation_and_a_gate(deployment: Deployment, tmp_path: Path) -> None:
    operator = deployment.operator
    pictures, labels = images(98, 120)
    write_file(deployment.home / "held-out.safetensors", {"inputs": pictures, "labels": labels})
    operator.add_dataset("held-out", deployment.home / "held-out.safetensors")

    made = operator.create_federation(request("steered"))
    operator.start_federation(made.id)
    run(deployment, made, tmp_path / "steered", rounds=1)
    wait_for(lambda: operator.federation(made.id).round == 2, why="round 1 is not published")
    first, second = operator.rounds(made.id).items
    assert second.base_models == first.models
    shown = operator.rollback_federation(made.id, rounds=1)
    assert shown.models["main"].id == first.base_models["main"]
    again = operator.round(second.id)
    assert (again.state, again.restarts, again.base_models) == ("collecting", 1, first.base_models)
    reports = run(deployment, made, tmp_path / "steered")
    assert {report.state for report in reports} == {"finished"}
    rounds = [operator.round(each.id) for each in operator.rounds(made.id).items]
    assert [each.state for each in rounds] == ["published"] * 3
    assert rounds[2].base_models == rounds[1].models
    assert {person.state for each in rounds for person in each.participants} == {"answered"}
    assert all(person.heard_at is not None and person.size for each in rounds for person in each.participants)

    weights = operator.download(rounds[2].models["main"], tmp_path / "good.safetensors")
    good = operator.import_model(weights)
    body = request("gated", total=2, gate={"max_drop": 0.1}).model_dump(mode="json")
    body["prototypes"][0]["initial_model"] = good.id
    gated = operator.create_federation(FederationCreate.model_validate(body))
    operator.start_federation(gated.id)
    run(deployment, gated, tmp_path / "gated", shift=1)
    ended = wait_for(lambda: (f := operator.federation(gated.id)).state == "failed" and f, why="it does not end")
    assert ended.error == "gate_rejected"
    assert ended.models["main"].digest == good.digest
    for each in operator.rounds(gated.id).items:
        figures = each.metrics["gate"]["models"]["main"]
        assert (each.state, figures["passed"], each.models) == ("skipped", False, {})
        assert figures["after"] < figures["before"] - 0.1
        assert each.reason is not None and each.reason.startswith("gate_rejected: validation accuracy of 'main' fell")
    assert len(np.unique(labels)) == CLASSES
