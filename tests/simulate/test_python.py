"""Simulations from Python, as docs/simulate.md has them."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contract.tensors import TensorFile
from potstill import simulate
from potstill.console import CliError
from potstill.simulate.config import SimulationError

from .small import samples

PAGE = Path(__file__).parents[2] / "docs" / "simulate.md"
SMALL: dict[str, Any] = {"clients": 2, "rounds": 1, "local": {"epochs": 1}, "quiet": True}


def blocks() -> list[str]:
    section = PAGE.read_text().partition("## From Python")[2]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


@pytest.mark.usefixtures("own_choices")
def test_the_documented_lines_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lines, rules, *_ = blocks()
    assert rules.startswith("# rules.py")
    assert len([line for line in lines.splitlines() if line]) <= 11
    (tmp_path / "rules.py").write_text(rules)
    few = "clients=2, rounds=1, seeds=range(1), samples=60, test_samples=60, server_samples=40, local={'epochs': 1}"
    assert "clients=20, rounds=5, seeds=range(3)" in lines
    exec(compile(lines.replace("clients=20, rounds=5, seeds=range(3)", few), "docs", "exec"), {})  # noqa: S102
    shown = capsys.readouterr().out
    assert "| alpha | recipe | seeds |" in shown
    assert shown.count("feddf") == 2
    made = json.loads((tmp_path / "study" / "cells" / "alpha=1,recipe=feddf,seed=0.json").read_text())
    assert made["settings"]["recipe"]["options"] == {"weigh": {"kind": "my-margin"}}
    assert (tmp_path / "study" / "accuracy.png").exists()


def test_data_are_arrays_or_tensors_with_a_test_part_and_others_for_the_server(tmp_path: Path) -> None:
    x, y = samples(0, 120)
    given: dict[str, Any] = {"test": samples(1, 50), "server_data": samples(2, 30)[0], "seeds": [4]}
    first = simulate.run("feddf", (x, y), out=tmp_path / "arrays", **given, **SMALL)
    again = simulate.run(["feddf"], (torch.tensor(x), torch.tensor(y)), out=tmp_path / "tensors", **given, **SMALL)
    assert first.cells[0].models == again.cells[0].models
    assert first.rows[0]["varied"] == {"recipe": "feddf"} and first.rows[0]["seeds"] == [4]
    assert str(first).startswith("| recipe | seeds |")
    # Ten samples of the server's thirty: a tenth of what clients and server share.
    held = sorted((tmp_path / "arrays").glob("**/data/unlabeled.safetensors"))
    with TensorFile(held[0]) as file:
        inputs = file.read("inputs")
    assert len(inputs) == 12 and all((row == given["server_data"]).all(axis=1).any() for row in inputs)


def test_what_varies_is_given_as_a_list_and_more_of_it_joins(tmp_path: Path) -> None:
    data = samples(0, 150)
    told: dict[str, Any] = {"architecture": "mlp", "alpha": (1.0, 5.0), **SMALL}
    first = simulate.run("fedavg", data, out=tmp_path / "out", seeds=1, **told)
    assert [cell.varied for cell in first.cells] == [
        {"alpha": alpha, "recipe": "fedavg", "seed": 0} for alpha in (1.0, 5.0)
    ]
    with pytest.raises(SimulationError, match="holds another experiment: its seeds is 1, and 2 is asked for"):
        simulate.run("fedavg", data, out=tmp_path / "out", seeds=2, **told)
    more = simulate.run("fedavg", data, out=tmp_path / "out", seeds=2, resume=True, **told)
    assert [row["seeds"] for row in more.rows] == [[0, 1], [0, 1]]
    with pytest.raises(SimulationError, match="was made of other data"):
        simulate.run("fedavg", samples(9, 150), out=tmp_path / "out", seeds=2, resume=True, **told)


def test_what_cannot_be_said_is_told_by_name(tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match="test, users, strata: go with data that are a pair"):
        simulate.run("fedavg", "digits", out=tmp_path, users=np.arange(3))
    with pytest.raises(CliError, match="alhpa"):
        simulate.run("fedavg", out=tmp_path, alhpa=1)
    with pytest.raises(SimulationError, match="first_seed: give recipes, data and seeds by their own arguments"):
        simulate.run("fedavg", out=tmp_path, first_seed=1)
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        simulate.walk  # noqa: B018
