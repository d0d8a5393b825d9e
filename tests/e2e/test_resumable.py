"""Uploads that go on: with a client that we did not write (tuspy), and with ours, over links that break, through
SIGKILL of the service and of the client.
"""

import contextlib
import io
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tusclient.client import TusClient
from tusclient.uploader.uploader import Uploader

from client_sdk import Client
from contract.tensors import write_file
from contract.wire.devices import Enrolment
from contract.wire.federations import FederationCreate
from service.infra.sums import sums_of
from tools.deployment import ROOT, SHAPE, Deployment, federation_request, running, wait_for

from .proxy import link_to

MIB = 1 << 20

TUSPY = """
import os, signal, sys
from tusclient.client import TusClient
from tusclient.storage.filestorage import FileStorage
url, token, path, storage, chunks = sys.argv[1:]
client = TusClient(url + "/v1/uploads", headers={"Authorization": "Bearer " + token})
uploader = client.uploader(path, chunk_size=1 << 20, store_url=True, url_storage=FileStorage(storage),
                           retries=3, retry_delay=1, upload_checksum=True)
print(uploader.offset, flush=True)
if int(chunks):
    for _ in range(int(chunks)):
        uploader.upload_chunk()
    os.kill(os.getpid(), signal.SIGKILL)
uploader.upload()
print(uploader.url)
"""

DEVICE = """
import sys
import numpy as np
from client_sdk import train_and_push
url, federation, join_token, folder = sys.argv[1:]
x = np.random.default_rng(0).random((8, 1, 8, 8), dtype=np.float32)
report = train_and_push(url, (x, np.arange(8) % 4), federation=federation, join_token=join_token, name="ward-7",
                        state_dir=folder, rounds=1, progress=False, device="cpu", resumable_bytes=200_000)
print(report.rounds_trained)
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """An API that the tests of this module share; they kill it and start it again."""
    made = Deployment(tmp_path_factory.mktemp("resumable") / "home")
    with running(made, worker=False):
        yield made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A data set of some 6 MiB, another one each time."""
    path = tmp_path / "data.safetensors"
    numbers = np.random.default_rng(abs(hash(tmp_path.name)))
    write_file(path, {"inputs": numbers.random((24_576, *SHAPE), dtype=np.float32)})
    return path


def tuspy(service: Deployment, url: str, file: Path, **options: Any) -> Uploader:
    client = TusClient(f"{url}/v1/uploads", headers={"Authorization": f"Bearer {service.token}"})
    stream = io.BytesIO(file.read_bytes())  # tuspy does not close the files that it opens
    return client.uploader(file_stream=stream, retries=30, retry_delay=0.1, metadata={"filename": "data"}, **options)


def delivered(service: Deployment, url: str | None, file: Path) -> None:
    """Deliver a finished upload as a data set; the service has the very bytes."""
    assert url is not None
    sums = sums_of(file)
    digest, size = sums.digest, sums.size
    params = {"name": digest[-40:], "upload": url.rpartition("/")[2]}
    made = service.operator._transport.request("POST", "/v1/datasets", params=params).json()
    assert (made["digest"], made["size"]) == (digest, size)
    stored = service.home / "blobs" / digest[7:9] / digest[7:]
    assert stored.read_bytes() == file.read_bytes()
    assert list((service.home / "blobs" / "uploads").iterdir()) == []


def test_tuspy_goes_on_after_the_service_and_the_client_were_killed(
    service: Deployment, file: Path, tmp_path: Path
) -> None:
    """Two chunks, SIGKILL of the client; a new process does two more, SIGKILL of the service and of the client; the
    last process finishes.
    """
    arguments = [sys.executable, "-W", "ignore", "-c", TUSPY, service.url, service.token, str(file)]
    arguments.append(str(tmp_path / "urls.json"))
    begun = []
    for chunks in ("2", "2", "0"):
        done = subprocess.run([*arguments, chunks], capture_output=True, text=True, timeout=100)
        assert done.returncode == (0 if chunks == "0" else -9), done.stderr
        begun.append(int(done.stdout.split()[0]))
        if len(begun) == 2:
            service.kill("api")
            service.start_api()
    assert begun == [0, 2 * MIB, 4 * MIB]
    delivered(service, done.stdout.split()[1], file)


def test_tuspy_over_a_link_that_is_cut_and_a_service_that_is_killed_in_mid_body(
    service: Deployment, file: Path
) -> None:
    """The whole file in one PATCH: each cut costs only what was on its way."""
    with link_to(service.url) as link:
        link.cuts = [1 * MIB, 2 * MIB]
        uploader = tuspy(service, link.url, file)

        def kill() -> None:
            wait_for(lambda: not link.cuts and link.forwarded > 4 * MIB, why="the upload does not get so far")
            service.kill("api")
            link.hang_up()
            service.start_api()

        killer = threading.Thread(target=kill)
        killer.start()
        uploader.upload()
        killer.join()
        delivered(service, uploader.url, file)


