"""What an experiment leaves: a CSV of every round, a plot of what is measured, plots of who holds what, a table."""

import csv
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from contract.tasks import ACCURACY, TASKS, Metric, TaskKind
from contract.wire.report import Cost, FederationReport, TargetCost
from potstill.console import size
from potstill.demo.report import COLOURS
from potstill.drawing import as_markdown, axis, limits, scale, subplots, unit
from potstill.simulate.bands import half_width
from potstill.simulate.experiment import Dealt, Run
from potstill.simulate.history import RoundRecord

_AFTER = ("loss", "participants", "seconds", "clock")


def columns(metric: Metric, kind: TaskKind) -> list[str]:
    """Return the heading of the CSV: what the task is measured by, then the other figures of its kind."""
    return [
        "recipe", "seed", "round", metric.name, f"average_{metric.name}", f"ensemble_{metric.name}",
        *_others(metric, kind), *_AFTER,
    ]  # fmt: skip


def _others(metric: Metric, kind: TaskKind) -> list[str]:
    return [each.name for each in TASKS[kind].metrics if each.name != metric.name]


def figures(run: Run, record: RoundRecord) -> dict[str, float | int | None]:
    """Return a round's figures by the CSV's headings from `round` on; None where a recipe has no such figure.

    `average_…` is that of the averages before they are distilled, `loss` the participants' mean over their last
    epoch, weighted by their samples.
    """
    known = [each for each in record.participants if each.loss is not None]
    samples = sum(each.num_samples for each in known)
    loss = sum((each.loss or 0.0) * each.num_samples for each in known) / samples if samples else None
    others = [record.figure(name) for name in _others(run.metric, run.config.task.kind)]
    told = (record.index, record.measured, record.average_measured, record.ensemble_measured, *others, loss)
    after = (len(record.participants), record.seconds, record.clock)
    names = columns(run.metric, run.config.task.kind)[2:]
    return dict(zip(names, (*told, *after), strict=True))


def shown(name: str, value: float | int | None) -> str:
    """Return a figure as the CSV has it."""
    if value is None or isinstance(value, int):
        return "" if value is None else str(value)
    return f"{value:.3f}" if name in ("seconds", "clock") else f"{value:.6f}"


def row(run: Run, record: RoundRecord) -> list[Any]:
    """Return one line of the CSV; empty where a recipe has no such figure."""
    return [run.entry.title, run.seed, *(shown(name, value) for name, value in figures(run, record).items())]


def write_csv(runs: Sequence[Run], path: Path) -> None:
    """Write a line a round, the first models as round 0."""
    first = runs[0]
    with path.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(columns(first.metric, first.config.task.kind))
        for run in runs:
            writer.writerows(row(run, record) for record in (run.history.initial, *run.history.rounds))


