"""What a device measures beside the task's figures, where the plan asks for it and the metric's package is here."""

from collections.abc import Iterable
from typing import Any

from client_sdk.packaged import told
from contract.calibration import Calibration
from contract.choices import Implementations
from contract.measures import Figure
from contract.metrics import MetricCalibration, MetricChoice
from contract.packages import PluginError
from contract.wire.tasks import Task

implements: Implementations[Any] = Implementations("device")
"""What measures on devices: ``@implements(MetricBrier)`` above (choice, task) -> `contract.measures.Figure`."""


@implements(MetricCalibration)
def _calibration(choice: MetricCalibration, task: Task) -> Figure:
    return Calibration(choice.bins)


def figures_of(metrics: Iterable[MetricChoice], task: Task) -> list[tuple[MetricChoice, Figure]]:
    """Return what measures by each of the metrics that are here; of the others `missing` says why.

    Raises:
        PackageFailed: the code of a metric's package does.
    """
    found = []
    for choice in metrics:
        if not why_not(choice):
            with told(choice):
                found.append((choice, implements.of(choice)(choice, task)))
    return found


def missing(metrics: Iterable[MetricChoice]) -> list[str]:
    """Return why metrics are not measured here, one sentence each."""
    return [why for why in map(why_not, metrics) if why]


def why_not(choice: MetricChoice) -> str:
    """Return why a metric is not measured here; empty where it is.

    Another version may measure something else, and its figure would stand beside those of the one that is asked for.
    """
    try:
        known = implements.get(choice) is not None
    except PluginError as error:
        return str(error)
    here, asked = type(choice).packaged, choice.package
    if here != asked:
        return f"{choice.slot} {choice.kind!r}: {asked} is asked for, and {here} is installed here; install the former"
    return "" if known else f"{choice.slot} {choice.kind!r} of {asked}: nothing of it measures on devices"
