"""Two API replicas, workers, PostgreSQL, Redis and a bucket, no disk in common: SIGKILL of a worker and of a replica,
and a store that is away, during a job and during an upload. `make test-distributed` runs it.
"""

import base64
import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from client_sdk import Client, train_and_push
from contract.tensors import TensorFile, write_file
from contract.wire.devices import Enrolment
from contract.wire.federations import FederationCreate
from service.infra.sums import sums_of
from tests.bucket_server import BucketServer, Door
from tools.deployment import CLASSES, SHAPE, add_server_data, federation_request, images, wait_for

from .composed import Composed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif("POTSTILL_TEST_DISTRIBUTED" not in os.environ, reason="make test-distributed"),
]
MIB = 1 << 20
PATIENCE = 200.0  # seconds; on two busy cores a job takes a minute
RECIPE = {"name": "feddf", "options": {"schedule": {"steps": 900, "lr": "constant"}}}
TRAINED = ("east", "north")


class Devices:
    """Two devices of `train_and_push`, and one by hand that puts its updates straight into the bucket.

    Attributes:
        ready: the device by hand has its first update.
        gate: it waits for this before it delivers.
        receipts: what it got for its updates.
    """

    def __init__(self, composed: Composed, folder: Path, name: str):
        self._composed, self._folder = composed, folder / name
        self.ready, self.gate = threading.Event(), threading.Event()
        self.receipts: list[Any] = []
        self.trained: dict[str, int] = {}
        self.errors: list[Exception] = []
        operator = composed.operator
        self.created = operator.create_federation(FederationCreate.model_validate(federation_request(name, RECIPE)))
        operator.start_federation(self.created.id)
        self._threads = [
            threading.Thread(target=self._noted, args=(act, *more), daemon=True)
            for act, *more in ((self._train, 0, TRAINED[0]), (self._train, 1, TRAINED[1]), (self._by_hand,))
        ]
        for thread in self._threads:
            thread.start()

    def _noted(self, act: Callable[..., None], *arguments: Any) -> None:
        try:
            act(*arguments)
        except Exception as error:  # noqa: BLE001 - it is reported in the main thread
            self.errors.append(error)

    def _train(self, number: int, name: str) -> None:
        data = images(number, 60 + 10 * number, classes=[number, number + 1])
        report = train_and_push(
            self._composed.url,
            data,
            federation=self.created.id,
            join_token=self.created.join_token,
            name=name,
            state_dir=self._folder / name,
            device="cpu",
            progress=False,
            label_counts=np.bincount(data[1], minlength=CLASSES).tolist(),
        )
        self.trained[name] = report.rounds_trained

    def _by_hand(self) -> None:
        with Client(self._composed.url, retries=40) as client:
            client.enrol(self.created.id, Enrolment(name="west", num_samples=50), join_token=self.created.join_token)
            while (task := client.assignment(wait=5)).action != "done":
                if task.action != "train":
                    continue
                base = self._folder / f"base-{task.round.index}.safetensors"
                client.download(task.model, base)
                with TensorFile(base) as file:
                    arrays = {name: file.read(name) for name in file.names}
                moved = {name: array * array.dtype.type(1.01) for name, array in arrays.items()}
                path = self._folder / f"update-{task.round.index}.safetensors"
                write_file(path, moved, {"num_samples": "50", "base_model": task.model.id})
                self.ready.set()
                assert self.gate.wait(2 * PATIENCE)
                self.receipts.append(client.push_update(task.round.id, path, url=task.upload_url, direct=True))

    def finish(self) -> None:
        for thread in self._threads:
            thread.join(timeout=2 * PATIENCE)
        assert self.errors == [], self.errors
        assert not any(thread.is_alive() for thread in self._threads), self._composed.log("worker")[-3000:]
        assert self.trained == dict.fromkeys(TRAINED, 2)
        assert len(self.receipts) == 2

    def digests(self) -> list[str]:
        return [model.digest for model in self._composed.operator.models(federation=self.created.id).items]

    def jobs(self) -> list[Any]:
        return [job for job in self._composed.operator.jobs(federation=self.created.id).items if job.kind == "round"]

    def distilling(self) -> Any:
        """Return the job that distils, if one does."""
        running = [job for job in self.jobs() if job.state == "running" and job.progress]
        return next((job for job in running if job.progress.phase.startswith("distil")), None)


