"""Metrics of a plan: a package's and potstill's own, measured of published models, and refused where they cannot be."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from contract.bodies import stored
from contract.wire.plans import RoundsPlan
from potstill import exits
from potstill.cli import app
from potstill.simulate.config import SimulationError, resolve
from potstill.simulate.engine import Simulation
from tests.simulate.small import body, config
from worker.building import Builder
from worker.specs import Datasets

from .conftest import Packages

BOTH = [{"kind": "acme-brier"}, {"kind": "calibration", "bins": 5}]


def simulated(folder: Path, metrics: Any, **more: Any) -> Simulation:
    rounds = {"total": 1, "clients_per_round": 3, "min_updates": 3, "metrics": metrics}
    return Simulation(config(folder, body_=body(rounds=rounds), **more))


def test_figures_stand_beside_the_accuracy_and_change_no_model(acme: Packages, tmp_path: Path) -> None:
    measured, plain = simulated(tmp_path / "one", BOTH).run(), simulated(tmp_path / "two", []).run()
    further = measured.rounds[0].metrics["further"]
    assert {kind: list(values) for kind, values in further.items()} == {"acme-brier": ["main"], "calibration": ["main"]}
    assert 0 < further["acme-brier"]["main"] < 2
    assert 0 <= further["calibration"]["main"] <= 1
    assert measured.rounds[0].digests == plain.rounds[0].digests
    assert "further" not in plain.rounds[0].metrics


def test_the_plan_says_of_which_package_and_reads_what_is_gone(acme: Packages) -> None:
    plan = RoundsPlan.model_validate({"metrics": BOTH})
    assert [each.package for each in plan.metrics] == ["acme-rules 1.0", ""]
    text = plan.model_dump_json()
    acme.remove()
    assert stored(RoundsPlan, text).model_dump_json() == text
    assert "pip install 'acme-rules==1.0'" in stored(RoundsPlan, text).metrics[0].lacking
    with pytest.raises(ValidationError, match="acme-brier"):
        RoundsPlan.model_validate_json(text)
    assert "metrics" not in RoundsPlan().model_dump()


def test_the_first_job_looks_for_a_metric_s_package(acme: Packages, tmp_path: Path) -> None:
    resolved = simulated(tmp_path / "one", BOTH).config
    spec = Builder(resolved, 1, Datasets()).initialize({}, tmp_path)
    assert [each.model_dump() for each in spec.packaged] == [
        {"slot": "rounds.metrics", "kind": "acme-brier", "package": "acme-rules 1.0"}
    ]


@pytest.mark.parametrize(
    ("metrics", "sets", "words"),
    [
        (BOTH, (), "rounds.metrics: are measured on datasets.test"),
        ([{"kind": "acme-brier"}] * 2, ("test",), "a kind is there twice"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    acme: Packages, tmp_path: Path, metrics: Any, sets: tuple[str, ...], words: str
) -> None:
    numbers = np.random.default_rng(1)
    server = {name: (numbers.normal(size=(6, 6)).astype(np.float32), np.arange(6) % 3) for name in sets}
    with pytest.raises((SimulationError, ValidationError), match=words):
        simulated(tmp_path / "one", metrics, server=server)


def test_a_metric_of_another_kind_of_task_is_refused(acme: Packages, tmp_path: Path) -> None:
    task = {"kind": "multilabel", "num_classes": 3, "input": {"shape": [6]}}
    request = body(task=task, rounds={"total": 1, "min_updates": 3, "metrics": [{"kind": "acme-brier"}]})
    with pytest.raises(SimulationError, match="rounds.metrics.0: 'acme-brier' measures classification; leave it out"):
        resolve(config(tmp_path / "one", body_=request))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("self.total / self.count * float('nan')", "its figure is no finite number"),
        ("self.last", "it hangs on how samples are cut into batches"),
    ],
)
def test_an_unsound_metric_is_told(packages: Packages, tmp_path: Path, change: str, words: str) -> None:
    path = tmp_path / "metric.py"
    path.write_text(
        "from typing import Literal\n"
        "from contract.metrics import MetricChoice\n"
        "from worker.registry import implements\n\n"
        'class Mine(MetricChoice):\n    """A figure."""\n\n    kind: Literal["acme-mine"] = "acme-mine"\n\n'
        "@implements(Mine)\nclass Figure:\n"
        "    def __init__(self, choice, task):\n        self.total, self.count, self.last = 0.0, 0, 0.0\n\n"
        "    def add(self, outputs, labels):\n"
        "        self.last = float(outputs.sum())\n        self.total += self.last\n"
        "        self.count += len(labels)\n\n"
        f"    def value(self):\n        return {change}\n"
    )
    done = CliRunner().invoke(app, ["plugin", "check", str(path)])
    assert done.exit_code == exits.WRONG, done.output
    assert words in done.output.replace("\n", " ")