def test_only_what_was_promised_is_promised_after_a_kill(service: Deployment, file: Path) -> None:
    """SIGKILL between chunks: HEAD never says less than was answered, nor more than was sent."""
    uploader = tuspy(service, service.url, file, chunk_size=MIB)
    for chunk in range(1, 3):
        uploader.upload_chunk()
        service.kill("api")
        service.start_api()
        assert uploader.get_offset() == uploader.offset == chunk * MIB
    uploader.upload()
    delivered(service, uploader.url, file)


@pytest.mark.slow
def test_our_device_over_a_link_that_is_cut_five_times_and_killed_itself(
    deployment: Deployment, tmp_path: Path
) -> None:
    """The first PUT breaks off at the second cut or sooner; from then on no byte that arrived is sent again."""
    request = federation_request(
        "torn",
        {"name": "fedavg"},
        datasets={},
        prototypes=[{"name": "main", "architecture": "mlp", "options": {"hidden": [600, 600]}}],
        rounds={"total": 1, "min_clients": 1, "min_updates": 1},
    )
    created = deployment.operator.create_federation(FederationCreate.model_validate(request))
    deployment.operator.start_federation(created.id)
    with link_to(deployment.url) as link:
        arguments = [sys.executable, "-c", DEVICE, link.url, created.id, created.join_token, str(tmp_path / "device")]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "POTSTILL_TORCH_THREADS": "1"}
        link.silent_after = 600_000
        first = subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE)
        wait_for(lambda: link.forwarded >= 600_000, 100, why="the device uploads nothing")
        uploads = deployment.home / "blobs" / "uploads"
        first.kill()
        first.communicate()
        link.hang_up()
        assert (tmp_path / "device" / "upload.json").exists()
        [part] = list(uploads.iterdir())
        wait_for(lambda: part.stat().st_size > 300_000, why="what came is not kept")
        link.silent_after, link.forwarded = None, 0
        link.cuts = [300_000] * 3
        second = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=150)
    assert second.stdout.strip() == "1", second.stderr
    size = (64 * 600 + 600 * 600 + 600 * 4 + 1204) * 4
    assert link.forwarded < size - 200_000, "it began anew"
    assert link.cuts == []
    wait_for(lambda: deployment.operator.federation(created.id).state == "finished", why="the round does not end")
    assert list(uploads.iterdir()) == []


def test_our_client_switches_after_a_broken_put(service: Deployment, file: Path) -> None:
    from client_sdk import OperatorClient

    said: list[str] = []
    with link_to(service.url) as link, OperatorClient(link.url, service.token, on_retry=said.append) as operator:
        link.cuts = [2 * MIB, 2 * MIB, 1 * MIB]
        made = operator.add_dataset("switched", file)
    assert made.size == file.stat().st_size
    assert "going on in pieces" in said[0]
    assert link.cuts == []


def test_a_link_that_dies_silently_is_taken_over(service: Deployment, file: Path) -> None:
    """The old connection stays open and says nothing; HEAD over a new one ends it, long before the idle limit."""
    began = time.monotonic()
    with link_to(service.url) as link:
        link.silent_after = 2 * MIB
        uploader = tuspy(service, link.url, file)
        hanging = threading.Thread(target=lambda: _ignore(uploader.upload_chunk), daemon=True)
        hanging.start()
        wait_for(lambda: uploader.url is not None and link.forwarded >= 2 * MIB)
        uploads = service.home / "blobs" / "uploads"  # what the link has forwarded is not yet read
        wait_for(lambda: sum(part.stat().st_size for part in uploads.iterdir()) > MIB, why="what came is not kept")
        uploader.retries = 0
        again = tuspy(service, service.url, file)
        assert uploader.url is not None
        again.set_url(f"{service.url}/v1/uploads/{uploader.url.rpartition('/')[2]}")
        again.offset = again.get_offset()
        assert MIB < again.offset <= 2 * MIB + 65_536
        link.hang_up()
        hanging.join(timeout=20)
        again.upload()
        delivered(service, again.url, file)
    assert time.monotonic() - began < 55, "it waited for the idle limit"


def _ignore(act: Any) -> None:
    with contextlib.suppress(Exception):  # the link that is cut is not what the test looks at
        act()


def test_enrolled_devices_use_it(service: Deployment) -> None:
    request = federation_request("own", {"name": "fedavg"}, datasets={})
    created = service.operator.create_federation(FederationCreate.model_validate(request))
    with Client(service.url) as client:
        client.enrol(created.id, Enrolment(name="a", num_samples=10), join_token=created.join_token)
        tus = TusClient(f"{service.url}/v1/uploads", headers={"Authorization": f"Bearer {client._transport.token}"})
        uploader = tus.uploader(file_stream=io.BytesIO(bytes(1000)))
        uploader.upload()
        assert uploader.get_offset() == 1000
