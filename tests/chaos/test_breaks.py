"""Single breaks that operators have met: a broker that goes and comes, a late commit, a worker that was away."""

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from sqlalchemy import event

from contract.wire.federations import FederationCreate
from service.infra.blob_store import open_blobs
from service.infra.queue import Sender
from service.operations.ledger.unit import Store
from service.operations.steer import control, creation
from service.persistence.engine import Database
from tests.e2e.test_kills import _Device
from tools.chaos.servers import Redis
from tools.deployment import Deployment, add_server_data, federation_request, wait_for

pytestmark = pytest.mark.timeout(600)
PLAIN: dict[str, Any] = {"datasets": {}, "rounds": {"total": 1, "min_clients": 2, "min_updates": 2}}
PATIENCE = 150.0  # for what comes before the break, on a machine that does much else
AWAY_SECONDS = 65.0  # longer than every patience of the programs with their broker


@pytest.fixture
def redis() -> Iterator[Redis]:
    if not Redis.there():
        pytest.skip("NO redis-server HERE: a broker that breaks is not tested")
    made = Redis()
    made.start()
    yield made
    made.close()


def begun(deployment: Deployment, name: str) -> Any:
    """Create and start a federation: its first job is queued."""
    request = FederationCreate.model_validate(federation_request(name, {"name": "fedavg"}, **PLAIN))
    created = deployment.operator.create_federation(request)
    deployment.operator.start_federation(created.id)
    return created


def runs(deployment: Deployment, id_: str) -> None:
    """Wait until the first job is done."""
    wait_for(lambda: deployment.operator.federation(id_).state == "running", 60, "the job is not taken up")


def deliver(deployment: Deployment, created: Any, folder: Path, count: int) -> None:
    """Enrol devices, and have each answer the round; nobody trains."""
    devices = [_Device(deployment, created, f"device-{number}", folder) for number in range(count)]
    for number, device in enumerate(devices):
        url, body = device.update(deployment, number)
        answer = httpx.put(url, content=body, headers={"Authorization": f"Bearer {device.token}"}, timeout=60)
        assert answer.status_code == 201, answer.text
        device.client.close()


def distilling(deployment: Deployment, folder: Path, name: str, steps: int) -> Any:
    """Have a federation of one round distil, and return it once it does."""
    add_server_data(deployment)
    recipe = {"name": "feddf", "options": {"schedule": {"steps": steps, "lr": "constant"}}}
    rounds = {"total": 1, "min_clients": 2, "min_updates": 2}
    request = FederationCreate.model_validate(federation_request(name, recipe, rounds=rounds))
    created = deployment.operator.create_federation(request)
    deployment.operator.start_federation(created.id)
    deliver(deployment, created, folder, 2)
    wait_for(
        lambda: (job := round_job(deployment, created)) and job.progress and job.progress.phase.startswith("distil"),
        PATIENCE,
        "no job distils",
    )
    return created


def round_job(deployment: Deployment, created: Any) -> Any:
    """Return the job that fuses the round, or None."""
    jobs = deployment.operator.jobs(federation=created.id).items
    return next((job for job in jobs if job.kind == "round"), None)


def published(deployment: Deployment, created: Any) -> list[Any]:
    """Return the models that rounds made."""
    return [model for model in deployment.operator.models(federation=created.id).items if model.role == "global"]


def kinds(deployment: Deployment, created: Any) -> Counter[str]:
    """Count a federation's events."""
    headers = {"Authorization": f"Bearer {deployment.token}"}
    url = f"{deployment.url}/v1/federations/{created.id}/events?format=json"
    return Counter(each["kind"] for each in httpx.get(url, headers=headers).raise_for_status().json()["items"])


def computing(deployment: Deployment, created: Any) -> psutil.Process:
    """Return the process that computes the round's job."""
    job = round_job(deployment, created)
    worker = next(each for each in deployment.operator.workers() if each.job_id == job.id)
    children = psutil.Process(worker.pid).children()
    return next(each for each in children if "worker.child" in " ".join(each.cmdline()))


@pytest.mark.chaos
def test_a_broker_that_breaks_again_and_again(redis: Redis, tmp_path: Path) -> None:
    """Redis is killed when all is quiet and when a job is due, and suspended: jobs start, and readiness says so."""
    deployment = Deployment(tmp_path / "home", POTSTILL_BROKER_URL=redis.url)
    try:
        deployment.start_api()
        deployment.start_worker()
        runs(deployment, begun(deployment, "calm").id)
        for number in range(4):
            redis.kill()
            early = begun(deployment, f"early-{number}") if number % 2 else None  # while it is away
            redis.start()
            runs(deployment, (early or begun(deployment, f"late-{number}")).id)
        redis.send(signal.SIGSTOP)
        silent = time.monotonic()
        runs(deployment, begun(deployment, "paused").id)
        time.sleep(max(0.0, silent + AWAY_SECONDS - time.monotonic()))
        runs(deployment, begun(deployment, "still-paused").id)
        redis.send(signal.SIGCONT)
        runs(deployment, begun(deployment, "after").id)
        answer = httpx.get(f"{deployment.url}/readyz")
        assert answer.status_code == 200, answer.text
        assert {job.attempt for job in deployment.operator.jobs().items} == {1}
    finally:
        deployment.close()


@pytest.mark.chaos
@pytest.mark.parametrize("when", ["before the commit", "never"])
def test_a_wake_up_that_comes_too_early_or_not_at_all(deployment: Deployment, when: str) -> None:
    """The worker looks before the row is there; or the API died between its commit and the message."""
    sender, database = Sender(deployment.settings), Database(deployment.settings)
    store = Store(database, open_blobs(deployment.settings).store)  # which wakes nobody

    def late(session: Any) -> None:
        if when == "before the commit":
            sender.send("cpu")
            time.sleep(2)

    request = FederationCreate.model_validate(federation_request("late", {"name": "fedavg"}, **PLAIN))
    with store.write() as session:
        row = creation.create(session, deployment.settings.key, request)
        control.start(session, row.id)
        event.listen(session, "before_commit", late)
        id_ = row.id
    runs(deployment, id_)
    sender.close()
    database.close()


