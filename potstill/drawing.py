"""What plots and tables of figures share, for simulations and comparisons."""

from collections.abc import Sequence
from typing import Any

from contract.tasks import Metric


def unit(metric: Metric) -> str:
    """Return a metric as headings have it, with what its values are."""
    if metric.is_share:
        return f"{metric.name}, percent"
    return metric.name if metric.higher_is_better else f"{metric.name}, lower is better"


def scale(metric: Metric) -> int:
    """Return what values are shown times: percent of shares."""
    return 100 if metric.is_share else 1


def as_markdown(heading: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> str:
    """Return a table in Markdown; all but its first columns are numbers."""
    lines = [heading, [*["---"] * texts, *["---:"] * (len(heading) - texts)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def subplots(*shape: int, figsize: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    """Return a figure that is drawn into files alone, and its axes; a notebook's own pyplot stays as it is.

    Args:
        shape: rows and columns; one of each by default.
        figsize: in inches.
        options: of `matplotlib.figure.Figure.subplots`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=figsize, layout="constrained")
    return figure, figure.subplots(*shape, **options)


_APART = 20
"""Errors of which the largest is so many times the smallest are drawn on a logarithmic axis."""


def limits(axes: Any, values: Sequence[float], metric: Metric) -> None:
    """Let an axis of shares begin at 0, and one of errors that are far apart be logarithmic."""
    if metric.is_share:
        axes.set_ylim(0, min(100, 1.08 * max(values) + 2))
    elif not metric.higher_is_better and max(values) > _APART * min(values) > 0:
        axes.set_yscale("log")


def axis(metric: Metric) -> str:
    """Return what is written beside the axis of values."""
    if metric.is_share:
        return f"test {metric.name} (%)"
    return f"test {unit(metric)}"
