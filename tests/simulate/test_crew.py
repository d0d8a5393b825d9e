"""Devices trained by several processes: the bytes of one process, whatever goes wrong in one of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.errors import TrainingError
from contract import plugins
from contract.wire.changes import PlanChange
from potstill.simulate.config import SimulatedClient, SimulationConfig, SimulationError
from potstill.simulate.crew import Crew
from potstill.simulate.engine import Simulation
from potstill.simulate.hands import Hand, Setup, pack, unpack
from potstill.simulate.history import History, digest_of
from potstill.simulate.speeds import Speeds

from .small import LOCAL, NAMES, body, config, samples
from .test_buffered import BUFFERED
from .test_engine import STATEFUL

RULES = '''
from typing import Literal

from torch.nn import functional

from client_sdk.methods.base import Method, implements
from contract.local import ClientObjective


class Smooth(ClientObjective):
    """Cross-entropy with label smoothing."""

    kind: Literal["crew-smooth"] = "crew-smooth"


@implements(Smooth)
class Smoothed(Method):
    """The same."""

    def loss(self, inputs, labels, logits, features):
        return functional.cross_entropy(logits, labels, label_smoothing=0.2)
'''
CASES: dict[str, dict[str, Any]] = {
    **{name: {"body_": body(**told)} for name, told in STATEFUL.items()},
    "buffered": {"body_": body("fedavgm", rounds=BUFFERED), "speeds": Speeds(dropout=0.1)},
    "changed": {"changes": {2: PlanChange.model_validate({"local": {"epochs": 2}})}},
    "liars": {
        "clients": [
            SimulatedClient(name, samples(number, 12), lie="random" if number else None)
            for number, name in enumerate(NAMES)
        ]
    },
}
DAILY = ("scaffold", "buffered")


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    with Crew(2) as two:
        yield two


def left(history: History, given: SimulationConfig) -> tuple[Any, ...]:
    """Everything that a run has made: models, what the stage of discriminators left, and what devices keep."""
    models = [record.digests for record in (history.initial, *history.rounds)]
    stage = [{name: digest_of(path) for name, path in of.items()} for of in (history.generator, history.discriminators)]
    kept = sorted(given.folder.glob("devices/*/memory*.safetensors"))
    told = [[part.model_dump(exclude={"update"}) for part in record.participants] for record in history.rounds]
    return models, stage, [(path.relative_to(given.folder), digest_of(path)) for path in kept], told


def ran(given: SimulationConfig, crew: Crew | None = None) -> tuple[Any, ...]:
    return left(Simulation(given, crew=crew).run(), given)


def same(name: str, folder: Path, crew: Crew) -> None:
    """See that processes and this one leave the same."""
    alone, shared = (config(folder / name / way, **CASES[name]) for way in ("alone", "shared"))
    assert ran(shared, crew) == ran(alone), name
    assert len(crew._hands) == 2
    assert not (shared.folder / "clients.bin").exists()


@pytest.mark.usefixtures("own_choices")
def test_processes_leave_the_same_bytes(tmp_path: Path) -> None:
    """One test, since processes take seconds to start; the other cases are nightly."""
    steps: list[tuple[str, int, int]] = []
    (tmp_path / "rules.py").write_text(RULES)
    plugins.take_file(tmp_path / "rules.py")
    smooth = body(local={**LOCAL, "objective": {"kind": "crew-smooth"}})
    with Crew(2) as crew:
        for name in DAILY:
            same(name, tmp_path, crew)
        given = config(tmp_path / "shared", body_=smooth)
        told = left(Simulation(given, lambda *step: steps.append(step), crew).run(), given)
    assert told == ran(config(tmp_path / "alone", body_=smooth)), "rules of a file are known there"
    assert told != ran(config(tmp_path / "plain"))
    assert [step for step in steps if step[0] == "train"][:4] == [("train", n, 3) for n in (0, 1, 2, 3)]


@pytest.mark.chaos
@pytest.mark.parametrize("name", [name for name in CASES if name not in DAILY])
def test_processes_leave_the_same_bytes_of_whatever_devices_do(name: str, tmp_path: Path, crew: Crew) -> None:
    same(name, tmp_path, crew)


@pytest.mark.chaos
def test_what_a_device_refuses_is_told_as_in_one_process(tmp_path: Path) -> None:
    clients = [SimulatedClient(name, (inputs * np.float32(1e30), labels)) for name, (inputs, labels) in
               ((name, samples(number, 12)) for number, name in enumerate(NAMES))]  # fmt: skip
    said = []
    with Crew(2) as two:
        for way, who in (("shared", two), ("alone", None)):
            with pytest.raises(TrainingError) as caught:
                ran(config(tmp_path / way, clients=clients), who)
            said.append(str(caught.value))
        assert said[0] == said[1]
        assert not two._hands, "the others' work is not waited for"


@pytest.mark.chaos
def test_a_process_that_is_killed_is_told_and_the_rest_goes_on_later(tmp_path: Path) -> None:
    given = config(tmp_path)
    with Crew(2) as two:
        simulation = Simulation(given, crew=two)
        with pytest.raises(SimulationError, match=r"has ended \(signal 9\); where memory ran out take fewer"):
            simulation.run(lambda record: two._hands[0]._process.kill())
    assert ran(given) == ran(config(tmp_path / "alone"))


def test_a_process_ends_when_nobody_can_ask_it_any_more() -> None:
    hand = Hand("cpu")
    hand._orders.close()
    assert hand._process.wait(30) == 0
    hand.answers.close()


def test_by_default_little_work_starts_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("potstill.simulate.crew.cores", lambda: 8)
    crew = Crew(None)
    Simulation(config(tmp_path), crew=crew).run()
    assert not crew._hands


class _Mine:
    """A data set that no other process can be told of."""

    def __init__(self) -> None:
        self.inputs, self.labels = samples(1, 12)
        self.made_here = lambda: None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.inputs[index], int(self.labels[index])


def test_what_cannot_be_sent_is_refused_where_processes_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = [SimulatedClient(name, _Mine()) for name in NAMES]
    with pytest.raises(SimulationError, match="processes: a client's dataset cannot be sent .* take --processes 1"):
        ran(config(tmp_path / "asked", clients=clients), Crew(2))
    monkeypatch.setattr("potstill.simulate.crew.START_SECONDS", 0.0)
    monkeypatch.setattr("potstill.simulate.crew.cores", lambda: 8)
    assert ran(config(tmp_path / "default", clients=clients), Crew(None))


def test_arrays_are_read_in_place_and_writing_into_them_changes_no_file(tmp_path: Path) -> None:
    inputs = np.arange(1000, dtype=np.float32).reshape(10, 100)
    clients = [
        (SimulatedClient("a", (inputs, np.arange(10))), Path("x")),
        (SimulatedClient("b", "data.npz"), Path("y")),
    ]
    told = Setup(clients, {1: "{}"}, 7, 1, ("rules.py",))
    pack(told, tmp_path / "clients.bin")
    before = (tmp_path / "clients.bin").read_bytes()
    read = unpack(tmp_path / "clients.bin")
    (x, y), again = read.clients[0][0].dataset, unpack(tmp_path / "clients.bin").clients[0][0].dataset[0]
    assert np.array_equal(x, inputs) and np.array_equal(y, np.arange(10))
    assert (read.clients[1], read.seed, read.plugins) == (told.clients[1], 7, ("rules.py",))
    x[0] = -1
    assert np.array_equal(again, inputs)
    assert (tmp_path / "clients.bin").read_bytes() == before
