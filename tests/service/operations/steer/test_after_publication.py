"""What a worker does around a publication: files are on the disk before it, what is not kept goes after it."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from service.config import Settings
from service.operations.steer import publishing, retention
from service.persistence.tables import UpdateRow
from tests.service.world import Fed, World
from worker.ledger import Ledger
from worker.runner import Runner


@pytest.fixture
def runner(world: World) -> Iterator[Runner]:
    ledger = Ledger(world.settings)
    yield Runner(ledger)
    ledger.leave()


def delivered(world: World) -> Fed:
    """Return a federation whose round is to be averaged; it keeps no updates."""
    fed = world.running(["a", "b"], retention={"updates": 0})
    for seed, name in enumerate(fed.devices):
        assert world.push(fed, name, world.update(fed, seed)).status_code == 201
    return fed


def kept_updates(world: World) -> list[bool]:
    with world.store.read() as session:
        return [removed is None for removed in session.scalars(select(UpdateRow.removed_at))]


def test_a_new_model_is_on_the_disk_before_its_row_names_it(
    world: World, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fsync of the file itself, whoever wrote it."""
    fed, synced, before = delivered(world), set[int](), set[int]()
    fsync, publish = os.fsync, publishing.publish

    def noted(handle: int) -> None:
        fsync(handle)
        synced.add(os.fstat(handle).st_ino)

    def begun(*args: Any) -> None:
        before.update(synced)
        publish(*args)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(publishing, "publish", begun)
    assert runner.drain() == 1
    model = world.show(fed)["models"]["main"]
    assert world.round(fed, 1)["state"] == "published"
    assert world.blobs.cache.path(model["digest"]).stat().st_ino in before


def test_a_model_that_cannot_be_put_on_the_disk_is_not_published(
    world: World, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = delivered(world)

    def broken(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("service.infra.sums.os.fsync", broken)
    runner.drain()
    assert world.round(fed, 1)["state"] == "aggregating"
    assert world.ok("GET", f"/v1/jobs?federation={fed.id}")["items"][-1]["error"] == "disk_full"


def test_what_is_not_kept_goes_after_the_publication(world: World, runner: Runner) -> None:
    fed = delivered(world)
    assert kept_updates(world) == [True, True]
    runner.drain()
    assert world.round(fed, 1)["state"] == "published"
    assert kept_updates(world) == [False, False]


def test_a_publication_stands_though_nothing_could_go(
    world: World, runner: Runner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fed = delivered(world)

    def broken(*args: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(retention, "tidy", broken)
    with caplog.at_level(logging.ERROR):
        runner.drain()
    assert world.round(fed, 1)["state"] == "published"
    assert kept_updates(world) == [True, True]
    assert "stays until the tidying" in caplog.text


def test_a_publication_rings_once_for_the_devices_that_wait(
    world: World, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes afterwards is no news."""
    delivered(world)
    rung: list[Path] = []
    monkeypatch.setattr("worker.ledger.ring", rung.append)
    assert runner.drain() == 1
    bell = world.settings.changed_bell
    assert rung == ([] if bell is None else [bell])


def test_where_the_database_tells_by_itself_there_is_no_bell(tmp_path: Path) -> None:
    assert Settings(home=tmp_path).changed_bell is not None
    assert Settings(home=tmp_path, database_url="postgresql+psycopg://host/name").changed_bell is None
    assert Settings(home=tmp_path, broker_url="redis://host").changed_bell is None
