"""D1's bars: what must show on the digits, as paired differences over seeds, and the verdict on a set of outcomes."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from experiments.evidence.verdicts import Verdict, spread
from potstill.demo.experiment import Outcome

Runs = dict[str, dict[int, Outcome]]


@dataclass(frozen=True)
class Bar:
    """Mean over seeds of (`ahead` minus `behind`) must reach `least` percentage points; `seen` in the reference."""

    ahead: str
    behind: str
    least: float
    seen: float


PAIRS = (
    Bar("fedgo-sigmoid", "feddf", 10, 21.5),
    Bar("fedgo-sigmoid", "fedavg", 6, 15.6),
    Bar("fedgo-sigmoid", "variance", 4, 11.5),
    Bar("fedgo-double", "feddf", 6, 13.7),
    Bar("fedgo-double", "fedavg", 3, 7.8),
    Bar("fedgo-double", "samples", 6, 13.2),
    Bar("fedgo-double", "untrained", 6, 12.4),
    Bar("variance", "feddf", 4, 10.1),
    Bar("entropy", "feddf", 7, 13.2),
)
LAST_THREE = ("fedgo-sigmoid", 80.0, 87.5)
REACHED = ("fedgo-sigmoid", 0.80, 7)  # this accuracy by this round, in the mean over seeds


def by_method(outcomes: Sequence[Outcome]) -> Runs:
    """Return the outcomes by method and seed."""
    runs: Runs = {}
    for outcome in outcomes:
        runs.setdefault(outcome.method, {})[outcome.seed] = outcome
    return runs


def _pair(runs: Runs, bar: Bar) -> Verdict:
    ahead, behind = runs[bar.ahead], runs[bar.behind]
    seeds = sorted(ahead.keys() & behind.keys())
    differences = [100 * (ahead[seed].mean - behind[seed].mean) for seed in seeds]
    difference = mean(differences)
    labels = [next(iter(run.values())).label for run in (ahead, behind)]
    what = f"{labels[0]} minus {labels[1]}"
    return Verdict(
        what,
        f"≥ +{bar.least:g}",
        f"{difference:+.1f}{spread(differences)}",
        f"{bar.seen:+.1f}",
        difference >= bar.least,
    )


def judge(outcomes: Sequence[Outcome]) -> list[Verdict]:
    """Return a verdict on each bar whose methods were run."""
    runs = by_method(outcomes)
    verdicts = [_pair(runs, bar) for bar in PAIRS if bar.ahead in runs and bar.behind in runs]
    method, least, seen = LAST_THREE
    if method in runs:
        values = [100 * outcome.last_three for outcome in runs[method].values()]
        label = next(iter(runs[method].values())).label
        ours = f"{mean(values):.1f} %{spread(values)}"
        verdicts.append(
            Verdict(f"{label}, last three rounds", f"≥ {least:g} %", ours, f"{seen} %", mean(values) >= least)
        )
        verdicts.append(_reached(runs))
    return verdicts


def _reached(runs: Runs) -> Verdict:
    method, accuracy, by = REACHED
    outcomes = list(runs[method].values())
    rounds = [outcome.reached(accuracy) for outcome in outcomes]
    never = max(by, *(len(outcome.accuracies) for outcome in outcomes)) + 1
    counted = [never if index is None else index for index in rounds]
    return Verdict(
        f"{outcomes[0].label}, first round with {100 * accuracy:g} %",
        f"≤ {by}",
        f"{mean(counted):.1f}{spread(counted)} (rounds {', '.join(str(index or '–') for index in rounds)})",
        "4",
        mean(counted) <= by,
    )
