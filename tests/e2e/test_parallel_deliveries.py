"""One update, delivered by eight connections at once: all are told the same, whichever way the bytes came."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from client_sdk import Client
from contract.tensors import TensorFile, write_file
from contract.wire.devices import Enrolment, TrainAssignment
from contract.wire.federations import FederationCreate
from tools.deployment import Deployment, federation_request, running, wait_for

DEVICES, THREADS = 8, 8
TUS = {"Tus-Resumable": "1.0.0"}


@dataclass
class Device:
    """An enrolled device with an update of its own."""

    url: str
    token: str
    body: bytes

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}", **options.pop("headers", {})}
        return httpx.request(method, self.url + path, headers=headers, timeout=60, trust_env=False, **options)

    def uploaded(self) -> str:
        """Bring the update into a resumable upload, whole; return its id."""
        headers = {**TUS, "Upload-Length": str(len(self.body)), "Content-Type": "application/offset+octet-stream"}
        made = self.request("POST", "/v1/uploads", headers=headers, content=self.body)
        assert made.status_code == 201, made.text
        return made.headers["Location"].rpartition("/")[2]

    def at_once(self, target: str, upload: str | None, bodies: int) -> list[httpx.Response]:
        """Deliver by so many connections at once: `bodies` of them bring the bytes, the others name the upload."""
        answers: list[httpx.Response] = []
        start = threading.Barrier(THREADS)

        def deliver(number: int) -> None:
            start.wait()
            named = number >= bodies
            path, content = (f"{target}?upload={upload}", b"") if named else (target, self.body)
            answer = self.request("PUT", path, content=content)
            while answer.status_code == 423:  # another connection has the upload: ask again
                answer = self.request("PUT", path, content=content)
            answers.append(answer)

        threads = [threading.Thread(target=deliver, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        return answers


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    made = Deployment(tmp_path_factory.mktemp("parallel") / "home")
    with running(made):
        yield made


@pytest.fixture(scope="module")
def devices(service: Deployment, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Device]]:
    """Return where the updates of an open round go, and the devices that are asked for them."""
    folder = tmp_path_factory.mktemp("updates")
    rounds = {"total": 1, "min_clients": DEVICES + 1, "min_updates": DEVICES + 1}
    request = federation_request("parallel", {"name": "fedavg"}, datasets={}, rounds=rounds)
    created = service.operator.create_federation(FederationCreate.model_validate(request))
    tokens = []
    for number in range(DEVICES + 1):
        with Client(service.url) as client:
            enrolment = Enrolment(name=f"d{number}", num_samples=10)
            tokens.append(client.enrol(created.id, enrolment, join_token=created.join_token).token)
    service.operator.start_federation(created.id)

    def asked(token: str) -> TrainAssignment | None:
        with Client(service.url, token) as client:
            found = client.assignment(0)
            if not isinstance(found, TrainAssignment):
                return None
            client.download(found.model, folder / "base")
            return found

    task = wait_for(lambda: asked(tokens[0]), why="no round opens")
    return task.upload_url, [
        Device(service.url, token, _update(folder, task.model.id, number)) for number, token in enumerate(tokens[:-1])
    ]


def _update(folder: Path, base: str, number: int) -> bytes:
    with TensorFile(folder / "base") as file:
        moved = {name: file.read(name) + file.read(name).dtype.type(number) for name in file.names}
    write_file(folder / f"{number}", moved, {"num_samples": "10", "base_model": base})
    return (folder / f"{number}").read_bytes()


@pytest.mark.parametrize(
    ("first", "bodies"), [(0, 0), (1, 0), (2, 4), (3, 4), (4, 8)], ids=["upload", "again", "both", "anew", "body"]
)
def test_all_are_told_the_same(service: Deployment, devices: tuple[str, list[Device]], first: int, bodies: int) -> None:
    target, device = devices[0], devices[1][first]
    upload = device.uploaded() if bodies < THREADS else None
    answers = device.at_once(target, upload, bodies)
    assert len(answers) == THREADS
    assert {answer.status_code for answer in answers} <= {200, 201}, [answer.text for answer in answers]
    assert [answer.status_code for answer in answers].count(201) == 1
    assert len({answer.text for answer in answers}) == 1, "one receipt for all"
    again = device.at_once(target, upload, bodies)
    assert {answer.status_code for answer in again} == {200}
    assert {answer.text for answer in again} == {answers[0].text}
    told = httpx.get(
        f"{service.url}/v1/events?format=json&limit=500&after=0",
        headers={"Authorization": f"Bearer {service.token}"},
        trust_env=False,
    )
    kinds = [event["kind"] for event in told.json()["items"]]
    assert "update.received" in kinds
    assert "blob.restored" not in kinds and "update.refused" not in kinds


def test_all_are_told_the_same_after_a_kill(service: Deployment, devices: tuple[str, list[Device]]) -> None:
    target, device = devices[0], devices[1][5]
    upload = device.uploaded()
    service.kill("api")
    service.start_api()
    answers = device.at_once(target, upload, 4)
    assert [answer.status_code for answer in answers].count(201) == 1
    assert {answer.status_code for answer in answers} == {200, 201}
    service.kill("api")
    service.start_api()
    again = device.at_once(target, upload, 4)
    assert {answer.status_code for answer in again} == {200}
    assert {answer.text for answer in [*answers, *again]} == {answers[0].text}