@contextlib.contextmanager
def away(door: Door, at_least_seconds: float) -> Iterator[None]:
    """Have the store hang up on everybody for the length of the block, and until somebody has noticed."""
    before, end = door.refused, time.monotonic() + at_least_seconds
    door.gone = True
    try:
        yield
        wait_for(lambda: door.refused > before and time.monotonic() > end, why="nobody asked the store")
    finally:
        door.gone = False


def kill_the_replica_that_uploads(composed: Composed, door: Door) -> int:
    """SIGKILL the replica that is putting an update into the bucket, and return its number."""

    def putting() -> str | None:
        ports = [port for port, line in door.busy.items() if line.startswith("PUT") and "/blobs/" in line]
        return next((name for port in ports if (name := composed.who_calls(port))), None)

    name = wait_for(putting, why="no upload is on its way")
    assert name.startswith("api-")
    composed.kill(name)
    return int(name[-1])


def test_kills_and_a_store_that_goes_away_change_no_bit(
    composed: Composed, bucket_server: BucketServer, tmp_path: Path
) -> None:
    """A calm federation, then the same one in a storm; every model has the same bytes."""
    door = bucket_server.door
    composed.start_proxy()
    for queue in ("cpu", "gpu"):
        composed.start_queue_worker(queue)
    add_server_data(composed)
    calm = Devices(composed, tmp_path, "calm")
    calm.gate.set()
    calm.finish()
    assert sum(line.startswith("PUT") and "/staging/" in line and "signed" in line for line in door.seen) == 2
    assert sum(line.startswith("GET") and "/blobs/" in line and "signed" in line for line in door.seen) >= 6

    storm = Devices(composed, tmp_path, "storm")
    wait_for(storm.ready.is_set, PATIENCE, "the device by hand has nothing to do")
    first = wait_for(lambda: composed.operator.rounds(storm.created.id).items)[0]
    with away(door, 4):  # during an upload: the direct way is closed, and the other one answers 503
        storm.gate.set()
    door.hanging = 1.0
    killed = kill_the_replica_that_uploads(composed, door)
    door.hanging = 0.0
    composed.start_replica(killed)
    job = wait_for(storm.distilling, seconds=PATIENCE, why="no job distils")
    states = f"/checkpoints/{job.id}/"
    wait_for(
        lambda: any(line.startswith("PUT") and states in line for line in list(door.seen)),
        seconds=PATIENCE,
        why="no state is kept",
    )
    composed.kill("worker-gpu")
    with away(door, 4):  # what the next worker needs cannot be fetched
        composed.start_queue_worker("gpu")
        wait_for(
            lambda: any(each.error == "unavailable" for each in storm.jobs()),
            seconds=PATIENCE,
            why="no job was put back",
        )
    wait_for(lambda: composed.operator.round(first.id).state == "published", PATIENCE, "the round does not end")
    second = wait_for(storm.distilling, PATIENCE, "no second job distils")
    with away(door, 3):  # the result cannot be put
        wait_for(
            lambda: any(each.id == second.id and each.error == "unavailable" for each in storm.jobs()),
            seconds=PATIENCE,
            why="the job was not put back",
        )
    storm.finish()

    assert composed.operator.federation(storm.created.id).state == "finished"
    assert storm.digests() == calm.digests()
    assert len(storm.digests()) == 3
    by_id = {each.id: each for each in storm.jobs()}
    assert {each.state for each in by_id.values()} == {"done"}
    assert by_id[job.id].attempt == 2, "the kill counts, the store does not"
    assert by_id[second.id].attempt == 1
    assert by_id[job.id].resumed_from is not None, "it began anew"
    for round_ in composed.operator.rounds(storm.created.id).items:
        people = composed.operator.round(round_.id).participants
        assert {person.name for person in people if person.digest} == {*TRAINED, "west"}
    for number, model in enumerate(composed.operator.models(federation=storm.created.id).items):
        weights = composed.operator.download(model, tmp_path / f"model-{number}.safetensors")
        assert sums_of(weights).digest == model.digest
    bucket_keys = {key.split("/")[0] for key in bucket_server.keys({"blob_url": composed.blob_url})}
    assert bucket_keys == {"blobs"}, "something was left behind"


