"""Grids of experiments: which cells there are, what is kept of each, and what is told of all."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from potstill.console import CliError
from potstill.simulate.bands import half_width
from potstill.simulate.engine import Simulation
from potstill.simulate.sweeps import tables
from potstill.simulate.sweeps.grid import sweep_of
from potstill.simulate.sweeps.records import Record

from .small import simulate

TREE: dict[str, Any] = {"recipes": [{"name": "fedavg"}, {"name": "feddf"}], "seeds": 2}


def grid(mine: Path, out: Path, *more: object) -> Result:
    return simulate(
        "--data", mine, "--clients", 3, "--rounds", 2, "--seeds", "3-3", "--alpha", "0.5,5", "--recipe",
        "fedavg,feddf", "--local", "epochs=1", "--option", "schedule.epochs=1,2", "--out", out, *more,
    )  # fmt: skip


def lines(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


# ------------------------------------------------------------------------------------------------------------ the grid
def test_cells_are_every_combination_in_a_fixed_order() -> None:
    sweep = sweep_of(TREE | {"vary": {"alpha": [1.0, 0.1], "local.epochs": [1, 5]}, "seed_list": [4, 2]})
    names = [cell.name for cell in sweep.cells]
    assert len(names) == len(set(names)) == 16
    assert names[:3] == [
        "alpha=1,local.epochs=1,recipe=fedavg,seed=4",
        "alpha=1,local.epochs=1,recipe=feddf,seed=4",
        "alpha=1,local.epochs=1,recipe=fedavg,seed=2",
    ]
    assert names[-1] == "alpha=0.1,local.epochs=5,recipe=feddf,seed=2"
    last = sweep.cells[-1].point.experiment
    assert (last.alpha, last.local) == (0.1, {"epochs": 5})


def test_an_option_varies_where_a_recipe_has_it() -> None:
    cells = sweep_of(TREE | {"seeds": 1, "vary": {"option.schedule.epochs": [1, 2]}}).cells
    assert [cell.name for cell in cells] == [
        "recipe=fedavg,seed=0",
        "option.schedule.epochs=1,recipe=feddf,seed=0",
        "option.schedule.epochs=2,recipe=feddf,seed=0",
    ]
    assert cells[2].entry.options == {"schedule": {"epochs": 2}}


def test_names_that_cannot_be_files_differ_all_the_same() -> None:
    cells = sweep_of({**TREE, "seeds": 1, "vary": {"data": ["a/x.npz", "b/x.npz"], "server_data": [None, "é:*"]}}).cells
    names = [cell.name for cell in cells]
    assert len(set(names)) == 8
    assert all("/" not in name and ":" not in name and len(name) < 150 for name in names)


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ({"alhpa": [1, 2]}, "vary: alhpa: an experiment has nothing of that name"),
        ({"alpha": 3}, "vary: alpha: give a list of values"),
        ({"alpha": [1, 1.0]}, "vary: alpha: 1 is there twice"),
        ({"seeds": [1, 2]}, "'seeds', which takes several"),
        ({"recipe": ["fedavg"]}, "'recipes', which takes several"),
        ({"alpha": [-1]}, "alpha: Input should be greater than 0"),
        ({"option.nope": [1]}, "has no option 'nope'"),
        ("alpha", "give what varies and its values"),
    ],
)
def test_what_cannot_vary_is_told_by_name(vary: Any, message: str) -> None:
    with pytest.raises(CliError, match=message):
        sweep_of(TREE | {"vary": vary})


def test_networks_and_plans_of_rounds_vary() -> None:
    tree = TREE | {"prototypes": [{"architecture": "mlp", "options": {}}]}
    first, *_, last = sweep_of(
        tree | {"vary": {"architecture": ["mlp", "cnn-digits"], "plan.min_updates": [1, 2]}}
    ).points
    assert [each.experiment.prototypes[0].architecture for each in (first, last)] == ["mlp", "cnn-digits"]  # type: ignore[index]
    assert last.experiment.plan == {"min_updates": 2}


# ----------------------------------------------------------------------------------------------------- figures of cells
def record(seed: int, curve: list[float], **varied: Any) -> Record:
    rounds = [{"round": index, "accuracy": value, "seconds": 1.0} for index, value in enumerate([0.0, *curve])]
    told = {**varied, "recipe": "fedavg", "seed": seed}
    return Record(varied=told, metric=("accuracy", True, True), rounds=rounds, models={})


def test_the_band_is_the_confidence_of_the_mean_by_hand() -> None:
    """Of 1, 2, 3: s = 1, t(2, 0.975) = 4.302653, so half is 4.302653 / sqrt(3) = 2.484138; of one value nothing."""
    assert half_width([1.0, 2.0, 3.0]) == pytest.approx(2.484138)
    assert half_width([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]]) == pytest.approx([2.484138, 0.0])
    assert half_width([7.0]) == 0


def test_a_row_has_mean_and_deviation_over_its_seeds() -> None:
    rows = tables.rows_of(
        [record(0, [0.2, 0.4], alpha=0.1), record(0, [0.5], alpha=1), record(1, [0.4, 0.8], alpha=0.1)]
    )
    heading, shown = tables.table(rows)
    assert heading[:3] == ["alpha", "recipe", "seeds"]
    assert shown[0][:6] == ["0.1", "fedavg", "2", "45.0 ± 21.2", "45.0 ± 21.2", "60.0 ± 28.3"]
    assert shown[1][:6] == ["1", "fedavg", "1", "50.0", "50.0", "50.0"]
    first, second = tables.data(rows)
    assert first["varied"] == {"alpha": 0.1, "recipe": "fedavg"} and first["seeds"] == [0, 1]
    last = first["figures"]["last"]  # t(1, 0.975) = 12.7062, s / sqrt(2) = 0.2
    assert (last["mean"], last["high"] - last["mean"]) == pytest.approx((0.6, 12.7062 * 0.2))
    assert [each["mean"] for each in first["rounds"]] == pytest.approx([0.3, 0.6])
    assert second["figures"]["last"] == {"mean": 0.5, "std": None, "low": None, "high": None}


# ------------------------------------------------------------------------------------------------------ the whole way
def test_a_grid_goes_on_where_it_was_stopped(mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, tidy, calls = tmp_path / "out", Simulation._tidy, iter(range(100))

    def stopping(*given: Any) -> None:
        if next(calls) == 2:
            raise KeyboardInterrupt  # in the second cell, between its rounds
        tidy(*given)

    monkeypatch.setattr(Simulation, "_tidy", stopping)
    stopped = grid(mine, out)
    assert stopped.exit_code == 1
    assert "the same command goes on" in stopped.stderr
    (first,) = (out / "cells").iterdir()
    before = first.read_bytes()
    first.with_name("alpha=0.5,option.schedule.epochs=1,recipe=feddf,seed=3.part").write_bytes(before[:50])
    done = grid(mine, out)
    assert done.exit_code == 0, done.output
    assert "6 cells, 1 done" in done.output
    assert first.read_bytes() == before
    assert len(list((out / "cells").glob("*.json"))) == 6, "fedavg has no such option: 2 cells; feddf 2 x 2"
    shown = lines(out / "table.csv")
    assert [(line["alpha"], line["option.schedule.epochs"], line["recipe"], line["seeds"]) for line in shown] == [
        ("0.5", "", "fedavg", "1"), ("0.5", "1", "feddf", "1"), ("0.5", "2", "feddf", "1"),
        ("5", "", "fedavg", "1"), ("5", "1", "feddf", "1"), ("5", "2", "feddf", "1"),
    ]  # fmt: skip
    assert len(lines(out / "metrics.csv")) == 6 * 3
    assert "| alpha | option.schedule.epochs | recipe | seeds |" in (out / "table.md").read_text()
    assert len(json.loads((out / "table.json").read_text())) == 6
    assert (out / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    table = (out / "table.csv").read_bytes()
    assert "6 cells, 6 done" in grid(mine, out).output
    assert (out / "table.csv").read_bytes() == table

    refused = grid(mine, out, "--samples", 100)
    assert refused.exit_code == 1
    assert "was made with samples null, and 100 is asked for; choose another folder with --out" in refused.stderr


def test_a_point_of_a_grid_is_the_experiment_of_its_own(mine: Path, tmp_path: Path) -> None:
    told = ("--data", mine, "--clients", 3, "--rounds", 1, "--seeds", "1,5", "--local", "epochs=1")
    assert simulate(*told, "--alpha", "0.5,5", "--out", tmp_path / "grid").exit_code == 0
    assert simulate(*told, "--alpha", 5, "--out", tmp_path / "one").exit_code == 0
    for seed in (1, 5):
        home = Path(f"seed-{seed}") / "fedavg" / "rounds" / "00001" / "job"
        mine_, alone = (next((tmp_path / way / home).glob("*.safetensors")) for way in ("grid/runs/alpha=5", "one"))
        assert mine_.read_bytes() == alone.read_bytes()
    assert (lines(tmp_path / "one" / "table.csv")[0]["seeds"]) == "2"
    more = simulate("--resume", "--alpha", "5,7", "--out", tmp_path / "grid")
    assert "4 cells, 2 done" in more.output, more.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "4-"], "expected how many, such as 3, or which"),
        (["--seeds", "1,1"], "give each seed once"),
        (["--rounds", "3,x"], "rounds"),
        (["--local", "epochs=1,0"], "epochs: Input should be greater"),
        (["--alpha", "1,1.0"], "alpha: 1 is there twice"),
    ],
)
def test_lists_that_cannot_be_are_one_line_and_leave_nothing(
    arguments: list[str], message: str, mine: Path, tmp_path: Path
) -> None:
    refused = simulate("--data", mine, "--clients", 3, "--out", tmp_path / "out", *arguments)
    assert refused.exit_code == 1
    assert message in refused.stderr.replace("\n", " "), refused.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.chaos
def test_kills_at_any_moment_change_no_cell(mine: Path, tmp_path: Path) -> None:
    """The command is killed a little later each time, its processes with it, and given again; then once to its end."""
    told = ["--data", mine, "--clients", 4, "--rounds", 4, "--seeds", 2, "--alpha", "0.5,5", "--recipe", "scaffold"]
    command = [sys.executable, "-m", "potstill", "simulate", *told, "--processes", 2, "--out", tmp_path / "out"]
    for tenths in range(40, 140, 20):
        begun = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            if begun.wait(tenths / 10) == 0:
                break
            pytest.fail(f"it ended with {begun.returncode}")
        except subprocess.TimeoutExpired:
            begun.kill()
            begun.wait()
    assert simulate(*told, "--out", tmp_path / "out").exit_code == 0
    assert simulate(*told, "--out", tmp_path / "whole").exit_code == 0
    cells = [sorted((tmp_path / way / "cells").glob("*.json")) for way in ("out", "whole")]
    assert len(cells[0]) == 4
    for killed, whole in zip(*cells, strict=True):
        assert json.loads(killed.read_text())["models"] == json.loads(whole.read_text())["models"], killed.name
