"""`potstill export`: what comes to TensorBoard and MLflow, once, whatever is given how often."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tensorboardX.proto.event_pb2 import Event

from contract.wire.common import Page
from contract.wire.federations import Federation
from contract.wire.rounds import Round
from potstill.console import CliError
from potstill.tracking.board import Board, scalars
from potstill.tracking.federations import Copy, point_of, run_of
from potstill.tracking.places import sinks
from potstill.tracking.runs import Point, TrackedRun, flat

from .command_line import Service, call

RUN = TrackedRun("fed_1", "potstill", "a", {"recipe": "fedavg", "local.epochs": 2})


def federation(**changes: Any) -> dict[str, Any]:
    base = {
        "id": "fed_1", "name": "a b", "state": "running", "recipe": "feddf", "round": 2, "rounds_total": 2,
        "clients": 1,
        "created_at": "2026-01-01T00:00:00Z", "task": {"num_classes": 10, "input": {"shape": [1]}},
        "prototypes": [{"architecture": "mlp"}], "composition": {"name": "feddf"}, "local": {}, "rounds": {"total": 2},
        "datasets": {"test": "dst_1"}, "seed": 7,
    }  # fmt: skip
    return base | changes


def round_(index: int, state: str = "published", **changes: Any) -> dict[str, Any]:
    metrics = {
        "accuracy": 0.5 + index / 10,
        "model": {"measures": {"main": {"accuracy": 0.5 + index / 10, "by_class": [0.1]}}},
        "ensemble": {"accuracy": 0.75},
    }
    base = {
        "id": f"rnd_{index}", "federation_id": "fed_1", "index": index, "state": state, "asked": 3, "answered": 2,
        "needed": 2, "min_updates": 1, "size": 2048, "opened_at": "2026-01-01T00:00:00Z",
        "deadline_at": "2026-01-01T01:00:00Z", "metrics": metrics,
    }  # fmt: skip
    published = {"published_at": f"2026-01-01T00:0{index}:00Z"} if state == "published" else {}
    return base | published | changes


def events(folder: Path) -> dict[tuple[str, int], tuple[float, float]]:
    """Return tag and step -> value and time, each of which is there once."""
    found: dict[tuple[str, int], tuple[float, float]] = {}
    for file in folder.glob("events.*"):
        data = file.read_bytes()
        while data:
            size = int.from_bytes(data[:8], "little")
            event = Event.FromString(data[12 : 12 + size])
            for each in event.summary.value:
                if each.HasField("simple_value"):
                    assert (each.tag, event.step) not in found
                    found[each.tag, event.step] = each.simple_value, event.wall_time
            data = data[16 + size :]
    return found


def test_a_round_is_told_by_what_the_task_is_measured_by() -> None:
    point = point_of(Round.model_validate(round_(1)), "accuracy")
    assert point.figures == {
        "accuracy": 0.6, "ensemble_accuracy": 0.75, "main/accuracy": 0.6, "asked": 3, "participants": 2, "lost": 0,
        "update_bytes": 2048, "seconds": 60,
    }  # fmt: skip
    assert (point.round, point.seconds) == (1, 1_767_225_660)


def test_parameters_are_the_leaves_of_what_was_asked_for() -> None:
    run = run_of(Federation.model_validate(federation()))
    assert (run.key, run.name) == ("fed_1", "a b")
    parameters = run.parameters
    assert parameters["seed"] == 7 and parameters["recipe"] == "feddf" and parameters["rounds.total"] == 2
    assert parameters["prototypes.0.architecture"] == "mlp" and parameters["task.input.shape"] == "[1]"
    assert dict(flat({"a": None, "b": {"c": [1, 2]}, "d": True})) == {"b.c": "[1, 2]", "d": True}


def test_tensorboard_has_every_figure_once_also_after_a_kill(tmp_path: Path) -> None:
    board = Board(tmp_path)
    assert board.write(RUN, [Point(0, {"accuracy": 0.25}, 10.0), Point(1, {"accuracy": 0.5, "of main": 1.0})]) == 2
    assert board.write(RUN, [Point(1, {"accuracy": 0.5})]) == 0
    board.end(RUN)
    (file,) = (tmp_path / "a").glob("events.*")
    assert b"local.epochs" in file.read_bytes(), "the parameters, for the tab HParams"
    file.write_bytes(file.read_bytes()[:-3])  # killed while it wrote the last figure
    again = Board(tmp_path)
    assert again.write(RUN, [Point(1, {"accuracy": 0.5, "of main": 1.0}), Point(2, {"accuracy": float("nan")})]) == 2
    again.end(RUN)
    third = Board(tmp_path)
    assert third.write(RUN, [Point(2, {"accuracy": float("nan")})]) == 0
    third.end(RUN)
    assert len(list((tmp_path / "a").glob("events.*"))) == 2, "no file without anything in it"
    wanted = [("accuracy", 0), ("accuracy", 1), ("accuracy", 2), ("of_main", 1)]
    assert sorted(scalars(tmp_path / "a")) == wanted
    with pytest.raises(CliError, match="holds another run"):
        Board(tmp_path).write(TrackedRun("fed_2", "potstill", "a"), [])


def test_a_federation_is_exported_once(service: Service, tmp_path: Path) -> None:
    service.on("GET", "/v1/federations/fed_1", federation(state="finished"))
    service.on("GET", "/v1/federations/fed_1/events", {"items": [], "next": 5})
    service.on("GET", "/v1/federations/fed_1/rounds", {"items": [round_(1), round_(2, "failed")], "next": None})
    command = ("export", "tensorboard", "fed_1", str(tmp_path / "board"))
    assert "1 rounds are new" in call(*command).output
    assert "0 rounds are new" in call(*command, "--follow").output, "it is over: nothing more is waited for"
    value, seconds = events(tmp_path / "board" / "a_b")["accuracy", 1]
    assert value == pytest.approx(0.6) and seconds == 1_767_225_660


class Running:
    """A federation that goes on with every event."""

    def __init__(self) -> None:
        self.state, self.there, self.asked = "running", [round_(1), round_(2, "collecting")], list[str | None]()

    def federation(self, federation_id: str) -> Federation:
        return Federation.model_validate(federation(state=self.state))

    def rounds(self, federation_id: str, *, after: str | None) -> Page[Round]:
        self.asked.append(after)
        left = [each for each in self.there if after is None or each["id"] > after]
        cursor = left[0]["id"] if len(left) > 1 else None  # a page of one
        return Page[Round].model_validate({"items": left[:1], "next": cursor})

    def event_page(self, federation_id: str, *, newest: int) -> SimpleNamespace:
        return SimpleNamespace(next=5)

    def events(self, federation_id: str, *, after: int) -> Iterator[SimpleNamespace]:
        assert after == 5
        yield SimpleNamespace(kind="update.received")
        self.there[1:] = [round_(2), round_(3, "collecting")]
        yield SimpleNamespace(kind="round.published")
        self.there[2:] = [round_(3, "skipped", closed_at="2026-01-01T00:09:00Z")]
        yield SimpleNamespace(kind="round.skipped")
        self.state = "failed"
        yield SimpleNamespace(kind="federation.failed")
        raise AssertionError("it is over")


class Kept:
    """A place that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[list[int]] = []
        self.ended: list[bool] = []

    def write(self, run: TrackedRun, points: Iterable[Point]) -> int:
        self.told.append([each.round for each in points])
        return len(self.told[-1])

    def end(self, run: TrackedRun, *, failed: bool = False) -> None:
        self.ended.append(failed)


