"""What `train_and_push` returns and tells; plain data, no torch."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


class Report(NamedTuple):
    """How far a training is, as it was told with `LocalTask.report`; None: not told."""

    step: int | None
    of: int | None
    loss: float | None
    metrics: dict[str, float]


@dataclass(frozen=True)
class RoundReport:
    """One round of this device.

    Attributes:
        loss: mean training loss of the last local epoch.
        accuracy: training accuracy of the last local epoch, in [0, 1]; None of regressions, and where your own function
            told none.
        steps: optimiser steps taken.
        seconds: local training, wall clock; 0 for an update that an earlier process had trained.
        uploaded: False when the service no longer wanted it; `reason` says why.
        epsilon: differential privacy spent so far, at the plan's delta, on rounds, discriminator and generator; None
            without DP-SGD.
        metrics: further figures of a function of your own; they stayed on the device.
        before, after: what the model that came, and the one that was trained, measured on `evaluate_on`: the task's
            metrics and `loss`; empty without it. They stayed on the device.
    """

    index: int
    round_id: str
    loss: float
    accuracy: float | None
    steps: int
    num_samples: int
    seconds: float
    uploaded: bool
    reason: str | None = None
    epsilon: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunReport:
    """A device's part in a federation.

    Attributes:
        state: the federation's state when the run ended; ``running`` after `rounds` were done before its end, or after
            `stop` was set.
        accuracy: test accuracy of the final model as the service measured it; None without a test set.
        num_samples: size of the local data set.
        model_path: the final model (safetensors), when the federation finished with one.
        epsilon_before: differential privacy that discriminator and generator have cost, with DP-SGD and where this run
            has trained them.
    """

    state: str
    client_id: str | None
    client_name: str
    federation_id: str
    num_samples: int
    rounds: list[RoundReport] = field(default_factory=list)
    accuracy: float | None = None
    model_path: Path | None = None
    epsilon_before: float | None = None

    @property
    def rounds_trained(self) -> int:
        """Updates that the service took."""
        return sum(report.uploaded for report in self.rounds)

    @property
    def epsilon(self) -> float | None:
        """Differential privacy spent in all, up to the last that this run has trained; None without DP-SGD."""
        return self.rounds[-1].epsilon if self.rounds else self.epsilon_before

    @property
    def losses(self) -> list[float]:
        """Training loss per round, in order."""
        return [report.loss for report in self.rounds]
