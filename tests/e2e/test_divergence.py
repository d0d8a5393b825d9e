"""A student that diverges, with real processes: the round fails with its code, and nobody gets another model."""

import hashlib
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from client_sdk import train_and_push
from contract.wire.federations import FederationCreate
from tools.deployment import Deployment, add_server_data, federation_request, images, wait_for

WILD: dict[str, Any] = {
    "optimizer": {"kind": "sgd", "lr": 10, "momentum": 0.99},
    "steps": 300,
    "lr": "constant",
    "clip_norm": None,
}


def _bytes(deployment: Deployment, model: Any) -> str:
    answer = httpx.get(f"{deployment.url}{model.url}", headers={"Authorization": f"Bearer {deployment.token}"})
    assert answer.status_code == 200
    return f"sha256-{hashlib.sha256(answer.content).hexdigest()}"


@pytest.mark.slow
def test_a_student_that_diverges_changes_no_model(deployment: Deployment, tmp_path: Path) -> None:
    add_server_data(deployment)
    operator = deployment.operator
    request = federation_request(
        "wild",
        {"name": "feddf", "options": {"schedule": WILD, "temperature": 100.0}},
        rounds={"total": 2, "min_clients": 2, "min_updates": 2},
    )
    made = operator.create_federation(FederationCreate.model_validate(request))
    operator.start_federation(made.id)
    for number, name in enumerate(("east", "west")):
        options = {"federation": made.id, "join_token": made.join_token, "name": name, "state_dir": tmp_path / name}
        arguments = (deployment.url, images(number, 40))
        device = threading.Thread(
            target=train_and_push, args=arguments, kwargs=options | {"progress": False, "rounds": 1}, daemon=True
        )
        device.start()
    wait_for(lambda: operator.federation(made.id).state == "paused", 150, why="the round does not fail")
    shown, (first,) = operator.federation(made.id), operator.models(federation=made.id).items
    assert shown.error == "non_finite"
    assert (first.role, first.current) == ("initial", True)
    assert _bytes(deployment, first) == first.digest
    job = next(each for each in operator.jobs(federation=made.id).items if each.kind == "round")
    assert (job.state, job.error, job.attempt) == ("failed", "non_finite", 1), "no other attempt would end otherwise"
    assert "lower schedule.optimizer.lr" in (job.detail or "")
    assert operator.rounds(made.id).items[0].state == "failed"
