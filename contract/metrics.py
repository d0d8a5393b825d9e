"""What is measured of models beside the task's own figures, on the test set or by devices: one class per choice."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from contract.bodies import LISTED
from contract.choices import Choice, Declares
from contract.plugins import OPEN


class MetricChoice(Choice):
    """A figure of a network's outputs on labelled data."""

    slot = "rounds.metrics"
    kinds: ClassVar[frozenset[str]] = frozenset({"classification"})
    """Kinds of task that it measures."""
    higher_is_better: ClassVar[bool] = True
    """Which devices are the worst by it, in federated evaluation."""


class MetricCalibration(MetricChoice):
    """Expected calibration error: how far the confidence in a class lies from the share of those that are right."""

    declares = Declares(source="Guo et al. 2017, eq. 3")

    higher_is_better = False

    kind: Literal["calibration"] = "calibration"
    bins: int = Field(15, ge=1, le=1000, description="M, of equal width in confidence")


MOST_METRICS = 8
Metrics = Annotated[tuple[Annotated[MetricChoice, OPEN], ...], LISTED, Field(max_length=MOST_METRICS)]
