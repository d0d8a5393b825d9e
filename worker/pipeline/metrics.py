"""What a plan measures of published models on the test set beside the task's own figure."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from contract.guard import fault, theirs
from contract.metrics import MetricCalibration, MetricChoice
from contract.wire.federations import Task
from worker.parts.arrays import Float
from worker.parts.calibration import Calibration
from worker.pipeline.networks import outputs
from worker.registry import implements


class Figure(Protocol):
    """Takes a data set batch by batch; what it gives does not hang on where batches are cut."""

    def add(self, outputs: Float, labels: NDArray[Any]) -> None:
        """Take a network's outputs [B, ...], float64, and labels [B, ...]."""

    def value(self) -> float:
        """Return the figure of all that was added."""


def figure_of(choice: MetricChoice, task: Task) -> Figure:
    """Return what measures by a choice; (choice, task) -> `Figure` is what stands below `@implements`."""
    make: Callable[[MetricChoice, Task], Figure] = implements.of(choice)
    with theirs(choice):
        return make(choice, task)


def value_of(choice: MetricChoice, figure: Figure) -> float:
    """Return a figure's value, finite or not.

    Raises:
        PluginFault: it is of another package, and raised an error or is no number.
    """
    with theirs(choice):
        value = figure.value()
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise fault(choice, f"measured {type(value).__name__}, which is no number") from error


def further(
    networks: Iterable[tuple[str, nn.Module]],
    metrics: Sequence[MetricChoice],
    inputs: Tensor,
    labels: Tensor,
    task: Task,
    device: str,
) -> dict[str, dict[str, float | None]]:
    """Return metric -> model -> its figure on labelled data; None where that is no finite number.

    Raises:
        JobFailure: as `outputs`.
    """
    found: dict[str, dict[str, float | None]] = {each.kind: {} for each in metrics}
    for name, module in networks:
        figures = [(each, figure_of(each, task)) for each in metrics]
        for start, values in outputs(module, inputs, device, owner=f"prototype {name!r}"):
            wanted = labels[start : start + len(values)].numpy()
            for choice, figure in figures:
                with theirs(choice):
                    figure.add(np.array(values), wanted)
        for choice, figure in figures:
            value = value_of(choice, figure)
            found[choice.kind][name] = value if math.isfinite(value) else None
    return found


@implements(MetricCalibration)
def _calibration(choice: MetricCalibration, task: Task) -> Figure:
    return Calibration(choice.bins)
