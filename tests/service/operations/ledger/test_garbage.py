"""Files that no row names any more are removed, whatever left them behind; those that a row names stay."""

import os
import time

from service.operations.ledger.garbage import collect
from service.operations.upkeep import sweep
from tests.service.world import World


def age(world: World, seconds: float = 7200) -> None:
    """Make every file look old."""
    for path in world.settings.resolved_blob_dir.rglob("*"):
        then = time.time() - seconds
        os.utime(path, (then, then))


def test_what_a_crash_left_between_rename_and_commit_goes(world: World) -> None:
    fed = world.running(["a", "b"])
    assert world.push(fed, "a").status_code == 201
    before = world.files()
    orphan = world.blobs.scratch.temp()
    orphan.write_bytes(b"nobody names me")
    world.blobs.store.keep(orphan, "sha256-" + "ab" * 32)
    assert collect(world.services.database, world.blobs.store, 3600) == 0  # it may be named in a moment
    age(world)
    assert collect(world.services.database, world.blobs.store, 3600) == 1
    assert world.files() == before


def test_updates_of_a_cancelled_federation_go_at_once_and_models_stay(world: World) -> None:
    fed = world.running(["a", "b"])
    before = world.files()
    assert world.push(fed, "a").status_code == 201
    assert len(world.files()) == len(before) + 1
    world.ok("POST", f"/v1/federations/{fed.id}/cancel")
    assert world.files() == before


def test_abandoned_uploads_and_folders_of_dead_jobs_go_and_running_ones_stay(world: World) -> None:
    world.running(["a"])
    fed = world.create()
    world.ok("POST", f"/v1/federations/{fed.id}/start")
    job = world.claim()
    alive = world.blobs.scratch.work_dir(job.id, job.fence)
    dead = world.blobs.scratch.work_dir("job_gone", 3)
    half = world.blobs.scratch.temp()
    half.write_bytes(b"half an upload")
    age(world)
    sweep.tidy(world.store, world.blobs, world.settings)
    assert alive.exists()
    assert not dead.exists()
    assert not half.exists()
