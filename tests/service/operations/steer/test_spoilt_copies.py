"""A worker's copy of a blob that is in a bucket: a bad one is fetched again, a bad object is the store's fault."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.bucket_server import BucketServer, client
from tests.service.conftest import SettingsMaker
from tests.service.world import World
from worker.ledger import Ledger
from worker.runner import Runner


@pytest.fixture
def values(bucket_server: BucketServer) -> dict[str, Any]:
    return bucket_server.settings()


@pytest.fixture
def world(make_settings: SettingsMaker, world_of: type[World], values: dict[str, Any]) -> Iterator[World]:
    made = world_of(make_settings(**values))
    yield made
    made.close()


def test_a_bad_copy_is_fetched_again_and_a_bad_object_asked_for_again(
    world: World, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.operations.progress.jobs.RETRY_SECONDS", 0.0)
    runner = Runner(Ledger(world.settings))
    fed = world.running()
    base = world.ok("GET", f"/v1/models/{world.round(fed)['base_models']['main']}")
    cache = runner.ledger._blobs.cache
    with cache.hold([base["digest"]]):
        cache.path(base["digest"]).write_bytes(b"a copy that its disk has changed")
    body = world.update(fed, 1)
    for name, content in (("a", body), ("b", world.update(fed, 2))):
        assert world.push(fed, name, content).status_code == 201
    assert runner.drain() == 2, "once with the bad copy, once with a fresh one"
    assert world.round(fed, 1)["state"] == "published"

    body = world.update(fed, 3)
    digest = world.push(fed, "a", body).json()["digest"]
    bucket, prefix = values["blob_url"].removeprefix("s3://").split("/")
    client(values["s3_endpoint"]).put_object(Bucket=bucket, Key=f"{prefix}/blobs/{digest[7:]}", Body=body[:-1])
    assert world.push(fed, "b", world.update(fed, 4)).status_code == 201
    assert runner.drain() == 1
    job = world.ok("GET", f"/v1/jobs?federation={fed.id}&state=failed")["items"][-1]
    assert (job["error"], world.round(fed)["state"]) == ("blob_damaged", "collecting")
    assert "'a'" in job["detail"]
    assert world.push(fed, "a", body).status_code == 201
    assert runner.drain() == 1
    assert world.show(fed)["state"] == "finished"
    runner.ledger.leave()