def by_recipe(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return the runs of each recipe that were measured, in the order of the recipes."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        if run.history.measurements:
            found.setdefault(run.entry.title, []).append(run)
    return found


def picture(metric: Metric) -> str:
    """Return the name of the plot."""
    return f"{metric.name}.png"


def table(runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    """Return heading and rows: mean ± standard deviation over the seeds, shares in percent.

    Of a classification's accuracy there is nothing else; of other tasks the last round's other figures, too.
    """
    metric, kind = runs[0].metric, runs[0].config.task.kind
    others = [] if metric == ACCURACY and kind == "classification" else _others(metric, kind)
    heading = ["recipe", "seeds", "mean of rounds", "last 3", "last", "best", "ensemble, last"]
    heading += [*(f"{name}, last" for name in others), "s/round"]
    return heading, [
        [title, str(len(group)), *_row(group, metric), *(_other(group, TASKS[kind].metric(name)) for name in others),
         f"{fmean(record.seconds for run in group for record in run.history.rounds):.2f}"]
        for title, group in by_recipe(runs).items()
    ]  # fmt: skip


def _row(group: Sequence[Run], metric: Metric) -> list[str]:
    curves = [run.history.measurements for run in group]
    ensembles = [found for run in group if (found := run.history.rounds[-1].ensemble_measured) is not None]
    best = max if metric.higher_is_better else min
    shown: list[list[float]] = [
        [fmean(curve) for curve in curves], [fmean(curve[-3:]) for curve in curves], [curve[-1] for curve in curves],
        [best(curve) for curve in curves], ensembles,
    ]  # fmt: skip
    return [spread(values, metric) for values in shown]


def _other(group: Sequence[Run], metric: Metric) -> str:
    found = [run.history.rounds[-1].figure(metric.name) for run in group]
    return spread([each for each in found if each is not None], metric)


def spread(values: Sequence[float], metric: Metric) -> str:
    """Return mean ± standard deviation: percent with one digit behind the point, other values with four in all."""
    if not values:
        return "–"
    scaled = [scale(metric) * value for value in values]
    mean, form = fmean(scaled), ".1f" if metric.is_share else ".4g"
    return (
        f"{mean:{form}}"
        if len(scaled) < 2
        else f"{mean:{form}} ± {stdev(scaled):{'.1f' if metric.is_share else '.2g'}}"
    )


def markdown(runs: Sequence[Run]) -> str:
    """Return the table in Markdown."""
    return as_markdown(*table(runs))


def cost_table(runs: Sequence[Run], targets: Sequence[float]) -> tuple[list[str], list[list[str]]]:
    """Return heading and rows: what each recipe has cost, mean over its seeds, in all and until each target.

    Where a target was not reached with every seed, that is said instead.
    """
    metric = runs[0].metric if runs else ACCURACY
    named = "" if metric == ACCURACY else f"{metric.name} "
    shown = (f"{100 * target:g} %" if metric.is_share else f"{target:g}" for target in targets)
    heading = ["recipe", "in all", *(f"to {named}{value}" for value in shown)]
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


def has_clock(runs: Sequence[Run]) -> bool:
    """Whether all runs went by the virtual clock."""
    return bool(runs) and all(record.clock is not None for run in runs for record in run.history.rounds)


def until(run: Run, target: float) -> float | None:
    """Return the virtual seconds until a run first measured a value, or better; None where it never did."""
    good = (r for r in run.history.rounds if r.measured is not None and not run.metric.better(target, r.measured))
    return next((record.clock for record in good), None)


def time_table(runs: Sequence[Run], targets: Sequence[float]) -> tuple[list[str], list[list[str]]]:
    """Return heading and rows: virtual seconds to each target and in all, mean over the seeds.

    Where a target was not reached with every seed, that is said instead.
    """
    shown = (f"{100 * target:g} %" if runs[0].metric.is_share else f"{target:g}" for target in targets)
    rows = []
    for title, group in by_recipe(runs).items():
        found = [[until(run, target) for run in group] for target in targets]
        means = [_mean_or_count([each for each in times if each is not None], len(group)) for times in found]
        rows.append([title, *means, f"{fmean(run.history.rounds[-1].clock or 0.0 for run in group):.0f} s"])
    return ["recipe", *(f"to {value}" for value in shown), "in all"], rows


def _mean_or_count(times: Sequence[float], count: int) -> str:
    return f"{fmean(times):.0f} s" if len(times) == count else f"{len(times)} of {count} seeds"


def plot_times(runs: Sequence[Run], path: Path, title: str) -> None:
    """Draw what the task is measured by over the virtual clock: a line a seed, those of a recipe alike."""
    metric = runs[0].metric
    figure, axes = subplots(figsize=(8, 4.8))
    for (label, group), colour in zip(by_recipe(runs).items(), cycle(COLOURS[1:] + COLOURS[:1]), strict=False):
        for number, run in enumerate(group):
            told = [(r.clock, scale(metric) * r.measured) for r in run.history.rounds if r.measured is not None]
            named = {"label": label} if number == 0 else {}
            axes.plot(*zip(*told, strict=True), color=colour, linewidth=1.5, alpha=0.8, **named)
    axes.set(xlabel="seconds of the virtual clock", ylabel=axis(metric))
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="best")
    figure.savefig(path, dpi=130)


def _both(cost: Cost) -> int:
    return cost.files.down + cost.files.up


def plot_curves(runs: Sequence[Run], path: Path, title: str) -> None:
    """Draw what the task is measured by per round: the mean over seeds, shaded where it is with confidence 95 %."""
    from matplotlib.ticker import MaxNLocator

    metric, values = runs[0].metric, list[float]()
    figure, axes = subplots(figsize=(8, 4.8))
    for (label, group), colour in zip(by_recipe(runs).items(), cycle(COLOURS[1:] + COLOURS[:1]), strict=False):
        length = min(len(run.history.measurements) for run in group)
        curves = scale(metric) * np.array([run.history.measurements[:length] for run in group])
        rounds = range(1, length + 1)
        values += curves.ravel().tolist()
        middle, half = curves.mean(0), half_width(curves)
        mean = f"{curves.mean():{'.1f' if metric.is_share else '.4g'}}"
        axes.plot(rounds, middle, marker="o", markersize=4, linewidth=2, color=colour,
                  label=f"{label}  (mean {mean})")  # fmt: skip
        if len(group) > 1:
            axes.fill_between(rounds, middle - half, middle + half, color=colour, alpha=0.15, linewidth=0)
    limits(axes, values, metric)
    axes.set(xlabel="round", ylabel=axis(metric))
    axes.set_title(title, loc="left", fontsize=11)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="best")
    figure.savefig(path, dpi=130)


