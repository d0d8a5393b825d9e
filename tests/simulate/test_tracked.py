"""What simulations write for TensorBoard: a run a recipe and seed, or a cell, once."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from potstill.cli import app
from potstill.tracking.board import scalars

from .small import samples


def simulate(tmp_path: Path, *more: object) -> None:
    inputs, labels = samples(0, 240)
    np.savez(tmp_path / "mine.npz", x=inputs, y=labels)
    command = [
        "simulate", "--data", tmp_path / "mine.npz", "--clients", 2, "--rounds", 1, "--local", "epochs=1",
        "--out", tmp_path / "out", "--tensorboard", tmp_path / "board", *more,
    ]  # fmt: skip
    done = CliRunner().invoke(app, [*map(str, command)])
    assert done.exit_code == 0, done.output


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
