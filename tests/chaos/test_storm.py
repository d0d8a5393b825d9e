"""A dozen kills over two federations: `make chaos` in small."""

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from client_sdk.errors import PotstillError
from tests.chaos.storm import Report, Storm
from tests.chaos.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, "embedded")
    yield made
    if not made.closed:
        made.close()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_dozen_kills_change_nothing(world: World) -> None:
    lines: list[str] = []
    report = Report(seed=7)
    storm = Storm(world, report, report.seed, longest=1.0, out=lines.append)
    storm.calm("fedavg")
    goal = 12
    while report.total < goal:
        storm.federation("fedavg", goal - report.total)
    report.faults += world.close()
    assert report.faults == [], "\n".join([*lines, *report.faults])
    assert report.equal == report.federations > 0
    assert report.updates == 12 * report.federations
    assert {kind.split()[1] for kind in report.kills} >= {"api", "worker", "broker"}


class Reader:
    """Reads the current model all the time, as a device would: it must always be whole, and never go back."""

    def __init__(self, world: World):
        self._world, self.faults, self.read = world, list[str](), 0
        self.ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        newest: dict[str, int] = {}
        while not self.ending.wait(0.02):
            try:
                for model in self._world.deployment.operator.models(limit=100).items:
                    if model.current and model.role in ("initial", "global"):
                        fault = self._world.whole(model)
                        if fault is not None:
                            self.faults.append(fault)
                        if (model.round or 0) < newest.get(model.federation_id or "", 0):
                            self.faults.append(f"{model.federation_id} went back to round {model.round}")
                        newest[model.federation_id or ""] = model.round or 0
                        self.read += 1
            except (PotstillError, httpx.HTTPError):
                continue  # the API is away

    def close(self) -> None:
        self.ending.set()
        self._thread.join()


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_twenty_kills_between_the_last_upload_and_the_model(world: World) -> None:
    """API and worker, while a round's job is there: the old model or the new one, whole, and each update once."""
    lines: list[str] = []
    report = Report(seed=11)
    storm = Storm(world, report, report.seed, longest=1.5, out=lines.append, moments=("job",))
    storm.calm("fedavg")
    reader = Reader(world)
    while report.total < 20:
        storm.federation("fedavg", 20 - report.total, only=["api", "worker"])
    reader.close()
    report.faults += reader.faults + world.close()
    assert report.faults == [], "\n".join([*lines, *report.faults])
    assert report.equal == report.federations > 0
    assert reader.read > 0
