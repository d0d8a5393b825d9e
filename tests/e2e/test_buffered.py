"""Rounds that do not wait, with devices of different speed, a worker, a kill, and replay."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk import train_and_push
from client_sdk.client import Client
from contract.tensors import TensorFile
from contract.wire.federations import FederationCreate
from tests.e2e.test_provenance import potstill
from tests.reference import fusing
from tools.deployment import Deployment, add_server_data, federation_request, images, wait_for

NAMES = ("fast", "quick", "slow")


class Gates:
    """Holds a device's deliveries until it is let go."""

    def __init__(self) -> None:
        self.open, self.held = {"slow": threading.Event()}, threading.Event()

    def pass_(self, file: Path) -> None:
        for name, event in self.open.items():
            if name in file.parts:
                self.held.set()
                assert event.wait(120)


@contextmanager
def gated() -> Iterator[Gates]:
    gates, deliver = Gates(), Client.deliver

    def waits(client: Client, kind: Any, url: str, file: Any, **options: Any) -> Any:
        gates.pass_(Path(file))
        return deliver(client, kind, url, file, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "deliver", waits)
        yield gates


def device(url: str, created: Any, name: str, folder: Path) -> Any:
    number = NAMES.index(name)
    return train_and_push(
        url, images(number, 40 + 10 * number, classes=[number, number + 1]), federation=created.id,
        join_token=created.join_token, name=name, state_dir=folder / name, device="cpu", progress=False,
    )  # fmt: skip


def begin(deployment: Deployment, name: str, recipe: dict[str, Any], **plan: Any) -> Any:
    rounds = {"total": 5, "min_clients": 3, "mode": "buffered", "buffer": 2} | plan
    created = deployment.operator.create_federation(
        FederationCreate.model_validate(federation_request(name, recipe, rounds=rounds, retention={"updates": "all"}))
    )
    deployment.operator.start_federation(created.id)
    return created


def published(deployment: Deployment, federation: str) -> int:
    return sum(each.state == "published" for each in deployment.operator.rounds(federation).items)


def values(path: Path) -> dict[str, np.ndarray]:
    with TensorFile(path) as file:
        return {name: file.read(name) for name in file.names}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_slow_device_holds_nobody_and_its_update_counts_by_its_age(deployment: Deployment, tmp_path: Path) -> None:
    add_server_data(deployment)
    operator = deployment.operator
    created = begin(deployment, "speeds", {"name": "fedavg"}, total=4)
    with gated() as gates:
        threads = [
            threading.Thread(target=device, args=(deployment.url, created, name, tmp_path), daemon=True)
            for name in NAMES
        ]
        for thread in threads:
            thread.start()
        assert gates.held.wait(60)
        wait_for(lambda: published(deployment, created.id) >= 2, 60, "the fast ones go on")
        gates.open["slow"].set()
        for thread in threads:
            thread.join(timeout=120)
    assert operator.federation(created.id).state == "finished"
    rounds = [operator.round(each.id) for each in operator.rounds(created.id).items]
    ages = {each.staleness: round_ for round_ in rounds for each in round_.participants if each.name == "slow"}
    assert any((age or 0) >= 2 for age in ages), ages
    for round_ in rounds:
        _check_is_fedbuffs(deployment, round_)
    replayed = potstill(deployment.home, "replay", "--all", "speeds", "--json")
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


def _check_is_fedbuffs(deployment: Deployment, round_: Any) -> None:
    """The published model is what Alg. 1 makes of the stored updates and the models that they began from."""
    operator = deployment.operator
    stored = {path.name: path for path in (deployment.home / "blobs").rglob("*") if path.is_file()}

    def file_of(digest: str) -> dict[str, np.ndarray]:
        return values(stored[digest.removeprefix("sha256-")])

    current, made = (file_of(operator.model(found["main"]).digest) for found in (round_.base_models, round_.models))
    given = [each for each in round_.participants if each.digest is not None]
    bases = [file_of(operator.model(each.base_model).digest) for each in given]
    updates = [file_of(each.digest) for each in given]
    for name in current:
        if current[name].dtype.kind != "f" or "running" in name:
            continue
        wanted = fusing.buffered(
            current[name].ravel(), [base[name].ravel() for base in bases],
            [update[name].ravel() for update in updates], [each.num_samples for each in given],
            [(1 + each.staleness) ** -0.5 for each in given],
        )  # fmt: skip
        assert made[name].ravel() == pytest.approx(np.array(wanted), abs=2e-6), name
    assert [each.factor for each in given] == pytest.approx([(1 + each.staleness) ** -0.5 for each in given])


def _dies_delivering(url: str, created: Any, folder: Path) -> None:
    """Train, and be killed when the service has the update and the device does not know."""
    deliver = Client.deliver

    def dies(client: Client, *arguments: Any, **options: Any) -> Any:
        deliver(client, *arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    Client.deliver = dies  # type: ignore[assignment, method-assign]
    device(url, created, "slow", folder)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_device_that_is_killed_in_mid_delivery_gives_one_update(deployment: Deployment, tmp_path: Path) -> None:
    add_server_data(deployment)
    created = begin(deployment, "killed", {"name": "fedavg"}, total=2)
    killed = multiprocessing.get_context("spawn").Process(
        target=_dies_delivering, args=(deployment.url, created, tmp_path)
    )
    others = [
        threading.Thread(target=device, args=(deployment.url, created, name, tmp_path), daemon=True)
        for name in NAMES[:2]
    ]
    killed.start()
    for thread in others:
        thread.start()
    killed.join(90)
    assert killed.exitcode == -signal.SIGKILL
    report = device(deployment.url, created, "slow", tmp_path)
    for thread in others:
        thread.join(timeout=120)
    assert report.state == "finished"
    rounds = [deployment.operator.round(each.id) for each in deployment.operator.rounds(created.id).items]
    assert [each.state for each in rounds] == ["published", "published"]
    given = [each for round_ in rounds for each in round_.participants if each.digest is not None]
    assert len({each.digest for each in given}) == len(given)
    assert "slow" in {each.label for each in given}
    assert not [each.label for each in given if "/" in (each.label or "")]
