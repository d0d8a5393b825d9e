"""`make chaos` in small, and kills at one moment of a round."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from client_sdk.errors import PotstillError
from tools.chaos.storm import Report, Storm
from tools.chaos.world import World

ROUNDS = 2
Worlds = Callable[..., World]


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[Worlds]:
    made: list[World] = []

    def make(**options: int) -> World:
        made.append(World(tmp_path, "embedded", **options))
        return made[-1]

    yield make
    for world in made:
        if not world.closed:
            world.close()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_kill_of_each_kind_changes_nothing(worlds: Worlds) -> None:
    world, lines = worlds(rounds=ROUNDS), list[str]()
    report = Report(seed=7)
    storm = Storm(world, report, report.seed, longest=0.5, out=lines.append, moments=("any", "job", "upload"))
    storm.calm("fedavg")
    kinds = ["child", "broker", "api", "worker"]
    while left := [kind for kind in kinds if not report.kills[f"embedded {kind}"]]:
        storm.federation("fedavg", len(left), only=left)
    report.faults += world.close()
    assert report.faults == [], "\n".join([*lines, *report.faults])
    assert report.equal == report.federations > 0
    assert report.updates == 3 * ROUNDS * report.federations


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_rounds_that_two_workers_share_are_what_one_makes(worlds: Worlds) -> None:
    """Killed in shards, between them, and while the round's job waits for them."""
    world, lines = worlds(), list[str]()
    report = Report(seed=17)
    storm = Storm(world, report, report.seed, longest=0.5, out=lines.append, moments=("any", "job"))
    storm.calm("shards")
    world.reinforce()
    while report.within["labels"] < 4:
        storm.federation("shards", 6, only=["shard", "shard", "worker", "child"])
    report.faults += world.close()
    assert report.faults == [], "\n".join([*lines, *report.faults])
    assert report.equal == report.federations > 0
    assert report.again > 0, "no shard was made again, so nothing was tried"


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_buffers_have_each_update_once_and_make_the_same_model_again(worlds: Worlds) -> None:
    world, lines = worlds(), list[str]()
    report = Report(seed=19)
    storm = Storm(world, report, report.seed, longest=0.5, out=lines.append, moments=("any", "job", "upload"))
    storm.calm("buffered")
    kinds = ["api", "worker", "broker"]
    while left := [kind for kind in kinds if not report.kills[f"embedded {kind}"]]:
        storm.federation("buffered", 4, only=left)
    report.faults += world.close()
    assert report.faults == [], "\n".join([*lines, *report.faults])
    assert report.equal == report.federations > 0


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
def test_twenty_kills_between_the_last_upload_and_the_model(worlds: Worlds) -> None:
    """API and worker, while a round's job is there: the old model or the new one, whole, and each update once."""
    world, lines = worlds(), list[str]()
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


@pytest.mark.chaos
@pytest.mark.timeout(400)
def test_updates_whose_bits_turn_are_asked_for_again(worlds: Worlds) -> None:
    """On the disk, between the answer to the device and the job: found, healed, and the models are what they were."""
    world, lines = worlds(), list[str]()
    report = Report(seed=13)
    storm = Storm(world, report, report.seed, longest=0.5, out=lines.append, moments=("upload",))
    storm.calm("fedavg")
    while report.total < 3:
        storm.federation("fedavg", 3 - report.total, only=["blob"])
    log = world.deployment.log("worker")
    report.faults += world.close()
    assert report.faults == [], "\n".join([*lines, *report.faults])
    assert report.equal == report.federations > 0
    assert "is damaged" in log, "nothing was found, so nothing was tried"
