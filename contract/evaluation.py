"""What devices measure of the model they were sent, on data of theirs that they do not train on."""

from typing import Annotated

from pydantic import Field, model_validator

from contract.bodies import Part
from contract.bounds import ROUNDS, VALUE, Label
from contract.metrics import Metrics
from contract.tasks import TASKS

LEAST_PRIVATE = 5
"""Devices whose figures are shown together at least, where the plan has `local.privacy`; one alone never is."""
MOST_FIGURES = 16
_SHARES = {metric.name for kind in TASKS.values() for metric in kind.metrics if metric.is_share}
Figure = Annotated[float, Field(ge=-VALUE, le=VALUE, allow_inf_nan=False)]


class Evaluate(Part):
    """Before a device trains, it measures the model it was sent on data that it holds back."""

    share: float = Field(
        0.1,
        gt=0,
        le=0.5,
        description="of its samples that a device holds back, drawn by the federation's seed and its name, the same in "
        "every round; a device that has a set of its own for this trains on all of them",
    )
    every: int = Field(1, ge=1, le=ROUNDS, description="in every so many rounds, from the first on")
    metrics: Metrics = Field(
        (),
        exclude_if=lambda value: not value,
        description="what devices measure beside the task's figures; one that lacks a package tells the rest",
    )

    @model_validator(mode="after")
    def _told_apart(self) -> "Evaluate":
        kinds = [each.kind for each in self.metrics]
        if len(set(kinds)) < len(kinds):
            raise ValueError("metrics: a kind is there twice, and its figures go by its name; keep one of them")
        return self

    def in_round(self, index: int) -> bool:
        """Whether devices measure in a round, counted from 1."""
        return (index - 1) % self.every == 0


class Evaluation(Part):
    """One device's figures of the model that it was sent."""

    num_samples: int = Field(ge=1, le=2**40, description="that it was measured on")
    loss: Figure | None = None
    metrics: dict[Label, Figure] = Field(default_factory=dict, max_length=MOST_FIGURES, examples=[{"accuracy": 0.91}])

    @model_validator(mode="after")
    def _possible(self) -> "Evaluation":
        for name, value in self.metrics.items():
            if name in _SHARES and not 0 <= value <= 1:
                raise ValueError(f"metrics.{name}: is a share of what was measured, in [0, 1]; this is {value}")
        return self


def held_back(count: int, share: float) -> int:
    """Return how many of a device's samples are held back: a share, rounded, one at least, and never the last one."""
    return min(max(1, round(count * share)), count - 1)
