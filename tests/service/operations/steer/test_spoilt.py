"""Jobs whose inputs are damaged or missing: nothing of them is published, whose they are is named, and it heals."""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import delete, select, update

from service.infra.blob_folder import FolderStore
from service.infra.sums import sums_of
from service.operations.ledger import clock
from service.persistence.tables import ChecksumRow, ModelRow
from tests.service.world import Fed, World
from worker.lease import Lease
from worker.ledger import Ledger
from worker.runner import Runner


def harm(path: Path) -> None:
    """Turn one bit in the middle of a file."""
    with open(path, "r+b") as file:
        file.seek(-3, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-3, os.SEEK_END)
        file.write(bytes([byte ^ 1]))


@pytest.fixture
def without_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a job that would run networks wait for the verdict on its files alone: torch takes seconds to load."""
    monkeypatch.setattr(Runner, "_compute", lambda runner, job, spec, lease, inspection: inspection.check())


HARMS = pytest.mark.parametrize(("hurt", "code"), [(harm, "blob_damaged"), (Path.unlink, "blob_missing")])


class Site:
    """A service with a worker of its own."""

    def __init__(self, world: World):
        self.world = world
        self.runner = Runner(Ledger(world.settings))
        assert isinstance(world.blobs.store, FolderStore)
        self.store = world.blobs.store

    def work(self) -> int:
        """Do all jobs that are due."""
        return self.runner.drain()

    def delivered(self, fed: Fed, name: str, seed: int) -> tuple[bytes, Path]:
        """Deliver an update; return it and where it lies."""
        body = self.world.update(fed, seed)
        receipt = self.world.push(fed, name, body)
        assert receipt.status_code == 201, receipt.text
        return body, self.store.path(receipt.json()["digest"])

    def checksums(self) -> dict[str, str]:
        """Return digest -> checksum, as it is in the database."""
        with self.world.store.read() as session:
            return {row.digest: row.checksum for row in session.scalars(select(ChecksumRow))}

    def right_checksums(self) -> dict[str, str]:
        """Return digest -> checksum of all files that there are."""
        found = [sums_of(path) for path in self.store.root.glob("[0-9a-f][0-9a-f]/*")]
        return {each.digest: each.checksum for each in found}

    def job(self, fed: Fed, kind: str = "round") -> dict[str, Any]:
        """Return the newest job of a kind."""
        items = self.world.ok("GET", f"/v1/jobs?federation={fed.id}")["items"]
        return max((each for each in items if each["kind"] == kind), key=lambda each: str(each["id"]))

    def kinds(self, fed: Fed) -> list[str]:
        """Return the kinds of a federation's events."""
        items = self.world.ok("GET", f"/v1/federations/{fed.id}/events?format=json&limit=500")["items"]
        return [item["kind"] for item in items]


@pytest.fixture
def site(world: World) -> Iterator[Site]:
    made = Site(world)
    yield made
    made.runner._child.close()
    made.runner.ledger.leave()


@HARMS
def test_a_rounds_lost_update_is_asked_for_again(site: Site, hurt: Any, code: str) -> None:
    """One bit of an accepted update: the round was fused with it; a missing one was five attempts of `internal`."""
    world = site.world
    fed = world.running()
    body, path = site.delivered(fed, "a", 1)
    site.delivered(fed, "b", 2)
    hurt(path)
    assert site.work() == 1
    job, round_ = site.job(fed), world.round(fed)
    assert (job["state"], job["error"], job["attempt"]) == ("failed", code, 1)
    assert "the update of 'a' in round 1" in job["detail"] and "'b'" not in job["detail"]
    assert (round_["state"], round_["models"]) == ("collecting", {})
    assert world.show(fed)["state"] == "running"
    assert world.assignment(fed.devices["a"])["action"] == "train"
    assert world.assignment(fed.devices["b"])["action"] == "wait"
    assert {f"blob.{code[5:]}", "round.reopened"} <= set(site.kinds(fed))
    refused = world.op("POST", f"/v1/jobs/{job['id']}/retry")
    assert refused.status_code == 409
    assert world.push(fed, "a", body).status_code == 201
    assert site.work() == 1
    assert world.round(fed, 1)["state"] == "published"


