"""Rounds that do not wait against rounds that do, by a virtual clock: fifty devices, speeds over a factor of 30."""

from pathlib import Path
from statistics import mean
from typing import Any

from experiments.evidence import plots
from experiments.evidence.verdicts import Section, Setting, Verdict, spread
from potstill.simulate import experiment
from potstill.simulate.experiment import Run
from potstill.simulate.report import until
from potstill.simulate.settings import Experiment
from potstill.simulate.speeds import Pace, Speeds, waited_for

BUFFERED = {"mode": "buffered", "buffer": 10, "max_staleness": 20, "total": 40}
METHODS = {"fedavg": "fedavg", "fedgo": "fedgo-small"}
MODES: dict[str, dict[str, Any]] = {"synchronous": {}, "buffered": BUFFERED}
WHAT: dict[str, Any] = {
    "data": "digits",
    "clients": 50,
    "alpha": 0.3,
    "smallest": 5,
    "rounds": 8,
    "local": {"epochs": 5},
    "speeds": {"spread": 30, "dropout": 0.02},
}
TARGETS = (0.5, 0.6, 0.7, 0.8)
TEXT = """\
Scikit-learn's digits on fifty devices, Dirichlet(0.3), through `potstill simulate` ([speeds](simulate.md#speeds)):
95 % of the devices lie within a factor of 30 of each other, 2 % of the works are never delivered. Synchronous: eight
rounds that ask everybody. Buffered: forty models of ten updates ([rounds](rounds.md#rounds-that-do-not-wait)), so as
many updates in all. Seconds are of the virtual clock, to the first model that is so good.

A synchronous round lasts as long as its slowest device, or until a lost one is known to be lost; a buffer fills from
whoever is fast. {found}
"""
FOUND = """\
Most of the synchronous seconds are that patience, 120 s
(`heartbeat_seconds` x `lost_after`), in each round that loses a work; the last row is without it, and is what the
slowest devices cost alone. FedAvg gains from forty small steps in place of eight large ones, too. It is one seed: what
accuracies differ by is no evidence, what the clock says is.

What is compared is time, not updates: an update of a synchronous round is fresh and everybody's, one of a buffer is
often old, and slow devices have a smaller share. Take buffers where speeds differ much and the clock matters; rounds
that wait where updates are dear (bytes, batteries), where devices are alike, or where the slow ones hold what the
others lack."""


def experiment_of(seeds: int, first: int) -> Experiment:
    """Return what is compared."""
    recipes = [
        {"name": preset, "label": f"{method}, {mode}", "plan": plan}
        for method, preset in METHODS.items()
        for mode, plan in MODES.items()
    ]
    return Experiment.model_validate({**WHAT, "recipes": recipes, "seeds": seeds, "first_seed": first})


def measured(setting: Setting, folder: Path) -> dict[str, list[Run]]:
    """Return the runs of each arm, seed by seed; those that the folder has are read."""
    wanted, found = experiment_of(len(setting.seeds), setting.seeds[0]), dict[str, list[Run]]()
    for done in experiment.run(
        wanted,
        experiment.load(wanted),
        folder,
        on_run=lambda entry, seed: setting.progress(f"{entry.title}, seed {seed}"),
    ):
        found.setdefault(done.entry.title, []).append(done)
    return found


def run(setting: Setting) -> Section:
    """Compare FedAvg and FedGO in both kinds of round, by the clock."""
    return section(setting, measured(setting, setting.folder / "runs"))


def section(setting: Setting, runs: dict[str, list[Run]]) -> Section:
    """Return the table and the plot of some runs."""
    verdicts = [_time(runs, method, target) for method in METHODS for target in TARGETS]
    verdicts += [_last(title, group) for title, group in runs.items()]
    verdicts.append(_unbroken(runs[f"fedavg, {next(iter(MODES))}"]))
    curves = {title: _curve(group[0]) for title, group in runs.items()}
    more = {title: [_curve(run) for run in group[1:]] for title, group in runs.items()}
    path = setting.images / "evidence-buffered.png"
    axes = ("seconds of the virtual clock", "test accuracy (%)")
    picture = plots.lines(path, "digits, 50 devices, speeds over a factor of 30", curves, axes, log="x", faint=more)
    return Section(TEXT.format(found=FOUND), verdicts, {"accuracy by the virtual clock": picture})


def _curve(run: Run) -> tuple[list[float], list[float]]:
    told = [
        (each.clock, 100 * each.measured) for each in run.history.rounds if each.clock and each.measured is not None
    ]
    return [clock for clock, _ in told], [value for _, value in told]


def _time(runs: dict[str, list[Run]], method: str, target: float) -> Verdict:
    shown = []
    for mode in MODES:
        group = runs[f"{method}, {mode}"]
        times = [time for each in group if (time := until(each, target)) is not None]
        told = f"{mean(times):.0f} s{spread(times, 0)}" if len(times) == len(group) else f"{len(times)} of {len(group)}"
        shown.append(f"{told} {mode}")
    return Verdict(f"{method}: seconds to {100 * target:g} %", "–", ", ".join(shown), "–", None)


def _unbroken(group: list[Run]) -> Verdict:
    """Return how long the synchronous rounds would last if no work were lost."""
    found = []
    for run in group:
        sizes = {part.client: part.num_samples for each in run.history.rounds for part in each.participants}
        pace = Pace(Speeds.model_validate(WHAT["speeds"] | {"dropout": 0.0}), run.history.seed)
        samples = {name: size * run.config.local.epochs for name, size in sizes.items()}
        numbers = range(1, len(run.history.rounds) + 1)
        found.append(
            sum(waited_for(pace, run.config.rounds, number, samples, len(samples)).seconds for number in numbers)
        )
    said = f"{mean(found):.0f} s{spread(found, 0)}"
    return Verdict("eight synchronous rounds, if no work were lost", "–", said, "–", None)


def _last(title: str, group: list[Run]) -> Verdict:
    last = [100 * mean(run.history.measurements[-3:]) for run in group]
    clocks = [run.history.rounds[-1].clock or 0.0 for run in group]
    said = f"{mean(last):.1f} %{spread(last)} after {mean(clocks):.0f} s{spread(clocks, 0)}"
    return Verdict(f"{title}: last three models", "–", said, "–", None)