def test_a_federation_is_followed_to_its_end() -> None:
    client, kept = Running(), Kept()
    copy = Copy(client, "fed_1", kept)  # type: ignore[arg-type]
    copy.follow()
    assert kept.told == [[1], [2], [3], []] and copy.rounds == 3
    assert client.asked == [None, "rnd_1", "rnd_1", "rnd_2", "rnd_2", "rnd_3"], "what is over is not read again"
    assert kept.ended == [True]


@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning")
def test_mlflow_has_every_figure_once(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    from potstill.tracking.flow import Flow

    uri = f"sqlite:///{tmp_path / 'flow.db'}"
    points = [Point(0, {"accuracy": 0.25}, 10.0), Point(1, {"accuracy": 0.5, "main/accuracy": 1.0}, 20.0)]
    many = {f"p{number}": "x" * 7000 for number in range(120)}
    run = TrackedRun("fed_1", "potstill", "a", {**RUN.parameters, **many})
    assert Flow(uri).write(run, points[:1]) == 1
    flow = Flow(uri)
    assert (flow.write(run, points), flow.write(run, points)) == (1, 0)
    flow.end(run, failed=True)
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("potstill")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    assert (found.info.run_name, found.info.status) == ("a", "FAILED")
    assert len(found.data.params) == 122 and found.data.params["local.epochs"] == "2"
    history = client.get_metric_history(found.info.run_id, "accuracy")
    assert sorted((each.step, each.value, each.timestamp) for each in history) == [(0, 0.25, 10_000), (1, 0.5, 20_000)]
    with pytest.raises(CliError, match="MLflow at sqlite"):
        flow.write(TrackedRun("fed_2", "potstill", "b", {"no*name": 1}), points)


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "potstill.tracking.board", None)
    with pytest.raises(CliError, match="tracking"):
        sinks(tmp_path, None)
