"""A round that a function of the user's trains: it gets its task, is waited for, and what it gave is looked at."""

import logging
import math
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from client_sdk import methods
from client_sdk.errors import PotstillError, TrainingError, UsageError
from client_sdk.handed import Handed
from client_sdk.loops import LocalOutcome, LocalTask, TrainFunction
from client_sdk.methods.base import Method, Work
from client_sdk.reports import Report
from client_sdk.sources import generators_kept
from client_sdk.training import Hooks, Loop, Trained, not_finite
from client_sdk.watched import Stopped, Watched
from contract.local import LocalPlan
from contract.nn import codec
from contract.private import private_folder
from contract.seeds import derive_seed
from contract.tensors import TensorError, compare

logger = logging.getLogger("client_sdk")
GRACE = 60.0
"""Seconds that a function may take to return after it was told to stop."""


@dataclass(frozen=True)
class OwnTraining:
    """Trains rounds by a function of the user's.

    Attributes:
        dataset: handed to the function as it was given.
        stop: set from outside to end the run.
    """

    function: TrainFunction
    dataset: Any
    stop: threading.Event = field(default_factory=threading.Event)

    def check(self, plan: LocalPlan, samples: Handed) -> None:
        """Refuse a plan that a function of the user's cannot keep, before anybody waits for this device.

        Raises:
            UsageError: naming the part of the plan, or the objective, and what to do.
        """
        reasons = {
            "privacy": "DP-SGD bounds and noises each sample's gradient, which a function of your own does not show",
            "precision": "weights of one bit are trained through rounded ones, step by step",
        }
        for name, reason in reasons.items():
            if getattr(plan, name) is not None:
                raise UsageError(
                    f"train: this federation asks for local.{name}: {reason}. Leave train= out, or have the operator "
                    f"leave out local.{name}"
                )
        if methods.reads_samples(plan):
            samples.opened(f"objective {plan.objective.kind!r}")

    def loop(self, folder: Path, hooks: Hooks) -> Loop:
        """Return what trains one round.

        Args:
            folder: the device's own.
        """

        def train(work: Work, method: Method, order: torch.Generator) -> Trained:
            lasting = private_folder(folder / "train")
            stop = threading.Event()
            task = LocalTask(work, method, self.dataset, lasting, stop, hooks.on_report or _unheard)
            watched = Watched(f"potstill-train-{work.round_index}", stop, self._over(hooks.over), GRACE)
            before = _Before(work)
            with _seeded(work.seed):
                returned = watched.run(lambda: self._call(task))
            if self.stop.is_set():
                raise Stopped
            outcome = _checked(returned)
            before.hold_against(work)
            _check_asked(work, method, task.asked)
            bad = not_finite(work.module)
            if bad is not None:
                raise _refused(f"tensor {bad!r} has a value that is NaN or infinite after the training")
            return _trained(outcome, task)

        return train

    def _over(self, over: Callable[[], str | None] | None) -> Callable[[], str | None]:
        def why() -> str | None:
            return "the run was stopped" if self.stop.is_set() else over() if over is not None else None

        return why

    def _call(self, task: LocalTask) -> Any:
        try:
            return self.function(task)
        except PotstillError:
            raise
        except Exception as error:
            raise TrainingError(
                f"train: {_name(self.function)} failed in round {task.round}: {type(error).__name__}: {error}; nothing "
                "was uploaded. The round is trained again at the next start, if it still goes on"
            ) from error


def _unheard(report: Report) -> None:
    """Hear nothing."""


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the generators of Python and numpy beside torch's; all are given back as they were."""
    with generators_kept():
        own = derive_seed(seed, "own")
        random.seed(own)
        np.random.seed(own & 0xFFFFFFFF)
        yield


class _Before:
    """The network as a function got it, to see afterwards whether it is the same one, trained."""

    def __init__(self, work: Work):
        self._header = codec.manifest(work.module)
        parameters = dict(work.module.named_parameters())
        self._trained = {name: value.requires_grad for name, value in parameters.items()}
        self._frozen = {name: _fingerprint(value) for name, value in parameters.items() if not value.requires_grad}

    def hold_against(self, work: Work) -> None:
        """Put gradients and what is frozen back, and refuse other tensors than those that were sent.

        Raises:
            TrainingError: naming the first tensors that differ.
        """
        module = work.module
        try:
            compare(codec.manifest(module), self._header)
        except TensorError as error:
            raise TrainingError(
                f"train: the module has other tensors than before: {error.detail.rstrip('.')}. Train task.module in "
                "place; nothing was uploaded"
            ) from error
        for name, value in module.named_parameters():
            value.requires_grad_(self._trained[name])
            value.grad = None
            if name in self._frozen and _fingerprint(value) != self._frozen[name]:
                raise _refused(
                    f"parameter {name!r} is frozen in this round and was changed; train those with requires_grad"
                )


def _fingerprint(value: Tensor) -> int:
    """Return the sum of a tensor's bytes: a copy of all that is frozen would be as large as the network."""
    return int(value.detach().reshape(-1).view(torch.uint8).sum(dtype=torch.int64))


def _checked(returned: Any) -> LocalOutcome:
    """Return what a function gave, if its figures can be used.

    Raises:
        TrainingError: naming the field.
    """
    if not isinstance(returned, LocalOutcome):
        kind = "None" if returned is None else f"a {type(returned).__name__}"
        raise _refused(f"returned {kind}; return LocalOutcome(num_samples=…, loss=…)")
    count = returned.num_samples
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
        raise _refused(
            f"num_samples is {count!r}; a whole number of at least 1 is needed: samples that were trained on"
        )
    steps = returned.steps
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, (int, np.integer)) or steps < 0):
        raise _refused(f"steps is {steps!r}; a whole number of at least 0 is needed, or None")
    if not isinstance(returned.metrics, Mapping):
        raise _refused(f"metrics is a {type(returned.metrics).__name__}; figures by name are needed")
    for name, value in [("loss", returned.loss), *returned.metrics.items()]:
        if not _is_figure(value):
            raise _refused(f"{name} is {value!r}; a finite number is needed")
    accuracy = returned.metrics.get("accuracy")
    if accuracy is not None and not 0 <= float(accuracy) <= 1:
        raise _refused(f"metrics['accuracy'] is {float(accuracy):g}; a share between 0 and 1 is needed")
    return returned


def _refused(what: str) -> TrainingError:
    return TrainingError(f"train: {what}. Nothing was uploaded")


def _is_figure(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError, RuntimeError):
        return False


def _check_asked(work: Work, method: Method, asked: set[str]) -> None:
    """Refuse an update of a function that has left out what the plan's objective does in every step.

    Raises:
        TrainingError: naming the objective and what to call.
    """
    missing = sorted(method.asks() - asked)
    if missing:
        calls = {
            "penalty": "add task.penalty() to the loss of every step",
            "loss": "take task.loss(inputs, labels, logits) for the loss of every batch",
            "optimizer": "take its steps with task.optimizer()",
        }
        raise _refused(
            f"the plan's objective {work.plan.objective.kind!r} was left out: "
            + "; ".join(calls[name] for name in missing)
        )


def _trained(outcome: LocalOutcome, task: LocalTask) -> Trained:
    figures = {name: float(value) for name, value in outcome.metrics.items()}
    accuracy = figures.pop("accuracy", None)
    steps = task.steps if outcome.steps is None else int(outcome.steps)
    return Trained(float(outcome.loss), accuracy, steps, int(outcome.num_samples), metrics=figures)
