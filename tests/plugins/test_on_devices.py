"""Metrics that devices measure: those of packages that they have, told beside the task's own and by how many."""

from pathlib import Path
from typing import Any

import pytest
import torch

from client_sdk import metrics
from client_sdk.data import load
from client_sdk.measuring import measure
from contract.bodies import stored
from contract.evaluation import Evaluate, Evaluation
from potstill.simulate.config import SimulationError, resolve
from potstill.simulate.engine import Simulation
from service.domain.evaluation import of_models
from tests.simulate.small import body, config

from .conftest import Packages, Rows, files, points

BOTH = [{"kind": "acme-brier"}, {"kind": "calibration", "bins": 5}]
LACKS = "rounds.metrics 'acme-brier' is of the package acme-rules 1.0, which is not installed here; pip install "


def planned(evaluate_metrics: Any, **more: Any) -> Any:
    return body(rounds={"total": 1, "min_updates": 3, "evaluate": {"share": 0.2, "metrics": evaluate_metrics}}, **more)


def test_devices_measure_and_the_round_says_how_many(acme: Packages, tmp_path: Path) -> None:
    record = Simulation(config(tmp_path / "one", body_=planned(BOTH))).run().rounds[0]
    told = record.metrics["evaluation"]["main"]
    assert told["further"] == dict.fromkeys(("acme-brier", "calibration"), told["devices"])
    brier, plain = told["figures"]["acme-brier"], planned([])
    assert 0 < brier["median"] <= brier["worst_decile"] < 2  # less is better: the worst have more
    other = Simulation(config(tmp_path / "two", body_=plain)).run().rounds[0]
    assert record.digests == other.digests
    assert "further" not in other.metrics["evaluation"]["main"]


def samples() -> Any:
    found = load((torch.randn(6, 6, generator=torch.Generator().manual_seed(1)).numpy(), torch.arange(6).numpy() % 3))
    found.check(body().task)
    return found


def test_a_device_without_the_package_tells_the_rest(acme: Packages) -> None:
    text = Evaluate.model_validate({"metrics": BOTH}).model_dump_json()
    whole = measure(
        torch.nn.Linear(6, 3), samples(), torch.device("cpu"), batch_size=4, further=stored(Evaluate, text).metrics
    )
    acme.remove()
    plan = stored(Evaluate, text)
    found = measure(torch.nn.Linear(6, 3), samples(), torch.device("cpu"), batch_size=4, further=plan.metrics)
    assert whole.keys() - found.keys() == {"acme-brier"}
    assert [why.startswith(LACKS) for why in metrics.missing(plan.metrics)] == [True]
    acme.acme("1.1")
    (why,) = metrics.missing(stored(Evaluate, text).metrics)
    assert why.endswith("acme-rules 1.0 is asked for, and acme-rules 1.1 is installed here; install the former")


def test_the_privacy_rule_is_that_of_other_figures(acme: Packages) -> None:
    privacy = {"noise_multiplier": 1.0, "delta": 1e-5}
    plan = resolve(config_of(planned(BOTH, local={"privacy": privacy})))
    told = {f"d{n}": Evaluation(num_samples=4, metrics={"accuracy": 0.5}) for n in range(5)}
    told["d0"] = Evaluation(num_samples=4, metrics={"accuracy": 0.5, "acme-brier": 0.25})
    figures = of_models({"main": told}, plan)["main"]
    assert figures["figures"].keys() == {"accuracy"}  # one device's figure is not shown
    assert figures["further"] == {"acme-brier": 1, "calibration": 0}


def config_of(request: Any) -> Any:
    return config(Path("unused"), body_=request)


@pytest.mark.parametrize(
    ("asked", "old", "new", "words"),
    [
        (["acme-brier"] * 2, "", "", "a kind is there twice"),
        (["acme-brier"], '"acme-brier"', '"accuracy"', "'acme-brier'"),
        (
            ["acme-brier"],
            ', device="acme_rules.devices")\n    higher',
            ")\n    higher",
            "says of no module what devices do",
        ),
    ],
)
def test_what_devices_cannot_measure_is_refused(
    packages: Packages, rows: Rows, asked: list[str], old: str, new: str, words: str
) -> None:
    packages.install("acme-rules", files() | {"acme_rules/rows.py": rows(old, new)}, points())
    with pytest.raises((SimulationError, ValueError), match=words):
        resolve(config_of(planned([{"kind": kind} for kind in asked])))


def test_a_figure_of_the_task_itself_is_refused(packages: Packages, rows: Rows) -> None:
    text = rows('"acme-brier"', '"accuracy"')
    one = "rounds.metrics.accuracy = acme_rules.rows:MetricBrier\n"
    packages.install("acme-rules", files() | {"acme_rules/rows.py": text}, one)
    with pytest.raises(SimulationError, match="rounds.evaluate.metrics.0: 'accuracy' is a figure of the task itself"):
        resolve(config_of(planned([{"kind": "accuracy"}])))