def test_a_healed_round_is_what_it_would_have_been(site: Site) -> None:
    world = site.world
    digests = []
    for hurt in (False, True):
        fed = world.running(seed=5, name=world.fresh_name("same"))
        body, path = site.delivered(fed, "a", 1)
        site.delivered(fed, "b", 2)
        if hurt:
            harm(path)
            site.work()
            assert world.push(fed, "a", body).status_code == 201
        site.work()
        model = world.round(fed, 1)["models"]["main"]
        digests.append(world.ok("GET", f"/v1/models/{model}")["digest"])
    assert digests[0] == digests[1]


@HARMS
def test_past_its_deadline_a_round_fails_and_names_the_client(
    site: Site, monkeypatch: pytest.MonkeyPatch, hurt: Any, code: str
) -> None:
    world = site.world
    fed = world.running()
    _, path = site.delivered(fed, "a", 1)
    body, _ = site.delivered(fed, "b", 2)
    hurt(path)
    monkeypatch.setattr("service.operations.steer.resend.now", lambda: clock.now() + timedelta(days=1))
    assert site.work() == 1
    job, round_ = site.job(fed), world.round(fed)
    assert (job["error"], round_["state"], world.show(fed)["state"]) == (code, "failed", "paused")
    assert "'a'" in round_["reason"] and "retry without it" in round_["reason"]
    assert site.work() == 0
    world.ok("POST", f"/v1/jobs/{job['id']}/retry", json={"exclude": ["a"], "force": True})
    assert site.work() == 1
    assert world.round(fed, 1)["state"] == "published"
    assert world.push(fed, "b", body, url=f"/v1/rounds/{world.round(fed, 1)['id']}/update").status_code == 200


