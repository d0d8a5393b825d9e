"""Experiment D1 over several seeds through the real service, and its section of the evidence page."""

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from experiments.evidence import page as pages
from experiments.evidence.bars import by_method, judge
from experiments.evidence.page import verdict_table
from experiments.evidence.verdicts import Verdict
from potstill.console import out, print_table
from potstill.demo import report as reports
from potstill.demo.experiment import ENV, Outcome, run_methods
from potstill.demo.methods import METHODS, Setting
from potstill.demo.service import LocalService

TEXT = """\
scikit-learn's digits (real scans, 8 x 8): 355 test images, 719 unlabelled images on the server, 723 on ten
devices, split by Dirichlet(0.1). Four devices a round, {rounds} rounds, ten local epochs (Adam 1e-3, batch 32),
ten distillation epochs (Adam 1e-3, batch 64) on pseudo-labels made once a round; the student starts from the
average. Generator: MLP, WGAN-GP, 300 steps on the server images. Discriminators: 30 epochs, Adam 1e-3 (0.5,
0.999), batch 32. Everything ran through the service: HTTP, worker, device processes. {command} repeats it; seeds
{seeds}, {minutes:.0f} minutes.

Differences are paired (same split, initial weights, participation) and in percentage points of test accuracy, mean
over the rounds, then over the seeds (± one standard deviation over seeds). "Reference" is a separate
implementation that set the bars. A seed takes more than a minute, so there are few and bars are on means: in how many
of so few seeds something shows would be no bar.

{verdicts}
Accuracy in percent, mean over seeds, after each round:

{table}
![accuracy per round](img/evidence-digits.png)

Not claimed: FedDF is not above FedAvg on the digits ({feddf} against {fedavg}): teachers that never saw a class vote on
it like the others.

Variance weights are judged on logits, which is how FedGO describes that baseline. On probabilities, Fed-ET's own
definition, they are stronger: mean {variance} against {odds} of FedGO with plain odds and {double} with the double
sigmoid, last three rounds {variance_last} against {odds_last} and {double_last}. Entropy weights: mean {entropy},
last three {entropy_last}. So plain odds lead in the early rounds, the simpler weights catch up, and the capped
odds stay below them.

Single rounds swing by 5 to 10 points, so means over rounds are judged, never the best round.
"""


def averaged(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return one outcome a method: accuracies averaged over seeds, round by round."""
    result = []
    for key, by_seed in by_method(outcomes).items():
        runs = list(by_seed.values())
        curve = [mean(values) for values in zip(*(run.accuracies for run in runs), strict=True)]
        result.append(Outcome(key, runs[0].label, -1, curve))
    return result


def _figures(curves: Sequence[Outcome]) -> dict[str, str]:
    """Return the percentages that the page's text names; a dash for a method that was not run."""
    found = {curve.method: curve for curve in curves}
    names = {"variance": "variance-probs", "odds": "fedgo-sigmoid", "double": "fedgo-double", "entropy": "entropy"}
    figures = {}
    for name, method in {**names, "feddf": "feddf", "fedavg": "fedavg"}.items():
        curve = found.get(method)
        figures[name] = f"{100 * curve.mean:.1f} %" if curve else "–"
        figures[f"{name}_last"] = f"{100 * curve.last_three:.1f} %" if curve else "–"
    return figures


def write_page(outcomes: Sequence[Outcome], verdicts: Sequence[Verdict], page: Path, seconds: float) -> None:
    """Write D1's section of the page, and its plot."""
    picture = page.parent / "img" / "evidence-digits.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    curves = averaged(outcomes)
    seeds = sorted({outcome.seed for outcome in outcomes})
    reports.plot(curves, picture, f"Digits, ten devices, Dirichlet(0.1): mean of {len(seeds)} seeds")
    text = TEXT.format(
        rounds=len(curves[0].accuracies),
        command="`make evidence`",
        seeds=f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0]),
        minutes=seconds / 60,
        verdicts=verdict_table(verdicts),
        table=reports.markdown(curves),
        **_figures(curves),
    )
    pages.write(page, {"d1": text})


def run(seeds: Sequence[int], rounds: int, report: Path, page: Path, methods: Sequence[str] = tuple(METHODS)) -> int:
    """Run everything, print and write the table; return 0 when every bar held."""
    console = out()
    report.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="potstill-evidence-") as temporary:
        folder = Path(temporary)
        with LocalService(folder / "home", report / "logs" / "service.log", env=ENV) as service:
            for seed in seeds:
                console.print(f"seed {seed}", style="bold")
                logs = report / "logs" / f"seed-{seed}"
                setting = Setting(rounds, seed, suffix=f"-{seed}")
                outcomes += run_methods(service, methods, setting, folder=folder / str(seed), logs=logs)
                raw = json.dumps([outcome.as_dict() for outcome in outcomes], indent=2)
                (report / "results.json").write_text(raw + "\n")
    verdicts = judge(outcomes)
    write_page(outcomes, verdicts, page, time.monotonic() - start)
    rows = [[v.what, v.bar, v.ours, v.reference, str(v.held)] for v in verdicts]
    print_table(["quantity", "bar", "ours", "reference", "held"], rows)
    console.print(f"written: {page}; raw results: {report}")
    return 0 if all(verdict.held is not False for verdict in verdicts) else 1
