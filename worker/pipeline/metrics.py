"""What a plan measures of published models on the test set beside the task's own figure."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

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
    return make(choice, task)


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
        figures = {each.kind: figure_of(each, task) for each in metrics}
        for start, values in outputs(module, inputs, device, owner=f"prototype {name!r}"):
            wanted = labels[start : start + len(values)].numpy()
            for figure in figures.values():
                figure.add(np.array(values), wanted)
        for kind, figure in figures.items():
            value = float(figure.value())
            found[kind][name] = value if math.isfinite(value) else None
    return found


@implements(MetricCalibration)
def _calibration(choice: MetricCalibration, task: Task) -> Figure:
    return Calibration(choice.bins)
