"""Which of its states a student ends as: the last, the best that was measured, or a mean of several."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from contract.nn.codec import state_arrays
from contract.recipes import parts
from contract.tasks import ACCURACY, Metric
from contract.tensors import Array
from worker.parts.schedules import Watch, swa_collects
from worker.parts.swa import RunningMean


def _copy_state(student: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in student.state_dict().items()}


class Selection:
    """Which of its states the student ends as: here the last one."""

    reason = "length"

    def ends(self, student: nn.Module, step: int) -> bool:
        """Look at the student after a step, counted from 1; return whether to stop."""
        return False

    def finish(self, student: nn.Module) -> dict[str, Any]:
        """Make the student what it is to be, and return figures."""
        return {}

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return what it remembers, as arrays and notes."""
        return {}, {}

    def restore(self, arrays: Mapping[str, Array], notes: Mapping[str, Any]) -> None:
        """Remember what `state` gave."""


class Best(Selection):
    """The best one on the validation set; the training ends when it has not changed for long (FedDF 4.1)."""

    def __init__(
        self,
        stop: parts.EarlyStop,
        validate: Callable[[nn.Module], float],
        resume: Callable[[nn.Module], None],
        metric: Metric = ACCURACY,
    ):
        self._stop, self._validate, self._resume, self._metric = stop, validate, resume, metric
        self._watch, self._best = Watch(), dict[str, Tensor]()

    def ends(self, student: nn.Module, step: int) -> bool:
        if step % self._stop.eval_every:
            return False
        seen = self._watch.seen(step, self._metric.goodness(self._validate(student)))
        if seen is not self._watch:
            self._watch, self._best = seen, _copy_state(student)
        self._resume(student)
        if not self._watch.exhausted(step, self._stop.patience):
            return False
        self.reason = "no improvement"
        return True

    def finish(self, student: nn.Module) -> dict[str, Any]:
        if not self._best:
            return {}
        student.load_state_dict(self._best)
        best = f"best_validation_{self._metric.key}"
        return {"best_step": self._watch.best_step, best: self._metric.goodness(self._watch.best)}

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        if not self._best:
            return {}, {}
        return state_arrays(self._best), {"best": self._watch.best, "best_step": self._watch.best_step}

    def restore(self, arrays: Mapping[str, Array], notes: Mapping[str, Any]) -> None:
        if notes:
            self._watch = Watch(notes["best"], notes["best_step"])
            self._best = {name: torch.from_numpy(array) for name, array in arrays.items()}


class Mean(Selection):
    """The mean of those at the ends of cycles (SWA); without a cycle that counts, the last one."""

    def __init__(self, swa: parts.Swa):
        self._swa, self._mean = swa, RunningMean()

    def ends(self, student: nn.Module, step: int) -> bool:
        if swa_collects(self._swa.cycle, self._swa.start, step):
            self._mean.add(state_arrays(student.state_dict()))
        return False

    def finish(self, student: nn.Module) -> dict[str, Any]:
        if self._mean.count:
            mean = self._mean.result()
            student.load_state_dict({name: torch.from_numpy(array) for name, array in mean.items()})
        return {"snapshots": self._mean.count}

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        return self._mean.state(), {"count": self._mean.count}

    def restore(self, arrays: Mapping[str, Array], notes: Mapping[str, Any]) -> None:
        self._mean.restore(notes["count"], arrays)