def test_the_same_bytes_let_a_failed_round_be_retried(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    world = site.world
    fed = world.running()
    body, path = site.delivered(fed, "a", 1)
    site.delivered(fed, "b", 2)
    path.unlink()
    with monkeypatch.context() as patch:
        patch.setattr("service.operations.steer.resend.now", lambda: clock.now() + timedelta(days=1))
        site.work()
    assert world.push(fed, "a", body).status_code == 200
    world.ok("POST", f"/v1/jobs/{site.job(fed)['id']}/retry")
    site.work()
    assert world.round(fed, 1)["state"] == "published"


def test_a_reopened_round_can_still_be_closed_by_force(site: Site) -> None:
    world = site.world
    fed = world.running(rounds={"min_updates": 2})
    _, path = site.delivered(fed, "a", 1)
    site.delivered(fed, "b", 2)
    harm(path)
    site.work()
    round_ = world.round(fed)
    assert world.op("POST", f"/v1/rounds/{round_['id']}/close").status_code == 409
    world.ok("POST", f"/v1/rounds/{round_['id']}/close?force=true")
    assert site.work() == 1
    assert world.round(fed, 1)["state"] == "published"


@HARMS
def test_a_lost_model_fails_the_round_and_is_named(site: Site, hurt: Any, code: str) -> None:
    world = site.world
    fed = world.running(recipe={"name": "fedavgm"})
    site.delivered(fed, "a", 1)
    site.delivered(fed, "b", 2)
    base = world.ok("GET", f"/v1/models/{world.round(fed)['base_models']['main']}")
    path = site.store.path(base["digest"])
    content = path.read_bytes()
    hurt(path)
    site.work()
    job = site.job(fed)
    assert (job["error"], world.round(fed)["state"]) == (code, "failed")
    assert base["id"] in job["detail"] and "import a copy" in job["detail"]
    world.ok("POST", "/v1/models", body=content)
    world.ok("POST", f"/v1/jobs/{job['id']}/retry")
    site.work()
    assert world.round(fed, 1)["state"] == "published"


def test_what_a_method_keeps_between_rounds_is_looked_at(site: Site) -> None:
    """It was even published again under the digest of its damaged bytes."""
    world = site.world
    fed = world.running(recipe={"name": "fedavgm"}, rounds={"total": 3})
    for seed in (1, 2):
        site.delivered(fed, "a", seed)
        site.delivered(fed, "b", seed + 10)
        if seed == 2:
            with world.store.read() as session:
                kept = session.scalars(select(ModelRow).where(ModelRow.role == "state")).one()
            harm(site.store.path(kept.digest))
        site.work()
    job = site.job(fed)
    assert (job["state"], job["error"]) == ("failed", "blob_damaged")
    assert kept.id in job["detail"] and "velocity" in job["detail"]


@pytest.mark.usefixtures("without_networks")
@HARMS
def test_a_lost_data_set_is_named_and_comes_back(site: Site, hurt: Any, code: str) -> None:
    world = site.world
    data = world.dataset(labels=np.zeros(5, np.int64))
    fed = world.create(datasets={"test": data["id"]}, rounds={"total": 1, "min_clients": 1})
    world.enrol(fed, "a")
    path = site.store.path(data["digest"])
    content = path.read_bytes()
    hurt(path)
    world.ok("POST", f"/v1/federations/{fed.id}/start")
    site.work()
    job = site.job(fed, "initialize")
    assert (job["error"], world.show(fed)["state"]) == (code, "failed")
    assert f"data set {data['name']!r}" in job["detail"] and "potstill dataset add" in job["detail"]
    world.ok("POST", f"/v1/datasets?name={data['name']}", body=content)
    world.ok("POST", f"/v1/jobs/{job['id']}/retry")
    assert path.read_bytes() == content
    assert world.show(fed)["state"] == "preparing"


@pytest.mark.usefixtures("without_networks")
@HARMS
def test_a_lost_discriminator_is_asked_for_again(site: Site, hurt: Any, code: str) -> None:
    world = site.world
    fed = world.collecting()
    url = f"/v1/federations/{fed.id}/discriminator"
    paths = []
    for seed, device in enumerate(fed.devices.values()):
        body = world.forge.pack(world.forge.arrays(20 + seed))
        receipt = world.site.request("PUT", url, token=device.token, body=body)
        assert receipt.status_code == 201, receipt.text
        paths.append(site.store.path(receipt.json()["digest"]))
    hurt(paths[0])
    assert site.work() == 1
    job = site.job(fed, "score")
    assert (job["error"], world.show(fed)["state"]) == (code, "collecting_discriminators")
    assert "the discriminator of 'a'" in job["detail"]
    assert world.assignment(fed.devices["a"])["action"] == "train_discriminator"
    assert world.assignment(fed.devices["b"])["action"] == "wait"


def test_the_result_of_a_job_that_read_damaged_files_is_thrown_away(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the fault is found last, after everything was computed."""
    world = site.world
    fed = world.running()
    _, path = site.delivered(fed, "a", 1)
    site.delivered(fed, "b", 2)
    harm(path)
    computed = []
    before = Runner._compute

    def compute(*args: Any) -> Any:
        computed.append(before(*args))
        return computed[-1]

    monkeypatch.setattr(Lease, "spoil", lambda lease: None)
    monkeypatch.setattr(Runner, "_compute", compute)
    site.work()
    assert len(computed) == 1
    assert world.round(fed)["models"] == {}


def test_wrong_checksums_cost_no_attempt_and_are_put_right(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """Those of updates are wrong, that of the model from which the round starts is not there; updates go afterwards."""
    world = site.world
    fed = world.running()
    for number, name in enumerate("ab"):
        site.delivered(fed, name, number)
    with world.store.write() as session:
        session.execute(update(ChecksumRow).values(checksum=f"xxh3-{'0' * 32}"))
    assert len(site.checksums()) == 2
    site.work()
    assert (site.job(fed)["attempt"], world.round(fed, 1)["state"]) == (1, "published")
    assert caplog.text.count("its checksum in the database was wrong") == 2
    assert len(site.checksums()) == 2, "of the model that was given and of the one that was made"
    assert site.checksums() == site.right_checksums()


@pytest.mark.parametrize("known", [True, False])
def test_damage_is_found_with_and_without_a_checksum(site: Site, known: bool) -> None:
    world = site.world
    fed = world.running()
    _, path = site.delivered(fed, "a", 1)
    site.delivered(fed, "b", 2)
    if not known:
        with world.store.write() as session:
            session.execute(delete(ChecksumRow))
    harm(path)
    site.work()
    job = site.job(fed)
    assert (job["error"], job["attempt"], world.round(fed)["models"]) == ("blob_damaged", 1, {})
    assert "the update of 'a' in round 1" in job["detail"] and "'b'" not in job["detail"]