_NUMBERED = 500
"""Most squares of a plot that have their number written into them: each takes milliseconds."""


def plot_holdings(dealt: Dealt, path: Path, title: str) -> None:
    """Draw how many samples of each class, or other stratum, each client has; at most 100 clients are shown."""
    counts = dealt.holdings[:100]
    clients, classes = counts.shape
    size = (max(5.0, 0.42 * min(classes, 40) + 2.2), max(3.0, 0.26 * clients + 1.4))
    figure, axes = subplots(figsize=size)
    picture = axes.imshow(np.sqrt(counts), cmap="Blues", aspect="auto")
    if clients * classes <= _NUMBERED:
        for client, label in zip(*np.nonzero(counts), strict=True):
            dark = counts[client, label] > 0.45 * counts.max()
            axes.text(label, client, str(counts[client, label]), ha="center", va="center", fontsize=7,
                      color="white" if dark else "#333333", in_layout=False)  # fmt: skip
    axes.set(xlabel=dealt.dealt_by, ylabel="client", yticks=range(clients))
    axes.set_yticklabels([f"{name}  ({total})" for name, total in zip(dealt.clients, counts.sum(1), strict=False)])
    axes.tick_params(length=0, labelsize=8)
    axes.set_xticks(range(0, classes, max(1, classes // 20)))
    axes.set_title(title, loc="left", fontsize=11)
    ticks = [int(tick) for tick in np.unique(np.linspace(0, np.sqrt(counts.max()), 5).round())]
    bar = figure.colorbar(picture, ax=axes, label="samples", ticks=ticks, shrink=0.9)
    bar.ax.set_yticklabels([str(tick**2) for tick in ticks])
    figure.savefig(path, dpi=130)


def write(runs: Sequence[Run], folder: Path, title: str) -> None:
    """Write metrics.csv, and the plot and table.md where anything was measured."""
    write_csv(runs, folder / "metrics.csv")
    if by_recipe(runs):
        metric = runs[0].metric
        plot_curves(runs, folder / picture(metric), title)
        if has_clock(runs):
            plot_times(runs, folder / "time.png", title)
        said = f"Test {metric.name} in percent." if metric.is_share else f"Test {unit(metric)}."
        (folder / "table.md").write_text(f"# {title}\n\n{said}\n\n{markdown(runs)}", encoding="utf-8")
