"""What an experiment leaves: a CSV of every round, a plot of the accuracies, plots of who holds what, a table."""

import csv
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from contract.wire.report import Cost, FederationReport, TargetCost
from potstill.console import size
from potstill.demo.report import COLOURS
from potstill.simulate.experiment import Dealt, Run
from potstill.simulate.history import RoundRecord

COLUMNS = (
    "recipe", "seed", "round", "accuracy", "average_accuracy", "ensemble_accuracy", "loss", "participants",
    "seconds",
)  # fmt: skip


def row(run: Run, record: RoundRecord) -> list[Any]:
    """Return one line of the CSV; empty where a recipe has no such figure.

    `average_accuracy` is that of the averages before they are distilled, `loss` the participants' mean over their last
    epoch, weighted by their samples.
    """
    average = (record.metrics.get("average") or {}).get("accuracy")
    told = [each for each in record.participants if each.loss is not None]
    samples = sum(each.num_samples for each in told)
    loss = sum((each.loss or 0.0) * each.num_samples for each in told) / samples if samples else None
    figures = (record.accuracy, average, record.ensemble_accuracy, loss)
    shown = ["" if figure is None else f"{figure:.6f}" for figure in figures]
    return [run.entry.title, run.seed, record.index, *shown, len(record.participants), f"{record.seconds:.3f}"]


def write_csv(runs: Sequence[Run], path: Path) -> None:
    """Write a line a round, the first models as round 0."""
    with path.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(COLUMNS)
        for run in runs:
            writer.writerows(row(run, record) for record in (run.history.initial, *run.history.rounds))


