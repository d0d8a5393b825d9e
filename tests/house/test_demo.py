"""The demo itself: one run of everything real, with D1's bars for its seed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from experiments.evidence.bars import judge
from potstill.demo.experiment import Outcome

from .requirements import closure, foreign_modules, made, without

ROOT = Path(__file__).parents[2]
JUDGED = {
    "FedGO plain odds minus FedDF",
    "FedGO plain odds minus FedAvg",
    "FedGO double sigmoid minus FedDF",
    "FedGO double sigmoid minus FedAvg",
    "FedGO plain odds, last three rounds",
    "FedGO plain odds, first round with 80 %",
}


@pytest.mark.slow
@pytest.mark.timeout(420)
@pytest.mark.parametrize("rounds", [3, pytest.param(10, marks=pytest.mark.chaos)], ids=["daily", "as it stands"])
def test_demo_shows_the_methods_side_by_side(tmp_path: Path, rounds: int) -> None:
    """Three rounds of each method are too few for its bars; all that is around them is there."""
    report = tmp_path / "report"
    command = [sys.executable, "-m", "potstill", "demo", "--report", str(report), "--rounds", str(rounds)]
    [extras] = made("demo", tmp_path / "venv")
    installed = without(foreign_modules(closure(set(extras.split(",")))), tmp_path / "missing")
    path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=400
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    assert {path.name for path in report.iterdir()} == {
        "accuracy.png", "accuracy.csv", "table.md", "results.json", "logs",
    }  # fmt: skip
    assert len(list((report / "logs").glob("device-*.log"))) == 10

    found = json.loads((report / "results.json").read_text())["outcomes"]
    outcomes = [Outcome(o["method"], o["label"], o["seed"], o["accuracies"]) for o in found]
    assert [len(outcome.accuracies) for outcome in outcomes] == [rounds] * 4
    if rounds == 10:
        verdicts = {verdict.what: verdict for verdict in judge(outcomes)}
        assert verdicts.keys() == JUDGED
        assert [v.what for v in verdicts.values() if not v.held] == []

    asked = [[sorted(p["name"] for p in r["participants"]) for r in o["rounds"]] for o in found]
    assert all(rounds == asked[0] for rounds in asked), "every method is judged on the same participation"
    left = [p.pid for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or [])]
    assert not left


def test_a_foreign_folder_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    command = [sys.executable, "-m", "potstill", "demo", "--report", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert "choose another with --report" in result.stderr
    assert (tmp_path / "thesis.txt").read_text() == "mine"