# -------------------------------------------------------------------------------------- one upload, two replicas
class Upload:
    """A tus upload by hand, over whichever replica one likes."""

    def __init__(self, composed: Composed, body: bytes):
        self._composed, self.body = composed, body
        self._headers = {"Authorization": f"Bearer {composed.token}", "Tus-Resumable": "1.0.0"}
        made = httpx.post(
            f"{composed.replica(0)}/v1/uploads", headers=self._headers | {"Upload-Length": str(len(body))}, timeout=30
        )
        assert made.status_code == 201, made.text
        self.id = made.headers["Location"].rpartition("/")[2]

    def url(self, replica: int) -> str:
        return f"{self._composed.replica(replica)}/v1/uploads/{self.id}"

    def offset(self, replica: int) -> int:
        answer = httpx.head(self.url(replica), headers=self._headers, timeout=30)
        assert answer.status_code == 200
        return int(answer.headers["Upload-Offset"])

    def patch(self, replica: int, offset: int, piece: Any, **headers: str) -> httpx.Response:
        sent = self._headers | {"Upload-Offset": str(offset), "Content-Type": "application/offset+octet-stream"}
        return httpx.patch(self.url(replica), headers=sent | headers, content=piece, timeout=60)

    def deliver(self, replica: int, name: str) -> Any:
        answer = httpx.post(
            f"{self._composed.replica(replica)}/v1/datasets",
            params={"name": name, "upload": self.id},
            headers=self._headers,
            timeout=60,
        )
        assert answer.status_code == 201, answer.text
        return answer.json()


@pytest.fixture
def body(tmp_path: Path) -> bytes:
    """A data set of some 6 MiB."""
    path = tmp_path / "data.safetensors"
    write_file(path, {"inputs": np.random.default_rng(5).random((24_576, *SHAPE), dtype=np.float32)})
    return path.read_bytes()


def test_one_upload_through_two_replicas_in_turn(composed: Composed, body: bytes, bucket_server: BucketServer) -> None:
    """PATCHes go to the other replica each; of two at once one counts; one is killed; the bytes are right."""
    upload, offset = Upload(composed, body), 0
    for turn in range(4):
        answer = upload.patch(turn % 2, offset, body[offset : offset + MIB // 2])
        assert answer.status_code == 204, answer.text
        offset = int(answer.headers["Upload-Offset"])
        assert offset == (turn + 1) * MIB // 2 == upload.offset(0) == upload.offset(1)

    piece, answers = body[offset : offset + MIB], []
    checksum = "sha256 " + base64.b64encode(hashlib.sha256(piece).digest()).decode()
    both = [
        threading.Thread(
            target=lambda n=n: answers.append(upload.patch(n, offset, piece, **{"Upload-Checksum": checksum}))
        )
        for n in range(2)
    ]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert [answer.status_code for answer in answers].count(204) == 1, [answer.text for answer in answers]
    assert {answer.status_code for answer in answers} <= {204, 409, 423}
    offset += MIB
    assert upload.offset(0) == upload.offset(1) == offset

    def torn() -> Iterator[bytes]:
        yield body[offset : offset + MIB]
        composed.kill("api-0")
        yield body[offset + MIB : offset + MIB + 1]

    with pytest.raises(httpx.TransportError):
        upload.patch(0, offset, torn(), **{"Content-Length": str(len(body) - offset)})
    went_on = upload.offset(1)
    assert offset <= went_on <= offset + MIB
    answer = wait_for(lambda: _done(upload.patch(1, went_on, body[went_on:])), why="the dead replica keeps the upload")
    assert int(answer.headers["Upload-Offset"]) == len(body)
    composed.start_replica(0)
    wait_for(lambda: composed.replica_answers(0), why="the replica does not come back")
    made = upload.deliver(0, "in-turn")
    assert (made["digest"], made["size"]) == (f"sha256-{hashlib.sha256(body).hexdigest()}", len(body))
    wait_for(
        lambda: not [key for key in bucket_server.keys({"blob_url": composed.blob_url}) if key.startswith("uploads/")],
        why="pieces were left behind",
    )


def _done(answer: httpx.Response) -> httpx.Response | None:
    assert answer.status_code in (204, 423), answer.text
    return answer if answer.status_code == 204 else None
