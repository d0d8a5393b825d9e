"""A round whose labels two workers share is the round that one makes: the same bytes, whatever happened to a shard."""

import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from service.persistence.tables import JobRow, LabelShardRow
from tests.service.conftest import SettingsMaker
from tests.service.plant import Plant
from tests.service.world import Fed, World
from worker.ledger import Ledger
from worker.pace import Pace
from worker.specs import JobSpec, LabelsSpec, Progress

pytestmark = pytest.mark.timeout(600)  # a loaded machine is no defect
STEPS = {"schedule": {"steps": 3, "batch_size": 8}}
FEDSDD = {"groups": {"count": 2}, "members": {"rounds": 3}}


@pytest.fixture(scope="module")
def plant(make_settings: SettingsMaker, world_of: type[World]) -> Iterator[Plant]:
    made = Plant(world_of(make_settings(device="cpu", torch_threads=1, labels_shard_seconds=1.0)))
    yield made
    made.close()


@pytest.fixture
def costly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every teacher cost a second, so that each is a shard, and nobody be silent on a loaded machine."""
    monkeypatch.setattr("service.domain.sharing.seconds_of_a_teacher", lambda rounds: 1.0 if rounds else None)
    monkeypatch.setattr("service.operations.store.workers.SILENT", timedelta(hours=1))


def digests(plant: Plant, fed: Fed, rounds: int) -> list[dict[str, str]]:
    """Return model -> digest of every round."""
    models = [plant.world.round(fed, index)["models"] for index in range(1, rounds + 1)]
    return [{n: plant.world.ok("GET", f"/v1/models/{id_}")["digest"] for n, id_ in each.items()} for each in models]


def asking(plant: Plant, monkeypatch: pytest.MonkeyPatch, killed: bool) -> list[str]:
    """Return what the computing process is asked for; it may be killed once, under the second shard."""
    asked: list[str] = []
    ask = plant.child.ask

    def dying(spec: JobSpec, report: Any, *more: Any) -> Any:
        asked.append(spec.kind)
        if killed and asked.count("labels") == 2 and isinstance(spec, LabelsSpec):

            def kill(progress: Any) -> None:
                if progress.phase == "label" and asked.count("labels") == 2 and plant.child.pid is not None:
                    os.kill(plant.child.pid, signal.SIGKILL)

            return ask(spec, kill, *more)
        return ask(spec, report, *more)

    monkeypatch.setattr(plant.child, "ask", dying)
    monkeypatch.setattr("service.operations.progress.jobs.RETRY_SECONDS", 0.0)
    return asked


def one_second(pace: Pace, progress: Progress, moment: float) -> float | None:
    """Say before the first teacher is asked that it takes a second."""
    return 1.0 if (progress.phase, progress.step) == ("label", 0) else None


CASES: dict[str, tuple[dict[str, Any], int]] = {
    "clients": ({"name": "feddf", "options": STEPS | {"drop_worst": None}}, 2),
    "a first round": ({"name": "feddf", "options": STEPS | {"drop_worst": None}}, 1),
    "groups": ({"name": "fedsdd", "options": FEDSDD | STEPS}, 4),
}


@pytest.mark.usefixtures("costly")
@pytest.mark.parametrize(
    ("case", "killed"),
    [
        ("clients", False),
        pytest.param("clients", True, marks=pytest.mark.chaos),
        pytest.param("a first round", True, marks=pytest.mark.chaos),
        pytest.param("groups", True, marks=pytest.mark.chaos),
    ],
)
def test_two_workers_make_the_model_that_one_makes(
    plant: Plant, case: str, killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, total = CASES[case]
    if case == "a first round":
        monkeypatch.setattr("worker.pace.Pace.of", one_second)
    made = []
    for workers in (1, 2):
        fed = plant.begin(recipe, seed=11, test=True, rounds={"total": total})
        other = Ledger(plant.world.settings) if workers == 2 else None
        if other is not None:
            other.heartbeat()
            plant.ledger.heartbeat()
            asked = asking(plant, monkeypatch, killed)
        plant.go_on(fed)
        made.append((digests(plant, fed, total), fed))
        if other is not None:
            other.leave()
    (alone, _), (shared, fed) = made
    assert shared == alone
    labels = plant.world.round(fed, total)["metrics"]["labels"]
    assert labels["shards"] == 4
    assert (labels["here"], labels["teachers"]) == ((2, 6) if case == "groups" else (0, 4))
    assert list(labels["workers"]) == [plant.ledger.worker_id]
    with plant.world.store.read() as session:
        mine = select(JobRow.attempt).where(JobRow.federation_id == fed.id, JobRow.kind == "labels")
        attempts = sorted(session.scalars(mine))
        assert session.scalars(select(LabelShardRow)).all() == []
    assert attempts == [1] * (len(attempts) - 1) + [2 if killed else 1]
    assert asked.count("labels") == sum(attempts)
    shared_rounds = [index for index in range(1, total + 1) if "labels" in plant.world.round(fed, index)["metrics"]]
    assert shared_rounds == {"clients": [2], "a first round": [1], "groups": [2, 3, 4]}[case]
    reports = plant.again(fed, since=-1)
    assert [report.verdict for report in reports] == ["equal"]
