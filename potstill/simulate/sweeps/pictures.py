"""Curves of a sweep: a panel for each combination, a line for each recipe, shaded with the confidence of the mean."""

from collections.abc import Sequence
from itertools import cycle
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from potstill import drawing
from potstill.demo.report import COLOURS
from potstill.simulate import report
from potstill.simulate.bands import SAID, half_width
from potstill.simulate.sweeps.grid import RECIPE, shown_of
from potstill.simulate.sweeps.tables import Row, axes_of

_ACROSS, _PANELS, _LINES = 3, 12, 8
Panels = dict[str, list[tuple[str, Row]]]


def draw(rows: Sequence[Row], out: Path, title: str) -> list[Path]:
    """Draw what is measured by round, a picture for each metric and twelve panels; return the files."""
    measured = [row for row in rows if row.curves and row.curves[0]]
    lines = _lines(measured)
    made = []
    for metric in dict.fromkeys(row.metric for row in measured):
        panels = list(_panels([row for row in measured if row.metric == metric], lines).items())
        for number, start in enumerate(range(0, len(panels), _PANELS), start=1):
            path = out / (report.picture(metric) if number == 1 else f"{metric.name}-{number}.png")
            _picture(dict(panels[start : start + _PANELS]), path, title)
            made.append(path)
    return made


def _lines(rows: Sequence[Row]) -> str:
    """Return what tells the lines of a panel apart: the recipe if there are several, else what varies first."""
    recipes = {row.varied[RECIPE] for row in rows}
    others = [name for name in axes_of(rows) if name != RECIPE]
    few = [name for name in others if len({shown_of(row.varied.get(name)) for row in rows}) <= _LINES]
    return RECIPE if len(recipes) > 1 or not few else few[0]


def _panels(rows: Sequence[Row], lines: str) -> Panels:
    """Return the lines by panel; a recipe without an option that varies is in each of its values' panels."""
    axes = [name for name in axes_of(rows) if name != lines]
    several = [name for name in axes if len({shown_of(row.varied[name]) for row in rows if name in row.varied}) > 1]
    whole = [row for row in rows if all(name in row.varied for name in several)]
    found: Panels = {}
    for values in dict.fromkeys(tuple(shown_of(row.varied[name]) for name in several) for row in whole):
        named = dict(zip(several, values, strict=True))
        title = ", ".join(f"{name} {value}" for name, value in named.items())
        for row in rows:
            own = {name: shown_of(row.varied[name]) for name in several if name in row.varied}
            if all(named[name] == value for name, value in own.items()):
                label = shown_of(row.varied[lines]) if lines in row.varied else "–"
                found.setdefault(title, []).append((label if lines == RECIPE else f"{lines} {label}", row))
    return found


def _picture(panels: Panels, path: Path, title: str) -> None:
    across = min(_ACROSS, len(panels))
    down = ceil(len(panels) / across)
    size = (max(8.0, 4.6 * across), 4.8 if down == 1 else 3.4 * down)
    figure, places = drawing.subplots(down, across, figsize=size, sharey=True, squeeze=False)
    colours = dict(zip(dict.fromkeys(label for each in panels.values() for label, _ in each),
                       cycle(COLOURS[1:] + COLOURS[:1])))  # fmt: skip
    metric = next(iter(panels.values()))[0][1].metric
    values: list[float] = []
    for axes, (name, lines) in zip(places.flat, panels.items(), strict=False):
        for label, row in lines:
            values += _line(axes, row, label, colours[label])
        axes.set_title(name, loc="left", fontsize=10)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    drawing.limits(places.flat[0], values, metric)
    _frame(figure, places, len(panels), drawing.axis(metric))
    figure.suptitle(f"{title}\n{SAID}", x=0.01, ha="left", fontsize=11)
    partial = path.with_name(f"{path.name}.part")
    figure.savefig(partial, dpi=130, format="png")
    partial.replace(path)


def _line(axes: Any, row: Row, label: str, colour: str) -> list[float]:
    """Draw a line and its band; return what the mean has."""
    curves = drawing.scale(row.metric) * np.array(row.curves)
    rounds, middle, half = range(1, curves.shape[1] + 1), curves.mean(0), half_width(curves)
    axes.plot(rounds, middle, marker="o", markersize=3, linewidth=1.8, color=colour, label=label)
    if len(curves) > 1:
        axes.fill_between(rounds, middle - half, middle + half, color=colour, alpha=0.15, linewidth=0)
    return list(curves.ravel())


def _frame(figure: Any, places: Any, count: int, axis: str) -> None:
    """Name the outer axes, hide the panels that are empty, and put one legend below."""
    from matplotlib.ticker import MaxNLocator

    across = places.shape[1]
    for number, axes in enumerate(places.flat):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_visible(number < count)
        if number % across == 0:
            axes.set_ylabel(axis)
        if number + across >= count:
            axes.set_xlabel("round")
    named = dict(pair[::-1] for axes in places.flat for pair in zip(*axes.get_legend_handles_labels(), strict=True))
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=min(4, len(named)), frameon=False)
