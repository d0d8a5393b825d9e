"""Comparisons as a plot: what is measured over rounds, bytes and seconds."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

from potstill.comparing.sides import Side
from potstill.demo.report import COLOURS
from potstill.drawing import axis, limits, scale, subplots

_MEGABYTE = 1e6


def plot(sides: Sequence[Side], path: Path) -> None:
    """Draw a line a side; a row of three plots for each of what they are measured by."""
    metrics = list({each.metric.name: each.metric for each in sides}.values())
    figure, rows = subplots(len(metrics), 3, figsize=(12, 4.2 * len(metrics)), squeeze=False, sharey="row")
    colours = dict(zip((each.name for each in sides), cycle(COLOURS[1:] + COLOURS[:1]), strict=False))
    for metric, places in zip(metrics, rows, strict=True):
        mine = [each for each in sides if each.metric == metric]
        for side in mine:
            values = [scale(metric) * each.value for each in side.curve]
            over = (
                [each.round for each in side.curve],
                [each.size / _MEGABYTE for each in side.curve],
                [each.seconds for each in side.curve],
            )
            for place, along in zip(places, over, strict=True):
                place.plot(along, values, marker="o", markersize=3, linewidth=1.8, color=colours[side.name],
                           label=side.name)  # fmt: skip
        found = [scale(metric) * each.value for side in mine for each in side.curve]
        if found:
            limits(places[0], found, metric)
        times = ", ".join(dict.fromkeys(side.time for side in mine))
        for place, label in zip(places, ("round", "MB of devices' files", f"seconds ({times})"), strict=True):
            place.set_xlabel(label)
            place.grid(alpha=0.3)
            place.spines[["top", "right"]].set_visible(False)
        places[0].set_ylabel(axis(metric))
        places[0].legend(frameon=False, loc="best")
    figure.savefig(path, dpi=130)
