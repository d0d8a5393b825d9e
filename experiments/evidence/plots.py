"""Plots of the evidence page: decision regions, bars with spread, lines."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.colors import ListedColormap
from matplotlib.ticker import MaxNLocator

Array = NDArray[Any]
CLASS_COLOURS = ("#d62728", "#1f77b4", "#2ca02c")
LINE_COLOURS = ("#7f7f7f", "#1f77b4", "#d62728", "#ff7f0e", "#2ca02c", "#9467bd")
_PALE = ListedColormap(["#f6c6c6", "#c3d9ee", "#c9e7c9"])


def _save(figure: Any, path: Path) -> str:
    """Write the figure and return its link from the page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return f"{path.parent.name}/{path.name}"


def regions(
    path: Path,
    panels: Mapping[str, Array],
    edge: float,
    points: Mapping[str, tuple[Array, Array]],
    columns: int = 4,
) -> str:
    """Draw which of at most three classes wins where.

    Args:
        path: file to make.
        panels: title -> class [n * n] on a cell-centred grid over [-edge, edge]^2, x fastest.
        edge: half the width.
        points: title -> (points [N, 2], classes [N]) to draw on that panel.
        columns: panels side by side.
    """
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(3.1 * columns, 3.3 * rows), layout="constrained", squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (title, classes) in zip(axes.flat, panels.items(), strict=False):
        size = round(len(classes) ** 0.5)
        box = (-edge, edge, -edge, edge)
        axis.imshow(classes.reshape(size, size), origin="lower", extent=box, cmap=_PALE, vmin=0, vmax=2)
        if title in points:
            where, labels = points[title]
            colours = [CLASS_COLOURS[label] for label in labels]
            axis.scatter(where[:, 0], where[:, 1], s=4, c=colours, linewidths=0)
        axis.set_title(title, fontsize=10)
        axis.set(xticks=[], yticks=[], xlim=(-edge, edge), ylim=(-edge, edge))
    return _save(figure, path)


def shares(path: Path, panels: Mapping[str, Array], axes: tuple[str, str]) -> str:
    """Draw shares [rows, columns] in [0, 1] side by side, the larger the darker.

    Args:
        path: file to make.
        panels: title -> shares.
        axes: what columns and rows are.
    """
    figure, found = plt.subplots(1, len(panels), figsize=(3.6 * len(panels), 3.9), layout="constrained", squeeze=False)
    for axis, (title, values) in zip(found.flat, panels.items(), strict=True):
        axis.imshow(values, cmap="Blues", vmin=0, vmax=1, aspect="equal")
        axis.set_title(title, fontsize=10)
        axis.set(xticks=range(values.shape[1]), yticks=range(values.shape[0]), xlabel=axes[0])
    found.flat[0].set_ylabel(axes[1])
    return _save(figure, path)


def images(path: Path, rows: Mapping[str, Array]) -> str:
    """Draw grey images [N, 1, H, W] in [0, 1], a row a name."""
    count = max(map(len, rows.values()))
    size = (0.62 * count + 1.1, 0.68 * len(rows))
    figure, axes = plt.subplots(len(rows), count, figsize=size, layout="constrained", squeeze=False)
    for line, (name, pictures) in zip(axes, rows.items(), strict=True):
        for axis, picture in zip(line, pictures, strict=False):
            axis.imshow(picture[0], cmap="gray", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9)
    return _save(figure, path)


def bars(path: Path, title: str, values: Mapping[str, Sequence[float]], unit: str, top: float | None = None) -> str:
    """Draw one bar a name: the mean over seeds, a whisker of one standard deviation, and a dot a seed."""
    figure, axis = plt.subplots(figsize=(max(5.0, 1.05 * len(values) + 1), 3.8), layout="constrained")
    for place, (each, colour) in enumerate(zip(values.values(), _colours(len(values)), strict=True)):
        error = stdev(each) if len(each) > 1 else 0.0
        axis.bar(place, mean(each), 0.65, yerr=error, capsize=4, color=colour, alpha=0.55)
        axis.scatter(np.full(len(each), place), each, s=9, color="#333333", zorder=3)
    axis.set_xticks(range(len(values)), [name.replace(" ", "\n", 1) for name in values], fontsize=8)
    axis.set(ylabel=unit, ylim=(0, top))
    axis.set_title(title, loc="left", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    return _save(figure, path)


def _colours(number: int) -> list[str]:
    return [LINE_COLOURS[index % len(LINE_COLOURS)] for index in range(number)]


def lines(
    path: Path, title: str, curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], axes: tuple[str, str],
    *, log: str = "", faint: Mapping[str, Sequence[tuple[Sequence[float], Sequence[float]]]] | None = None,
) -> str:  # fmt: skip
    """Draw lines.

    Args:
        path: file to make.
        title: above the plot.
        curves: name -> (x, y).
        axes: labels of x and y.
        log: 'x', 'y', 'xy' or nothing.
        faint: name -> further (x, y) of the same colour, drawn thin, such as one a seed.
    """
    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    for (name, (x, y)), colour in zip(curves.items(), _colours(len(curves)), strict=True):
        axis.plot(x, y, color=colour, linewidth=2, marker="o", markersize=3, label=name)
        for thin_x, thin_y in (faint or {}).get(name, ()):
            axis.plot(thin_x, thin_y, color=colour, linewidth=0.7, alpha=0.5)
    if not log:
        axis.set_ylim(bottom=0)
    if "x" in log:
        axis.set_xscale("log")
    if "y" in log:
        axis.set_yscale("log")
    if axes[0] == "round":
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set(xlabel=axes[0], ylabel=axes[1])
    axis.set_title(title, loc="left", fontsize=10)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    return _save(figure, path)
