"""Figures that devices measured of one model, as all of them together tell it."""

import math
import statistics
from collections.abc import Mapping
from typing import Any

from contract.evaluation import LEAST_PRIVATE, Evaluation
from contract.federation import FederationConfig
from contract.metrics import MetricChoice
from contract.tasks import TASKS, Metric

WORST = 10
"""One in so many devices, those with the worst figures, are `worst_decile`."""


def of_models(told: Mapping[str, Mapping[str, Evaluation]], config: FederationConfig) -> dict[str, dict[str, Any]]:
    """Return model name -> what all devices say of it (`summary`), and which figure is the task's main one.

    Where the plan has metrics of its own, `further` says how many devices measured each; one that too few did is told
    by its number alone.

    Models of which too few devices say anything are left out.

    Args:
        told: model name -> device -> its figures.
    """
    asked = () if config.rounds.evaluate is None else config.rounds.evaluate.metrics
    known: dict[str, Metric | MetricChoice] = {each.name: each for each in TASKS[config.task.kind].metrics}
    known |= {each.kind: each for each in asked}
    least = 1 if config.local.privacy is None else LEAST_PRIVATE
    main = {"metric": config.task.main_metric.name, "is_share": config.task.main_metric.is_share}
    found = {name: summary(figures, known, least) for name, figures in sorted(told.items())}
    further = {name: {each.kind: _measured(each.kind, told[name]) for each in asked} for name in found if asked}
    told_of = {name: main | figures for name, figures in found.items() if figures is not None}
    return {name: figures | ({"further": further[name]} if asked else {}) for name, figures in told_of.items()}


def _measured(kind: str, told: Mapping[str, Evaluation]) -> int:
    """Return how many devices measured by a metric: those that have its package."""
    return sum(kind in each.metrics for each in told.values())


def main_median(figures: Mapping[str, Any]) -> float | None:
    """Return the median of the task's main metric; None where no device told it."""
    found = figures["figures"].get(figures["metric"])
    return None if found is None else float(found["median"])


def summary(
    told: Mapping[str, Evaluation], metrics: Mapping[str, Metric | MetricChoice], least: int = 1
) -> dict[str, Any] | None:
    """Return what devices say of a model, each with one voice however many samples it has; None if too few do.

    Sums are exact, so that the order of devices changes no bit.

    Args:
        told: device -> its figures.
        metrics: the task's and the plan's, by name; of others more is taken to be better, and of the loss less.
        least: devices that a figure is of at least.
    """
    if len(told) < max(least, 1):
        return None
    figures: dict[str, list[float]] = {}
    for each in told.values():
        for name, value in (({} if each.loss is None else {"loss": each.loss}) | each.metrics).items():
            figures.setdefault(name, []).append(value)
    found = {
        name: _spread(values, name != "loss" and (name not in metrics or metrics[name].higher_is_better))
        for name, values in sorted(figures.items())
        if len(values) >= least
    }
    return {"devices": len(told), "samples": sum(each.num_samples for each in told.values()), "figures": found}


def _spread(values: list[float], higher_is_better: bool) -> dict[str, float]:
    """Return mean, median, standard deviation and the mean of the worst tenth (Li et al. 2020, q-FFL, table 1)."""
    ordered = sorted(values, reverse=not higher_is_better)
    worst = ordered[: math.ceil(len(ordered) / WORST)]
    return {
        "mean": statistics.fmean(ordered),
        "median": statistics.median(ordered),
        "spread": statistics.pstdev(ordered),
        "worst_decile": statistics.fmean(worst),
    }