@pytest.mark.chaos
@pytest.mark.parametrize("signals", [[signal.SIGTERM, signal.SIGKILL], [signal.SIGKILL]])
def test_what_was_promised_goes_on_after_the_api_is_gone(
    deployment: Deployment, tmp_path: Path, signals: list[int]
) -> None:
    """The last update of a round is answered, and at once the API ends: by its grace of two seconds, or by SIGKILL."""
    created = begun(deployment, "promised")
    devices = [_Device(deployment, created, name, tmp_path) for name in ("a", "b")]
    for number, device in enumerate(devices):
        url, body = device.update(deployment, number)
        answer = httpx.put(url, content=body, headers={"Authorization": f"Bearer {device.token}"}, timeout=60)
        assert answer.status_code == 201, answer.text
    if signal.SIGTERM in signals:
        os.kill(deployment.pid("api"), signal.SIGTERM)
        end = time.monotonic() + 2
        while time.monotonic() < end and not deployment.ended("api"):
            time.sleep(0.02)
    deployment.kill("api")
    deployment.start_api()
    wait_for(lambda: deployment.operator.federation(created.id).state == "finished", why="the round does not go on")
    shown = deployment.operator.round(deployment.operator.rounds(created.id).items[0].id)
    assert {person.name: person.weight for person in shown.participants} == pytest.approx({"a": 1 / 3, "b": 2 / 3})
    for device in devices:
        device.client.close()


def repeated(deployment: Deployment, *workers: str) -> int:
    """Return how many wake-ups came that had come before, to any of the workers."""
    logs = "".join(deployment.log(worker) for worker in workers)
    found = Counter(re.findall(r"Task potstill\.work\[([0-9a-f-]+)\] received", logs))
    return found.total() - len(found)


@pytest.mark.chaos
def test_wake_ups_that_come_again_while_their_job_runs(redis: Redis, tmp_path: Path) -> None:
    """Two workers that acknowledge late, a visibility timeout of ten seconds, and a job that takes longer than that.

    The job's process is suspended until wake-ups have come again, so that it takes long enough on every machine.
    """
    deployment = Deployment(tmp_path / "home", POTSTILL_BROKER_URL=redis.url)
    try:
        deployment.start_api()
        for name in ("one", "two"):
            deployment.start_worker(name, "tools.chaos.late", threads=8)
        created = distilling(deployment, tmp_path, "again", steps=900)
        child = computing(deployment, created)
        child.suspend()
        before = repeated(deployment, "one", "two")
        wait_for(lambda: repeated(deployment, "one", "two") > before, PATIENCE, "no wake-up comes again")
        job = round_job(deployment, created)
        assert (job.state, job.attempt) == ("running", 1), "the lease is kept, whoever is woken"
        child.resume()
        wait_for(lambda: deployment.operator.federation(created.id).state == "finished", why="it does not end")
        assert round_job(deployment, created).attempt == 1
        assert len(published(deployment, created)) == 1
        assert kinds(deployment, created)["round.published"] == 1
        assert kinds(deployment, created)["job.claimed"] == kinds(deployment, created)["job.done"] == 2
    finally:
        deployment.close()


@pytest.mark.slow
def test_a_worker_that_was_away_beyond_its_lease_cannot_publish(deployment: Deployment, tmp_path: Path) -> None:
    """Suspended with its child in mid-distillation; another one finishes; it wakes up, goes on, and nobody listens.

    Wake-ups that come twice, as a broker delivers them after its visibility timeout, start nothing twice either.
    """
    created = distilling(deployment, tmp_path, "away", steps=900)

    def job() -> Any:
        return round_job(deployment, created)

    computing(deployment, created).suspend()  # so that the job lasts until the other one is there
    deployment.start_worker("other")
    sender = Sender(deployment.settings)
    for _ in range(5):
        sender.send("cpu")
    sender.close()
    wait_for(lambda: sum(worker.alive for worker in deployment.operator.workers()) == 2, why="no second worker")
    assert job().attempt == 1, "the second worker leaves the job alone"
    os.killpg(deployment.pid("worker"), signal.SIGSTOP)
    wait_for(lambda: job().attempt == 2, PATIENCE, why="nobody takes the job up")
    wait_for(lambda: job().state == "done", PATIENCE, why="the second worker does not end")
    os.killpg(deployment.pid("worker"), signal.SIGCONT)
    wait_for(lambda: "the lease was lost" in deployment.log("worker"), why="it does not find out")
    assert (job().state, job().attempt) == ("done", 2)
    assert len(published(deployment, created)) == 1
    assert deployment.operator.federation(created.id).state == "finished"


@pytest.mark.chaos
def test_a_running_job_is_cancelled_and_stays_so(deployment: Deployment, tmp_path: Path) -> None:
    """Cancelled in mid-distillation and the worker killed at once: within 15 s it is over, and nothing is published."""
    created = distilling(deployment, tmp_path, "unwanted", steps=100_000)

    def job() -> Any:
        return round_job(deployment, created)

    deployment.operator.cancel_job(job().id)
    deployment.kill("worker")
    deployment.start_worker()
    wait_for(lambda: job().state == "cancelled", 15, why="it is not cancelled")
    assert deployment.operator.federation(created.id).state == "paused"
    assert not published(deployment, created)
    deployment.operator.cancel_federation(created.id)
