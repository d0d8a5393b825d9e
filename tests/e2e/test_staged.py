"""SIGKILL of the API while it takes in what a device put into the bucket: the same delivery again counts once."""

import contextlib
import hashlib
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from contract.wire.federations import FederationCreate
from tests.bucket_server import BucketServer
from tests.e2e.test_kills import _Device
from tools.deployment import Deployment, federation_request, running, wait_for

ROUNDS = {"total": 1, "min_clients": 1, "min_updates": 1}


def _put_into_the_bucket(deployment: Deployment, device: _Device, body: bytes) -> str:
    wish = {"digest": f"sha256-{hashlib.sha256(body).hexdigest()}", "size": len(body)}
    answer = httpx.post(f"{deployment.url}/v1/staging", json=wish, headers=_bearer(device), timeout=60)
    place = answer.raise_for_status().json()
    httpx.put(place["url"], content=body, headers=place["headers"], timeout=60).raise_for_status()
    return str(place["name"])


def _bearer(device: _Device) -> dict[str, str]:
    return {"Authorization": f"Bearer {device.token}"}


def _deliver_in_vain(url: str, name: str, device: _Device) -> None:
    with contextlib.suppress(httpx.HTTPError):  # the API is killed meanwhile
        httpx.put(url, params={"staged": name}, headers=_bearer(device), timeout=60)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("moment", "status"), [("GET", 201), ("DELETE", 200)], ids=["read", "counted"])
def test_a_kill_while_a_staged_file_is_taken_in(
    bucket_server: BucketServer, tmp_path: Path, moment: str, status: int
) -> None:
    settings = bucket_server.settings(presign=1)
    env = {f"POTSTILL_{name.upper()}": str(value) for name, value in settings.items() if value is not None}
    with running(Deployment(tmp_path / "home", 0, None, **env)) as deployment:
        request: dict[str, Any] = federation_request("staged", {"name": "fedavg"}, rounds=ROUNDS, datasets={})
        created = deployment.operator.create_federation(FederationCreate.model_validate(request))
        deployment.operator.start_federation(created.id)
        device = _Device(deployment, created, "anna", tmp_path)
        url, body = device.update(deployment, 0)
        deployment.kill("worker")  # the round stays as it is
        name = _put_into_the_bucket(deployment, device, body)
        bucket_server.door.hanging = 0.5
        threading.Thread(target=_deliver_in_vain, args=(url, name, device), daemon=True).start()
        wait_for(lambda: any(line.startswith(moment) and name in line for line in bucket_server.door.busy.values()))
        deployment.kill("api")
        bucket_server.door.hanging = 0.0
        deployment.start_api()
        again = [httpx.put(url, params={"staged": name}, headers=_bearer(device), timeout=60) for _ in range(2)]
        assert [answer.status_code for answer in again] == [status, 200]
        assert again[0].json() == again[1].json()
        (round_,) = deployment.operator.rounds(created.id).items
        assert round_.answered == 1
        device.client.close()
