"""The states of a job: whatever the store, another machine finds them, and they go when the job is over."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from service.config import Settings
from service.domain.errors import DomainError
from service.infra.blob_store import open_blobs
from service.infra.blobs import STATES, Blobs
from tests.bucket_server import BucketServer

Machine = Callable[[str], Blobs]


@pytest.fixture(params=["folder", "bucket"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    """Return a function that gives the store as a machine of some name sees it."""
    if request.param == "folder":
        yield lambda name: open_blobs(Settings(home=tmp_path / name, blob_dir=tmp_path / "shared"))
        return
    server: BucketServer = request.getfixturevalue("bucket_server")
    values = server.settings(home=tmp_path)
    yield lambda name: open_blobs(Settings(**(values | {"home": tmp_path / name})))
    server.door.down = False


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def seen(blobs: Blobs, job: str) -> dict[str, bytes]:
    with blobs.states.open(job, 60.0) as folder:
        return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.is_dir() else {}


def test_another_machine_goes_on_where_this_one_was_killed(machine: Machine) -> None:
    here, there = machine("here"), machine("there")
    with pytest.raises(KeyboardInterrupt), here.states.open("job_1", 0.05) as folder:
        folder.mkdir(exist_ok=True)
        (folder / "a-1").write_bytes(b"first")
        (folder / ".part-1").write_bytes(b"half")
        until(lambda: seen(there, "job_1").get("a-1") == b"first")
        (folder / "a-2").write_bytes(b"second")
        (folder / "a-1").unlink()
        (folder / ".part-1").unlink()
        raise KeyboardInterrupt
    assert seen(there, "job_1") == {"a-2": b"second"}
    assert seen(there, "job_2") == {}
    there.states.forget("job_1")
    assert seen(here, "job_1") == {}


def test_states_of_jobs_that_are_over_are_swept(machine: Machine) -> None:
    here = machine("here")
    for job in ("job_live", "job_over"):
        with pytest.raises(KeyboardInterrupt), here.states.open(job, 60.0) as folder:
            folder.mkdir(exist_ok=True)
            (folder / "a").write_bytes(b"x")
            os.utime(folder, (1, 1))
            raise KeyboardInterrupt
    here.sweep(0.0, {f"{STATES}job_live"})
    assert seen(here, "job_live") == {"a": b"x"}
    assert seen(here, "job_over") == {}


@pytest.mark.parametrize("machine", ["bucket"], indirect=True)
def test_a_store_that_is_away_stops_no_job(machine: Machine, bucket_server: BucketServer) -> None:
    here = machine("here")
    with here.states.open("job_1", 0.05) as folder:
        bucket_server.door.down = True
        (folder / "a").write_bytes(b"x")
        time.sleep(0.2)
        bucket_server.door.down = False
        until(lambda: seen(machine("there"), "job_1") == {"a": b"x"})
    here.states.forget("job_1")


@pytest.mark.parametrize("machine", ["bucket"], indirect=True)
def test_a_job_waits_for_its_states_rather_than_begin_anew(
    machine: Machine, bucket_server: BucketServer, tmp_path: Path
) -> None:
    here = machine("here")
    bucket_server.door.down = True
    with pytest.raises(DomainError) as refused, here.states.open("job_1", 60.0):
        pass
    assert refused.value.kind == "unavailable"
    assert not list(tmp_path.rglob(f"{STATES}*"))
