"""Training that its user has written: what a round hands to the function, and what it gives back.

>>> def train(task: LocalTask) -> LocalOutcome: ...  # doctest: +SKIP
>>> train_and_push(url, dataset, federation="fed_…", join_token="pst_join_…", train=train)  # doctest: +SKIP
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from client_sdk.methods.base import Method, Work
from client_sdk.named import Named
from client_sdk.reports import Report
from contract.local import LocalPlan
from contract.nn.optim import make_optimizer
from contract.wire.federations import Task


@dataclass(frozen=True)
class LocalOutcome:
    """What a training gives beside the weights, which are in the task's module.

    Attributes:
        num_samples: how many samples it trained on; an average counts this device by them.
        loss: mean training loss of the last epoch.
        metrics: further figures by name. `accuracy` is sent with the update; the others stay in the `RoundReport`.
        steps: optimiser steps taken; None: those of `LocalTask.optimizer`, or else the last one that was reported.
    """

    num_samples: int
    loss: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    steps: int | None = None


class LocalTask:
    """One round's training, as a function of the user's own gets it.

    Attributes:
        module: the network with the weights as they were sent, on `device`, in training mode; it is trained in place.
        dataset: what was passed to `train_and_push`, as it was given.
        plan: what the operator set: objective, optimiser, epochs, batch size, `clip_norm`.
        task: the federation's: kind, classes, shape of the inputs.
        round: 1 for the federation's first.
        seed: of this device in this round. The generators of Python, numpy and torch were seeded with it.
        device: where the module is.
        folder: a folder that lasts, for what the function keeps between rounds and restarts.
    """

    def __init__(
        self,
        work: Work,
        method: Method,
        dataset: Any,
        folder: Path,
        stop: threading.Event,
        on_report: Callable[[Report], None],
    ):
        assert work.samples.task is not None
        self.module: nn.Module = work.module
        self.dataset, self.folder = dataset, folder
        self.plan: LocalPlan = work.plan
        self.task: Task = work.samples.task
        self.round: int = work.round_index
        self.seed: int = work.seed
        self.device: torch.device = work.device
        self.asked: set[str] = set()
        self.steps = 0
        self._work, self._method, self._stop, self._on_report = work, method, stop, on_report
        self._counted = False

    @property
    def should_stop(self) -> bool:
        """Whether to return soon: the round is over, or the run was stopped; what was trained is not wanted then."""
        return self._stop.is_set()

    def report(
        self,
        *,
        step: int | None = None,
        of: int | None = None,
        loss: float | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """Tell how far the training is: the bar and the heartbeats show it. From any thread, as often as you like.

        Args:
            step, of: steps done, and in all.
            loss: of late.
            metrics: other figures.
        """
        if step is not None and not self._counted:
            self.steps = int(step)
        told = {name: float(value) for name, value in (metrics or {}).items()}
        self._on_report(Report(step, of, None if loss is None else float(loss), told))

    def optimizer(self, parameters: Iterable[nn.Parameter] | None = None) -> torch.optim.Optimizer:
        """Return the plan's optimiser, whose steps are counted; by default of all parameters that are trained."""
        self.asked.add("optimizer")
        chosen = list(self._work.parameters.values()) if parameters is None else list(parameters)
        optimizer = make_optimizer(self.plan.optimizer, chosen)
        optimizer.register_step_post_hook(self._count)
        return optimizer

    def _count(self, *_: Any) -> None:
        self.steps = self.steps + 1 if self._counted else 1
        self._counted = True

    def penalty(self) -> Tensor:
        """Return what the plan's objective adds to the loss of every step: a scalar of the weights alone.

        FedProx's term, SCAFFOLD's correction; zero for objectives that have none. Its gradient is part of the step.
        """
        self.asked.add("penalty")
        found = self._method.penalty()
        return torch.zeros((), device=self.device) if found is None else found

    def loss(
        self, inputs: Tensor | Mapping[str, Tensor], labels: Tensor, logits: Tensor, features: Tensor | None = None
    ) -> Tensor:
        """Return the plan's mean loss of a batch, without `penalty`: what FedGKD, MOON, FedUV and FedTGP add is in it.

        Args:
            inputs, labels: [B, *input], or several of them by name, and [B], on `device`.
            logits: what the module made of them, [B, C].
            features: [B, d], for objectives that read features.
        """
        self.asked.add("loss")
        given = inputs if isinstance(inputs, Tensor) else Named(inputs)
        return self._method.loss(given, labels, logits, features)


TrainFunction = Callable[[LocalTask], LocalOutcome]
