"""One distillation job: a student learns the pseudo-labels of the server set."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from contract.nn import frozen, losses
from contract.nn.optim import make_optimizer
from contract.nn.seeding import global_seed
from contract.recipes import parts
from contract.recipes.recipe import Distillation
from contract.tasks import ACCURACY, Metric, TaskKind
from contract.tensors import Array
from worker.checkpoints import Checkpoint, Saved
from worker.parts import fedet, objectives
from worker.parts.resume import (
    generator_array,
    global_arrays,
    module_arrays,
    optimizer_arrays,
    prefixed,
    restore_generator,
    restore_global,
    restore_module,
    restore_optimizer,
)
from worker.parts.schedules import batches_of, learning_rate, steps_of, swa_lr
from worker.pipeline.networks import recalibrate
from worker.pipeline.selecting import Best, Mean, Selection
from worker.pipeline.targets import Targets
from worker.registry import implements
from worker.specs import JobFailure

_CURVE_POINTS = 50


class Augment(Protocol):
    """What a student sees of a batch."""

    draw: torch.Generator

    def __call__(self, images: Tensor) -> Tensor:
        """Return the batch [B, ...] as the student is to see it."""


@dataclass(frozen=True)
class DistillationTask:
    """What one student learns from.

    Attributes:
        inputs: [U, ...], on the device.
        targets: pseudo-labels of the U samples.
        distil: objective, students and schedule of the recipe.
        seed: of mini-batches, augmentation and dropout.
        round_index: 1 for the first round.
        rounds_total: rounds of the federation.
        augment: what the student sees of a batch; `draw` is its source of randomness.
        validate: the student's main figure on the validation set, or None where there is no set.
        moving: names of the student's tensors that it may change; None for all.
        kind: of the task.
        metric: its main one.
    """

    inputs: Tensor
    targets: Targets
    distil: Distillation
    seed: int
    round_index: int
    rounds_total: int
    augment: Augment
    validate: Callable[[nn.Module], float] | None = None
    moving: Collection[str] | None = None
    kind: TaskKind = "classification"
    metric: Metric = ACCURACY

    @property
    def batch_norm(self) -> str:
        """What becomes of running statistics: 'train', 'frozen' or 'recalibrate'."""
        students = self.distil.students
        return students.batch_norm if isinstance(students, parts.StudentsLearning) else "train"

    @property
    def keeps_statistics(self) -> bool:
        """Whether running statistics stay while the student learns. BatchNorm has none of a batch of one sample."""
        return self.batch_norm == "frozen" or min(len(self.inputs), self.distil.schedule.batch_size) == 1

    def rate(self, step: int, total: int) -> float:
        """Return the learning rate of a step, counted from 0; SWA's cycle replaces the schedule's curve."""
        schedule = self.distil.schedule
        if schedule.swa is not None:
            return swa_lr(schedule.swa.lr_high, schedule.swa.lr_low, schedule.swa.cycle, step + 1)
        return learning_rate(schedule, step, total, self.round_index, self.rounds_total)


# ----------------------------------------------------------------------------------------------------------- objectives
@implements(parts.ObjectiveKl)
def _kl(objective: parts.ObjectiveKl, student_logits: Tensor, targets: Targets) -> Tensor:
    return objectives.kl(student_logits, targets.logits, objective.temperature, objective.scale_t2)


@implements(parts.ObjectiveSoftCe)
def _soft_ce(_: parts.ObjectiveSoftCe, student_logits: Tensor, targets: Targets) -> Tensor:
    return objectives.soft_cross_entropy(student_logits, torch.softmax(targets.logits, dim=1))


@implements(parts.ObjectiveFedEt)
def _fedet(objective: parts.ObjectiveFedEt, student_logits: Tensor, targets: Targets) -> Tensor:
    assert targets.labels is not None  # the recipe pairs this objective with 'consensus'
    assert targets.diversity is not None
    return fedet.loss(student_logits, targets.labels, targets.diversity, objective.diversity)


@implements(parts.ObjectiveError)
def _error(objective: parts.ObjectiveError, student_values: Tensor, targets: Targets) -> Tensor:
    return losses.error(student_values, targets.logits, objective.huber)


# ------------------------------------------------------------------------------------------------------------- training
@dataclass
class _Curve:
    """Mean loss over at most fifty stretches of steps; the loss is fetched from the device once per stretch."""

    every: int
    points: list[dict[str, float]] = field(default_factory=list)
    total: Tensor | None = None
    count: int = 0

    def add(self, step: int, last: bool, loss: Tensor, lr: float) -> None:
        self.total = loss.detach() if self.total is None else self.total + loss.detach()
        self.count += 1
        if self.count < self.every and not last:
            return
        mean = float(self.total) / self.count
        if not math.isfinite(mean):
            raise JobFailure(
                "non_finite", f"the distillation loss is no longer finite at step {step}; lower schedule.optimizer.lr"
            )
        self.points.append({"step": step, "loss": mean, "lr": lr})
        self.total, self.count = None, 0

    def restore(self, saved: Saved, device: torch.device) -> None:
        self.points, self.count = list(saved.notes["curve"]), int(saved.notes["count"])
        total = saved.arrays.get("total")
        self.total = None if total is None else torch.from_numpy(total).to(device)


def _train_mode(student: nn.Module, task: DistillationTask) -> None:
    student.train()
    if task.moving is not None:
        for part in (*frozen.frozen_parts(student), *frozen.still_norms(student, task.moving)):
            part.training = False
    if task.keeps_statistics:
        for module in student.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()


class _Batches:
    """Gives the indices of mini-batches for ever: a fresh permutation per pass, drawn from `seed` on the CPU."""

    def __init__(self, size: int, batch_size: int, seed: int):
        self._size, self._batch_size = size, batch_size
        self._draw = torch.Generator().manual_seed(seed)
        self._begin(0)

    def _begin(self, index: int) -> None:
        self.before = generator_array(self._draw)  # of this pass's permutation
        self._order, self.index = torch.randperm(self._size, generator=self._draw), index

    def next(self) -> Tensor:
        if self.index == batches_of(self._size, self._batch_size):
            self._begin(0)
        start = self.index * self._batch_size
        self.index += 1
        return self._order[start : start + self._batch_size]

    def restore(self, before: Array, index: int) -> None:
        restore_generator(self._draw, before)
        self._begin(index)


def teach(
    student: nn.Module, task: DistillationTask, on_step: Callable[[int], None], checkpoint: Checkpoint | None = None
) -> dict[str, Any]:
    """Train the student in place and return figures: loss curve, learning rates, steps, why it stopped.

    With early stopping and a validation set the student ends as the best one that was evaluated (FedDF 4.1), with SWA
    as the mean of its snapshots (FedBE 5.1), else as the last one. Running statistics are then computed anew where the
    recipe says so, and after SWA unless they are frozen: they belong to no mean of weights.

    Args:
        student: as it is before the first step, even where `checkpoint` has a later state of it.
        task: what it learns.
        on_step: called with the number of steps done.
        checkpoint: where the training is kept from time to time, and found again.

    Raises:
        JobFailure: non_finite.
    """
    schedule = task.distil.schedule
    total = steps_of(schedule, len(task.inputs))
    with global_seed(task.seed, task.inputs.device), frozen.frozen_but(student, task.moving):  # dropout
        figures = _train(student, task, total, on_step, checkpoint or Checkpoint())
    averaged = figures.get("snapshots", 0) > 0 and task.batch_norm == "train"
    if task.batch_norm == "recalibrate" or averaged:
        recalibrate(student, task.inputs, str(task.inputs.device), task.moving)
    return figures


@dataclass
class DistillationState:
    """A distillation on its way: all that its next step depends on."""

    student: nn.Module
    task: DistillationTask
    optimizer: torch.optim.Optimizer
    batches: _Batches
    curve: _Curve
    selection: Selection

    def save(self, checkpoint: Checkpoint, step: int) -> None:
        memory, rest = optimizer_arrays(self.optimizer)
        kept, noted = self.selection.state()
        arrays = {
            **prefixed("model.", module_arrays(self.student)),
            **prefixed("optimizer.", memory),
            **prefixed("selection.", kept),
            **prefixed("torch.", global_arrays(self.task.inputs.device)),
            "augment": generator_array(self.task.augment.draw),
            "batches": self.batches.before,
        }
        if self.curve.total is not None:
            arrays["total"] = np.asarray(self.curve.total.cpu().numpy())
        notes = {
            "optimizer": rest,
            "selection": noted,
            "curve": self.curve.points,
            "count": self.curve.count,
            "batch": self.batches.index,
        }
        checkpoint.save(step, arrays, notes)

    def restore(self, saved: Saved) -> None:
        device = self.task.inputs.device
        restore_module(self.student, saved.under("model."))
        restore_optimizer(self.optimizer, saved.under("optimizer."), saved.notes["optimizer"])
        restore_global(device, saved.under("torch."))
        restore_generator(self.task.augment.draw, saved.arrays["augment"])
        self.batches.restore(saved.arrays["batches"], saved.notes["batch"])
        self.curve.restore(saved, device)
        self.selection.restore(saved.under("selection."), saved.notes["selection"])


def _train(
    student: nn.Module, task: DistillationTask, total: int, on_step: Callable[[int], None], checkpoint: Checkpoint
) -> dict[str, Any]:
    schedule = task.distil.schedule
    optimizer = make_optimizer(schedule.optimizer, [each for each in student.parameters() if each.requires_grad])
    batches = _Batches(len(task.inputs), schedule.batch_size, task.seed)
    curve = _Curve(every=max(1, math.ceil(total / _CURVE_POINTS)))
    selection = _select(task)
    state, before = DistillationState(student, task, optimizer, batches, curve, selection), 0
    if checkpoint.saved is not None:
        state.restore(checkpoint.saved)
        before = checkpoint.saved.step
    _train_mode(student, task)
    for step in range(before + 1, total + 1):
        lr = task.rate(step - 1, total)
        loss = _one_step(student, optimizer, task, batches.next().to(task.inputs.device), lr)
        curve.add(step, step == total, loss, lr)
        on_step(step)
        if selection.ends(student, step):
            break
        if checkpoint.due() and step < total:
            state.save(checkpoint, step)
    return {"steps": step, "stop": selection.reason, "curve": curve.points} | selection.finish(student)


def _select(task: DistillationTask) -> Selection:
    schedule = task.distil.schedule
    if schedule.swa is not None:
        return Mean(schedule.swa)
    if schedule.early_stop is not None and task.validate is not None:
        return Best(schedule.early_stop, task.validate, lambda student: _train_mode(student, task), task.metric)
    return Selection()


def _one_step(
    student: nn.Module, optimizer: torch.optim.Optimizer, task: DistillationTask, batch: Tensor, lr: float
) -> Tensor:
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.zero_grad(set_to_none=True)
    objective = task.distil.objective
    logits, targets = student(task.augment(task.inputs[batch])), task.targets[batch]
    if task.kind != "classification":
        logits, targets = targets.beside(losses.flat_rows(logits, task.kind))
    loss: Tensor = implements.of(objective)(objective, logits, targets)
    loss.backward()  # type: ignore[no-untyped-call]
    if task.distil.schedule.clip_norm is not None:
        torch.nn.utils.clip_grad_norm_(student.parameters(), task.distil.schedule.clip_norm)
    optimizer.step()
    return loss


def require_finite(student: nn.Module, owner: str) -> None:
    """Refuse a network with NaN or infinity.

    Raises:
        JobFailure: non_finite, naming the tensor.
    """
    for name, tensor in student.state_dict().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise JobFailure("non_finite", f"{owner}: tensor {name!r} is not finite; lower schedule.optimizer.lr")
