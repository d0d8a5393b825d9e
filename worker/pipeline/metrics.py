"""What a plan measures of published models on the test set beside the task's own figure."""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from torch import Tensor, nn

from contract.calibration import Calibration
from contract.guard import theirs
from contract.measures import Figure, value_of
from contract.metrics import MetricCalibration, MetricChoice
from contract.wire.federations import Task
from worker.pipeline.networks import outputs
from worker.registry import implements


def figure_of(choice: MetricChoice, task: Task) -> Figure:
    """Return what measures by a choice; (choice, task) -> `Figure` is what stands below `@implements`."""
    make: Callable[[MetricChoice, Task], Figure] = implements.of(choice)
    with theirs(choice):
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
