"""Two workers share a round's labels on PostgreSQL, Redis and S3; one of them is killed in a shard."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.tensors import write_file
from contract.wire.federations import FederationCreate
from tests.bucket_server import BucketServer, environment
from tools.deployment import (
    Deployment,
    add_server_data,
    federation_request,
    images,
    run_devices,
    run_federation,
    wait_for,
)

from .composed import REDIS, empty_redis

RECIPE = {"name": "feddf", "options": {"schedule": {"steps": 20}}}
LARGE = {"datasets": {"unlabeled": "large", "test": "test"}}


@pytest.fixture
def distributed(tmp_path: Path, database: str, bucket_server: BucketServer) -> Iterator[Deployment]:
    empty_redis()
    deployment = Deployment(
        tmp_path / "home",
        0,
        {"service.domain.sharing.MOST": 4},
        POTSTILL_DATABASE_URL=database,
        POTSTILL_BROKER_URL=REDIS,
        POTSTILL_SECRET="a secret of at least sixteen characters",
        POTSTILL_LABELS_SHARD_SECONDS="0.01",
        **environment(bucket_server.settings()),
    )
    try:
        yield deployment
    finally:
        deployment.close()


def digests(deployment: Deployment, federation_id: str) -> list[tuple[Any, ...]]:
    models = deployment.operator.models(federation=federation_id).items
    return sorted((model.role, model.round or 0, model.digest) for model in models)


def kill_in_a_shard(deployment: Deployment, federation_id: str) -> str:
    """Kill the other worker while it makes a shard; return that shard's job."""

    def busy() -> Any:
        running = deployment.operator.jobs(federation=federation_id, state="running").items
        log = deployment.log("other")
        return next((job.id for job in running if f"{job.id}: labels, attempt" in log), "")

    job = wait_for(busy, 120, why="the other worker makes no shard")
    deployment.kill("other")
    return str(job)


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_a_worker_that_is_killed_costs_its_shard_and_no_bit(distributed: Deployment, tmp_path: Path) -> None:
    distributed.start_api()
    distributed.start_worker()
    add_server_data(distributed)
    pictures, _ = images(97, 60_000)
    write_file(tmp_path / "large.safetensors", {"inputs": np.ascontiguousarray(pictures)})
    distributed.operator.add_dataset("large", tmp_path / "large.safetensors")
    alone, _ = run_federation(distributed, tmp_path / "alone", federation_request("alone", RECIPE, **LARGE))
    distributed.start_worker("other")
    wait_for(lambda: sum(each.alive for each in distributed.operator.workers()) == 2, why="it is not heard")
    body = FederationCreate.model_validate(federation_request("shared", RECIPE, **LARGE))
    created = distributed.operator.create_federation(body)
    distributed.operator.start_federation(created.id)
    folder, told = tmp_path / "shared", (created.id, created.join_token)
    devices = threading.Thread(target=run_devices, args=(distributed, *told, folder), daemon=True)
    devices.start()
    killed = kill_in_a_shard(distributed, created.id)
    devices.join(timeout=300)
    assert distributed.operator.federation(created.id).state == "finished"
    jobs = {job.id: job for job in distributed.operator.jobs(federation=created.id).items}
    assert (jobs[killed].state, jobs[killed].attempt) == ("done", 2)
    assert {job.attempt for job in jobs.values() if job.kind == "labels" and job.id != killed} == {1}
    labels = distributed.operator.round(distributed.operator.rounds(created.id).items[1].id).metrics["labels"]
    assert (labels["here"], labels["teachers"]) == (0, 3)
    assert digests(distributed, created.id) == digests(distributed, alone.id)
