"""What simulations write for TensorBoard: a run a recipe and seed, or a cell, once."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from potstill.cli import app
from potstill.console import CliError
from potstill.tracking.board import Board, scalars
from potstill.tracking.runs import Point, TrackedRun

from .small import samples


def simulate(tmp_path: Path, *more: object, rounds: int = 1, code: int = 0) -> str:
    inputs, labels = samples(0, 240)
    np.savez(tmp_path / "mine.npz", x=inputs, y=labels)
    command = [
        "simulate", "--data", tmp_path / "mine.npz", "--clients", 2, "--rounds", rounds, "--local", "epochs=1",
        "--out", tmp_path / "out", "--tensorboard", tmp_path / "board", *more,
    ]  # fmt: skip
    done = CliRunner().invoke(app, [*map(str, command)])
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.parametrize(
    ("more", "names"),
    [
        (("--seeds", "3,4", "--alpha", 1), ["fedavg,seed=3", "fedavg,seed=4"]),
        (("--seeds", "3-3", "--alpha", "1,9"), ["alpha=1,recipe=fedavg,seed=3", "alpha=9,recipe=fedavg,seed=3"]),
    ],
)
def test_each_run_is_written_once(tmp_path: Path, more: tuple[object, ...], names: list[str]) -> None:
    board = tmp_path / "board"
    simulate(tmp_path, *more)
    simulate(tmp_path, *more)
    assert sorted(each.name for each in board.iterdir()) == names
    for name in names:
        (file,) = (board / name).glob("events.*")
        assert b"clients" in file.read_bytes(), "the settings, for the tab HParams"
        found = Counter(scalars(board / name))
        assert set(found.values()) == {1}
        assert {("accuracy", 0), ("accuracy", 1), ("loss", 1), ("participants", 1)} <= set(found)
        assert not any(tag == "round" for tag, _ in found)


@pytest.mark.parametrize("more", [("--seeds", "3-3"), ("--seeds", "3-3", "--alpha", "1,9")])
def test_rounds_are_there_while_a_run_goes_on(
    tmp_path: Path, more: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is stopped after a round has it on the board; the same command goes on and writes the rest once."""
    board, write = tmp_path / "board", Board.write

    def stopped(self: Board, run: TrackedRun, points: Iterable[Point]) -> int:
        given = list(points)
        write(self, run, given)
        if given[-1].round == 2:
            assert {step for _, step in scalars(board / run.name)} == {0, 1, 2}, "it is there before the file is closed"
            self.end(run)
            raise KeyboardInterrupt
        return len(given)

    with monkeypatch.context() as patch:
        patch.setattr(Board, "write", stopped)
        simulate(tmp_path, *more, rounds=3, code=1)
    (name,) = (each.name for each in board.iterdir())
    simulate(tmp_path, *more, rounds=3)
    assert {step for _, step in scalars(board / name)} == {0, 1, 2, 3}
    assert set(Counter(scalars(board / name)).values()) == {1}


def test_a_place_that_is_away_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, calls = Board.write, list[int]()

    def away(self: Board, run: TrackedRun, points: Iterable[Point]) -> int:
        calls.append(len(list(points)))
        if len(calls) < 3:
            raise CliError("the board is away")
        return write(self, run, points)

    monkeypatch.setattr(Board, "write", away)
    said = simulate(tmp_path, "--seeds", "3-3", rounds=2)
    assert said.count("the board is away; it is tried again when the run is done") == 1
    assert {step for _, step in scalars(tmp_path / "board" / "fedavg,seed=3")} == {0, 1, 2}
    assert calls == [2, 1, 3]
