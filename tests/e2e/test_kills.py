"""SIGKILL at bad moments: the round is late, nothing else; the model in the end is the undisturbed one, bit for bit."""

import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from client_sdk import Client
from contract.tensors import TensorFile, write_file
from contract.wire.devices import Enrolment
from contract.wire.federations import FederationCreate
from tools.deployment import Deployment, add_server_data, federation_request, run_devices, run_federation, wait_for

RECIPE = {"name": "feddf", "options": {"schedule": {"steps": 900, "lr": "constant"}}}


def _digests(deployment: Deployment, federation_id: str) -> list[str]:
    return [model.digest for model in deployment.operator.models(federation=federation_id).items]


def _distilling(deployment: Deployment, federation_id: str) -> bool:
    jobs = deployment.operator.jobs(federation=federation_id, state="running").items
    return any(job.kind == "round" and job.progress and job.progress.phase.startswith("distil") for job in jobs)


@pytest.mark.slow
def test_worker_killed_in_the_middle_of_a_job(deployment: Deployment, tmp_path: Path) -> None:
    add_server_data(deployment)
    undisturbed, _ = run_federation(deployment, tmp_path / "calm", federation_request("calm", RECIPE))
    created = deployment.operator.create_federation(
        FederationCreate.model_validate(federation_request("storm", RECIPE))
    )
    deployment.operator.start_federation(created.id)
    devices = threading.Thread(
        target=run_devices, args=(deployment, created.id, created.join_token, tmp_path / "storm"), daemon=True
    )
    devices.start()
    wait_for(lambda: _distilling(deployment, created.id), why="no job distils")
    states = deployment.home / "blobs" / "tmp"
    wait_for(lambda: len(list(states.glob("checkpoints-*/*.safetensors"))) > 1, why="no state is kept")
    deployment.kill("worker")
    deployment.start_worker()
    devices.join(timeout=150)
    federation = deployment.operator.federation(created.id)
    assert federation.state == "finished"
    attempts = [job.attempt for job in deployment.operator.jobs(federation=created.id).items if job.kind == "round"]
    assert max(attempts) > 1, "the kill hit no job"
    resumed = [job.resumed_from for job in deployment.operator.jobs(federation=created.id).items if job.attempt > 1]
    assert [each.phase for each in resumed if each] == ["distil main"], "it began anew"
    assert not list(states.glob("checkpoints-*")), "states of jobs that are over"
    assert _digests(deployment, created.id) == _digests(deployment, undisturbed.id)


class _Device:
    """A device by hand: one connection, one update."""

    def __init__(self, deployment: Deployment, created: Any, name: str, folder: Path):
        self.client = Client(deployment.url)
        enrolled = self.client.enrol(created.id, Enrolment(name=name, num_samples=100), join_token=created.join_token)
        self.token = enrolled.token
        self.folder = folder

    def update(self, deployment: Deployment, number: int) -> tuple[str, bytes]:
        """Return where the update goes, and its bytes: the round's model moved by a constant."""
        task = wait_for(lambda: self._training(), why="no assignment to train")
        base = self.folder / f"base-{number}.safetensors"
        self.client.download(task.model, base)
        with TensorFile(base) as file:
            arrays = {name: file.read(name) for name in file.names}
        moved = {name: array + array.dtype.type(number) for name, array in arrays.items()}
        path = self.folder / f"update-{number}.safetensors"
        write_file(path, moved, {"num_samples": str(10 * (number + 1)), "base_model": task.model.id})
        return deployment.url + task.upload_url, path.read_bytes()

    def _training(self) -> Any:
        assignment = self.client.assignment(wait=5)
        return assignment if assignment.action == "train" else None


@pytest.mark.slow
def test_api_killed_in_the_middle_of_an_upload(deployment: Deployment, tmp_path: Path) -> None:
    """Half an upload, SIGKILL of the API: nothing counts, nothing is left, and the same upload then succeeds."""
    request = federation_request(
        "torn",
        {"name": "fedavg"},
        datasets={},
        prototypes=[{"name": "main", "architecture": "mlp", "options": {"hidden": [2000, 2000]}}],
        rounds={"total": 1, "min_clients": 2, "min_updates": 2},
    )
    created = deployment.operator.create_federation(FederationCreate.model_validate(request))
    deployment.operator.start_federation(created.id)
    devices = [_Device(deployment, created, name, tmp_path) for name in ("a", "b")]
    uploads = [device.update(deployment, number) for number, device in enumerate(devices)]
    url, body = uploads[0]
    headers = {"Authorization": f"Bearer {devices[0].token}", "Content-Length": str(len(body))}

    def half() -> Any:
        yield body[: len(body) // 2]
        folder = deployment.home / "blobs" / "tmp"
        wait_for(lambda: any(path.stat().st_size > 1_000_000 for path in folder.iterdir()), why="no file in the making")
        deployment.kill("api")
        yield body[len(body) // 2 :]

    with pytest.raises(httpx.TransportError):
        httpx.put(url, content=half(), headers=headers, timeout=30)
    deployment.start_api()
    newest = deployment.operator.rounds(created.id).items[-1]
    assert (newest.state, newest.answered) == ("collecting", 0)
    for device, (target, content) in zip(devices, uploads, strict=True):
        answer = httpx.put(target, content=content, headers={"Authorization": f"Bearer {device.token}"}, timeout=60)
        assert answer.status_code == 201, answer.text
    wait_for(lambda: deployment.operator.federation(created.id).state == "finished", why="the round does not end")
    shown = deployment.operator.round(newest.id)
    assert {person.name: person.weight for person in shown.participants} == pytest.approx({"a": 1 / 3, "b": 2 / 3})
    for device in devices:
        device.client.close()


def test_worker_that_was_away_takes_up_what_waits(deployment: Deployment, tmp_path: Path) -> None:
    """Without a worker and with every wake-up lost, jobs wait in the table and are done once a worker is there."""
    deployment.kill("worker")
    request = federation_request("patient", {"name": "fedavg"}, datasets={}, rounds={"total": 1})
    created = deployment.operator.create_federation(FederationCreate.model_validate(request))
    deployment.operator.start_federation(created.id)
    for message in (deployment.home / "queue" / "messages").glob("*.msg"):
        message.unlink()
    assert deployment.operator.federation(created.id).state == "preparing"
    deployment.start_worker()
    wait_for(lambda: deployment.operator.federation(created.id).state == "running", why="the job is not taken up")
