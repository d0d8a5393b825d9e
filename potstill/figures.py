"""Figures of tasks of every kind as people read them."""

from collections.abc import Mapping
from typing import Any

from contract.tasks import TASKS, Metric, measured_of
from contract.wire.federations import Federation, FederationSummary, Task
from potstill.console import out, percent, print_table


def metric_of(name: str) -> Metric:
    """Return a metric by its name, whatever the kind of task; one that is not known is taken as a plain figure."""
    known = (each for kind in TASKS.values() for each in kind.metrics if each.name == name)
    return next(known, Metric(name, name, is_share=False))


def measured(value: float | None, metric: str) -> str:
    """Return the value of a metric as people read it: shares as '90.1 %', others with four digits."""
    if value is None or metric_of(metric).is_share:
        return percent(value)
    return f"{value:.4g}"


def main_figure(figures: Mapping[str, Any]) -> str:
    """Return the main figure of a round or a model: the accuracy, or what the task is measured by."""
    return measured(measured_of(figures), str(figures.get("metric", "accuracy" if "accuracy" in figures else "")))


def measured_in(federation: FederationSummary) -> str:
    """Return the main figure, with its metric where that is no accuracy."""
    if federation.measured is None or federation.metric == "accuracy":
        return percent(federation.accuracy)
    return f"{federation.metric} {measured(federation.measured, federation.metric)}"


def show_figures(federation: Federation) -> None:
    """Print the main figure of each round, and all of the task's own of the newest models, on the test set."""
    if federation.accuracies:
        print()
        rows = [[index, percent(accuracy), "█" * round(accuracy * 40)] for index, accuracy in federation.accuracies]
        print_table(["round", "test accuracy", ""], rows)
    elif federation.measurements:
        print()
        metric = federation.metric
        print_table(["round", f"test {metric}"], [[i, measured(value, metric)] for i, value in federation.measurements])
    for name, figures in federation.figures.items():
        told = ", ".join(f"{metric.replace('_', ' ')} {measured(value, metric)}" for metric, value in figures.items())
        out().print(f"{name}: {told}", highlight=False)


def in_words(task: Task) -> str:
    """Return what a federation's networks decide, in a few words."""
    what = {
        "classification": "classes",
        "multilabel": "labels of which any may hold",
        "regression": "values",
        "dense": "classes of each position",
        "tokens": "classes of each token",
    }[task.kind]
    return f"{task.num_classes} {what}, input {task.input.shape}"
