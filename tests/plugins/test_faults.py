"""Code of a package that fails while it runs: whose it is, which choice, what it said, and what to do."""

from pathlib import Path
from typing import Any

import pytest

from client_sdk.errors import PackageFailed
from contract.bodies import stored
from contract.wire.plans import RoundsPlan
from potstill.simulate.engine import Simulation
from tests.simulate.small import LOCAL, body, config
from worker.specs import JobFailure

from .conftest import Packages, files, points

FUSE = {"name": "fedavg", "options": {"fuse": {"kind": "acme-midrange"}}}
WEIGH = {
    "name": "feddf",
    "options": {"weigh": {"kind": "acme-margin"}, "schedule": {"steps": 2, "batch_size": 8}},
}
RULES, DEVICES, FIGURES = (f"acme_rules/{name}.py" for name in ("rules", "devices", "figures"))
_REMEDY = "; mend or uninstall the package, or take another choice"


def simulated(packages: Packages, folder: Path, module: str, old: str, new: str, **request: Any) -> None:
    """Run a federation with the page's package, in which something is replaced."""
    page = files()
    assert old in page[module]
    packages.install("acme-rules", page | {module: page[module].replace(old, new)}, points())
    Simulation(config(folder / "run", body_=body(**request))).run()


_COUNTED = "return {name: 1 / len(clients) for name, _ in clients}"
_LOGS = "return choice.power * np.log(best[:, -1] - best[:, -2])"


@pytest.mark.parametrize(
    ("recipe", "old", "new", "said"),
    [
        (FUSE, _COUNTED, "raise KeyError('east')", "raised KeyError: 'east'"),
        (FUSE, _COUNTED, "raise OSError", "raised OSError"),
        (FUSE, _COUNTED, "return None", "returned NoneType, and what each client counted is a dict of its name"),
        (FUSE, _COUNTED, "return {'nobody': 1}", "counted 'nobody', which sent no update"),
        (
            FUSE,
            _COUNTED,
            "return {n: -1 for n, _ in clients}",
            "counted client .* as -1; a share is a finite number",
        ),
        (FUSE, "    reduce_files(", "    (lambda *_: 0)(", "made no file of model 'main'"),
        (FUSE, ") / 2)", ") * np.nan)", "made no model 'main': tensor .* the result is NaN"),
        (FUSE, ") / 2)", ")[:1])", r"made no model 'main': tensor .*: the rule gave shape \[1\] for \d+ values"),
        (WEIGH, _LOGS, "return best['x']", "raised IndexError: only integers"),
        (WEIGH, _LOGS, "return best", r"returned float64 \[\d+, 3\], and log weights are floats of shape \[\d+\]"),
        (WEIGH, _LOGS, "return [0.0]", "returned list, and log weights are floats"),
        (
            WEIGH,
            _LOGS,
            "return best[:, -1] * np.nan",
            r"returned NaN or \+inf, as of the logarithm",
        ),
    ],
)
def test_a_rule_that_fails_is_named(
    packages: Packages, tmp_path: Path, recipe: dict[str, Any], old: str, new: str, said: str
) -> None:
    choice = "fuse 'acme-midrange'" if recipe is FUSE else "distil.weigh 'acme-margin'"
    with pytest.raises(JobFailure, match=f"^{choice} of acme-rules 1.0 {said}.*{_REMEDY}$") as caught:
        simulated(packages, tmp_path, RULES, old, new, recipe=recipe)
    assert caught.value.code == "plugin_failed"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("self.count += len(labels)", "raise RuntimeError('no')", "raised RuntimeError: no"),
        ("return self.total / self.count", "return self.total / 0", "raised ZeroDivisionError: float division"),
        ("return self.total / self.count", "return 'much'", "measured str, which is no number"),
        ("self.total, self.count = 0.0, 0", "raise ValueError", "raised ValueError"),
    ],
)
def test_a_metric_that_fails_is_named(packages: Packages, tmp_path: Path, old: str, new: str, said: str) -> None:
    rounds = {"total": 1, "min_updates": 3, "metrics": [{"kind": "acme-brier"}]}
    with pytest.raises(
        JobFailure, match=f"^rounds.metrics 'acme-brier' of acme-rules 1.0 {said}.*{_REMEDY}$"
    ) as caught:
        simulated(packages, tmp_path, FIGURES, old, new, rounds=rounds)
    assert caught.value.code == "plugin_failed"


def test_a_metric_that_fails_is_named_on_the_device(packages: Packages, tmp_path: Path) -> None:
    rounds = {"total": 1, "min_updates": 3, "evaluate": {"share": 0.2, "metrics": [{"kind": "acme-brier"}]}}
    with pytest.raises(
        PackageFailed, match="^rounds.metrics 'acme-brier' of acme-rules 1.0 raised ZeroDivisionError: "
    ):
        simulated(packages, tmp_path, FIGURES, "return self.total / self.count", "return 1 / 0", rounds=rounds)


_LOSS = "return functional.cross_entropy(logits, labels, label_smoothing=self.options.share)"


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ("raise ValueError('odd\\nlabels')", r"raised ValueError: odd\\nlabels"),
        ("return 1.0", r"returned float from loss\(\), and a scalar tensor is wanted"),
        ("return logits.sum(dim=1)", r"returned shape \[\d+\] from loss\(\), and a scalar"),
        ("return logits.sum() * float('nan')", r"returned NaN from loss\(\) of finite numbers"),
    ],
)
def test_an_objective_that_fails_is_named_on_the_device(
    packages: Packages, tmp_path: Path, new: str, said: str
) -> None:
    local = LOCAL | {"objective": {"kind": "acme-smooth"}}
    named = f"^local.objective 'acme-smooth' of acme-rules 1.0 {said}.*{_REMEDY}. Nothing was uploaded$"
    with pytest.raises(PackageFailed, match=named):
        simulated(packages, tmp_path, DEVICES, _LOSS, new, local=local)


def test_what_another_version_stored_and_this_one_does_not_take_is_missing(packages: Packages) -> None:
    packages.acme()
    plan = RoundsPlan.model_validate({"metrics": [{"kind": "acme-brier"}]})
    text = plan.model_dump_json().replace('"acme-brier"', '"acme-brier","old":1')
    packages.remove()
    packages.acme("1.1")
    (found,) = stored(RoundsPlan, text).metrics
    assert found.lacking == (
        "rounds.metrics 'acme-brier' is of the package acme-rules 1.0, and acme-rules 1.1, which is installed here, "
        "does not take its old: there is no such field; pip install 'acme-rules==1.0', and start again"
    )
    assert stored(RoundsPlan, text).model_dump(mode="json")["metrics"] == [
        {"kind": "acme-brier", "old": 1, "package": "acme-rules 1.0"}
    ]