def by_recipe(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return the runs of each recipe that have accuracies, in the order of the recipes."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        if run.history.accuracies:
            found.setdefault(run.entry.title, []).append(run)
    return found


def table(runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    """Return heading and rows: percentages as mean ± standard deviation over the seeds."""
    heading = ["recipe", "seeds", "mean of rounds", "last 3", "last", "best", "ensemble, last", "s/round"]
    rows = []
    for title, group in by_recipe(runs).items():
        curves = [run.history.accuracies for run in group]
        ensembles = [found for run in group if (found := run.history.rounds[-1].ensemble_accuracy) is not None]
        seconds = fmean(record.seconds for run in group for record in run.history.rounds)
        rows.append([
            title, str(len(group)),
            _spread([fmean(curve) for curve in curves]), _spread([fmean(curve[-3:]) for curve in curves]),
            _spread([curve[-1] for curve in curves]), _spread([max(curve) for curve in curves]),
            _spread(ensembles) if ensembles else "–", f"{seconds:.2f}",
        ])  # fmt: skip
    return heading, rows


def _spread(values: Sequence[float]) -> str:
    mean = f"{100 * fmean(values):.1f}"
    return mean if len(values) < 2 else f"{mean} ± {100 * stdev(values):.1f}"


def markdown(runs: Sequence[Run]) -> str:
    """Return the table in Markdown."""
    return as_markdown(*table(runs))


def as_markdown(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; all but its first column are numbers."""
    lines = [heading, ["---", *["---:"] * (len(heading) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def cost_table(runs: Sequence[Run], targets: Sequence[float]) -> tuple[list[str], list[list[str]]]:
    """Return heading and rows: what each recipe has cost, mean over its seeds, in all and until each target.

    Where a target was not reached with every seed, that is said instead.
    """
    heading = ["recipe", "in all", *(f"to {100 * target:g} %" for target in targets)]
    heading += ["FLOPs, devices", "FLOPs, server"]
    groups: dict[str, list[FederationReport]] = {}
    for run in runs:
        found = run.costs(targets)
        if found is not None:
            groups.setdefault(run.entry.title, []).append(found)
    return heading, [_cost_row(title, group) for title, group in groups.items()]


def _cost_row(title: str, group: Sequence[FederationReport]) -> list[str]:
    reached = [_reached([each.targets[number] for each in group]) for number in range(len(group[0].targets))]
    flops = [each.total.flops for each in group if each.total.flops is not None]
    work = ["–", "–"]
    if len(flops) == len(group):
        devices = fmean(each.training + each.discriminators for each in flops)
        work = [f"{devices:.3g}", f"{fmean(each.labelling + each.distillation for each in flops):.3g}"]
    return [title, size(round(fmean(_both(each.total) for each in group))), *reached, *work]


def _reached(found: Sequence[TargetCost]) -> str:
    costs = [_both(each.cost) for each in found if each.cost is not None]
    return size(round(fmean(costs))) if len(costs) == len(found) else f"{len(costs)} of {len(found)} seeds"


def _both(cost: Cost) -> int:
    return cost.files.down + cost.files.up


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def plot_accuracies(runs: Sequence[Run], path: Path, title: str) -> None:
    """Draw test accuracy per round: the mean over seeds, shaded from the lowest to the highest."""
    plt = _pyplot()
    from matplotlib.ticker import MaxNLocator

    figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
    top = 0.0
    for (label, group), colour in zip(by_recipe(runs).items(), cycle(COLOURS[1:] + COLOURS[:1]), strict=False):
        length = min(len(run.history.accuracies) for run in group)
        curves = 100 * np.array([run.history.accuracies[:length] for run in group])
        rounds, top = range(1, length + 1), max(top, float(curves.max()))
        axes.plot(rounds, curves.mean(0), marker="o", markersize=4, linewidth=2, color=colour,
                  label=f"{label}  (mean {curves.mean():.1f})")  # fmt: skip
        if len(group) > 1:
            axes.fill_between(rounds, curves.min(0), curves.max(0), color=colour, alpha=0.15, linewidth=0)
    axes.set(xlabel="round", ylabel="test accuracy (%)", ylim=(0, min(100, 1.08 * top + 2)))
    axes.set_title(title, loc="left", fontsize=11)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="best")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def plot_holdings(dealt: Dealt, path: Path, title: str) -> None:
    """Draw how many samples of each class each client has; at most 100 clients are shown."""
    plt = _pyplot()
    counts = dealt.holdings[:100]
    clients, classes = counts.shape
    size = (max(5.0, 0.42 * min(classes, 40) + 2.2), max(3.0, 0.26 * clients + 1.4))
    figure, axes = plt.subplots(figsize=size, layout="constrained")
    picture = axes.imshow(np.sqrt(counts), cmap="Blues", aspect="auto")
    if clients * classes <= 1000:
        for client, label in zip(*np.nonzero(counts), strict=True):
            dark = counts[client, label] > 0.45 * counts.max()
            axes.text(label, client, str(counts[client, label]), ha="center", va="center", fontsize=7,
                      color="white" if dark else "#333333")  # fmt: skip
    axes.set(xlabel="class", ylabel="client", yticks=range(clients))
    axes.set_yticklabels([f"{name}  ({total})" for name, total in zip(dealt.clients, counts.sum(1), strict=False)])
    axes.tick_params(length=0, labelsize=8)
    axes.set_xticks(range(0, classes, max(1, classes // 20)))
    axes.set_title(title, loc="left", fontsize=11)
    ticks = [int(tick) for tick in np.unique(np.linspace(0, np.sqrt(counts.max()), 5).round())]
    bar = figure.colorbar(picture, ax=axes, label="samples", ticks=ticks, shrink=0.9)
    bar.ax.set_yticklabels([str(tick**2) for tick in ticks])
    figure.savefig(path, dpi=130)
    plt.close(figure)


def write(runs: Sequence[Run], folder: Path, title: str) -> None:
    """Write metrics.csv, and accuracy.png and table.md where there are accuracies."""
    write_csv(runs, folder / "metrics.csv")
    if by_recipe(runs):
        plot_accuracies(runs, folder / "accuracy.png", title)
        (folder / "table.md").write_text(
            f"# {title}\n\nTest accuracy in percent.\n\n{markdown(runs)}", encoding="utf-8"
        )
