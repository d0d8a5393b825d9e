"""A disk that is full for a while: refusals say so, nothing is torn, and work goes on by itself when there is room."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from potstill.storage.check import verify
from service.persistence.tables import JobRow
from tests.service.conftest import SettingsMaker
from tests.service.world import Fed, World
from worker.ledger import Ledger
from worker.runner import Runner

MIB = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    try:
        told = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)], capture_output=True, text=True
        )
        refused = told.stderr.strip() if told.returncode else ""
    except OSError as error:
        refused = str(error)
    if refused:
        pytest.skip(f"NOT TESTED ON A FULL DISK: no file system can be mounted here ({refused})")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def world(
    disk: Path, template: Path, make_settings: SettingsMaker, world_of: type[World], monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    monkeypatch.setattr("service.operations.progress.jobs.RETRY_SECONDS", 0.05)
    settings = make_settings(home=disk, max_upload_bytes=8 * MIB, device="cpu")
    shutil.copy(template / "potstill.db", disk / "potstill.db")
    made = world_of(settings)
    yield made
    made.close()


def fill(disk: Path, leave: int) -> Path:
    """Leave so many bytes."""
    ballast = disk / "ballast"
    room = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    with open(ballast, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, room - leave)
    return ballast


def large(seed: int) -> dict[str, Any]:
    return {"w": np.full(MIB // 2, seed, np.float32)}


def begin(world: World) -> Any:
    """Return a federation of a 2 MiB model whose first round collects."""
    fed = world.create(rounds={"total": 1, "min_clients": 2})
    for name in "ab":
        world.enrol(fed, name)
    world.ok("POST", f"/v1/federations/{fed.id}/start")
    world.finish(world.claim(), {"main": large(0)})
    return fed


def update(world: World, fed: Fed, seed: int) -> bytes:
    base = world.round(fed)["base_models"]["main"]
    made: bytes = world.forge.pack(large(seed), {"num_samples": "10", "base_model": base})
    return made


def whole(world: World) -> None:
    _, findings = verify(world.store.database, world.blobs.store, lambda done, of: None)
    assert findings == []


def test_an_upload_is_refused_and_leaves_nothing_and_is_taken_when_there_is_room(world: World, disk: Path) -> None:
    fed = begin(world)
    body, before = update(world, fed, 1), world.files()
    ballast = fill(disk, MIB)
    response = world.push(fed, "a", body)
    assert (response.status_code, "disk is full" in response.json()["detail"]) == (507, True), response.text
    assert (world.files(), world.updates()) == (before, 0)
    ballast.unlink()
    assert world.push(fed, "a", body).status_code == 201
    whole(world)


def test_a_job_fails_with_a_code_is_tried_again_and_succeeds_by_itself(world: World, disk: Path) -> None:
    fed = begin(world)
    for seed, name in enumerate("ab", start=1):
        assert world.push(fed, name, update(world, fed, seed)).status_code == 201
    before, ballast = world.files(), fill(disk, MIB)
    ledger = Ledger(world.settings)
    runner = Runner(ledger)
    try:
        claimed = ledger.claim()
        assert claimed is not None
        runner.do(claimed)
        with world.store.read() as session:
            job = session.get_one(JobRow, claimed.id)
            assert (job.state, job.error) == ("queued", "disk_full"), job.detail
        assert world.show(fed)["state"] == "running"
        assert world.files() == before
        whole(world)
        ballast.unlink()
        end = time.monotonic() + 60
        while world.show(fed)["state"] != "finished":
            assert time.monotonic() < end, world.show(fed)
            runner.drain()
            time.sleep(0.02)
    finally:
        ledger.leave()
    whole(world)


def test_a_worker_takes_nothing_while_there_is_less_room_than_wanted(world: World) -> None:
    fed = world.create(rounds={"total": 1, "min_clients": 1})
    world.enrol(fed, "a")
    world.ok("POST", f"/v1/federations/{fed.id}/start")
    careful = Ledger(world.settings.model_copy(update={"min_free_bytes": 25 * MIB}))
    assert careful.claim() is None
    careful.leave()
    ledger = Ledger(world.settings)
    assert ledger.claim() is not None
    ledger.leave()


def test_a_database_without_room_refuses_with_507_and_goes_on_afterwards(world: World, disk: Path) -> None:
    if world.settings.database_url is not None:
        pytest.skip("PostgreSQL is not on this disk")
    world.create()
    ballast = fill(disk, 0)
    statuses = []
    for _ in range(200):  # the journal has some room left
        statuses.append(world.op("POST", "/v1/federations", json=world.body()).status_code)
        if statuses[-1] != 201:
            break
    assert statuses[-1] == 507, statuses
    ballast.unlink()
    count = len(world.ok("GET", "/v1/federations?limit=200")["items"])
    assert count == 1 + statuses.count(201)
    world.create()
    whole(world)
