"""One distillation job: a student learns the pseudo-labels of the server set."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from contract.nn.codec import state_arrays
from contract.nn.optim import make_optimizer
from contract.nn.seeding import global_seed
from contract.recipes import parts
from contract.recipes.recipe import Distillation
from worker.parts import fedet, objectives
from worker.parts.schedules import Watch, batches_of, learning_rate, steps_of, swa_collects, swa_lr
from worker.parts.swa import RunningMean
from worker.pipeline.labels import Targets
from worker.pipeline.networks import recalibrate
from worker.specs import JobFailure

_CURVE_POINTS = 50


@dataclass(frozen=True)
class Lesson:
    """What one student learns from.

    Attributes:
        inputs: [U, ...], on the device.
        targets: pseudo-labels [U, C], on the device.
        distil: objective, students and schedule of the recipe.
        seed: of mini-batches, augmentation and dropout.
        round_index: 1 for the first round.
        rounds_total: rounds of the federation.
        augment: what the student sees of a batch.
        validate: accuracy of the student on the validation set, or None where there is no set.
    """

    inputs: Tensor
    targets: Targets
    distil: Distillation
    seed: int
    round_index: int
    rounds_total: int
    augment: Callable[[Tensor], Tensor]
    validate: Callable[[nn.Module], float] | None = None

    @property
    def batch_norm(self) -> str:
        """What becomes of running statistics: 'train', 'frozen' or 'recalibrate'."""
        students = self.distil.students
        return "train" if isinstance(students, parts.StudentsNone) else students.batch_norm

    def rate(self, step: int, total: int) -> float:
        """Return the learning rate of a step, counted from 0; SWA's cycle replaces the schedule's curve."""
        schedule = self.distil.schedule
        if schedule.swa is not None:
            return swa_lr(schedule.swa.lr_high, schedule.swa.lr_low, schedule.swa.cycle, step + 1)
        return learning_rate(schedule, step, total, self.round_index, self.rounds_total)


# ----------------------------------------------------------------------------------------------------------- objectives
def _kl(objective: parts.ObjectiveKl, student_logits: Tensor, targets: Targets) -> Tensor:
    return objectives.kl(student_logits, targets.logits, objective.temperature, objective.scale_t2)


def _soft_ce(_: parts.ObjectiveSoftCe, student_logits: Tensor, targets: Targets) -> Tensor:
    return objectives.soft_cross_entropy(student_logits, torch.softmax(targets.logits, dim=1))


def _fedet(objective: parts.ObjectiveFedEt, student_logits: Tensor, targets: Targets) -> Tensor:
    assert targets.labels is not None  # the recipe pairs this objective with 'consensus'
    assert targets.diversity is not None
    return fedet.loss(student_logits, targets.labels, targets.diversity, objective.diversity)


OBJECTIVES: dict[type, Callable[[Any, Tensor, Targets], Tensor]] = {
    parts.ObjectiveKl: _kl,
    parts.ObjectiveSoftCe: _soft_ce,
    parts.ObjectiveFedEt: _fedet,
}


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


def _train_mode(student: nn.Module, batch_norm: str) -> None:
    student.train()
    if batch_norm == "frozen":
        for module in student.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()


def _batches(size: int, batch_size: int, seed: int) -> Iterator[Tensor]:
    """Yield the indices of mini-batches for ever: a fresh permutation per pass, drawn from `seed` on the CPU."""
    draw = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(size, generator=draw)
        for index in range(batches_of(size, batch_size)):
            yield order[index * batch_size : (index + 1) * batch_size]


def _copy_state(student: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in student.state_dict().items()}


def teach(student: nn.Module, lesson: Lesson, on_step: Callable[[int], None]) -> dict[str, Any]:
    """Train the student in place and return figures: loss curve, learning rates, steps, why it stopped.

    With early stopping and a validation set the student ends as the best one that was evaluated (FedDF 4.1), with SWA
    as the mean of its snapshots (FedBE 5.1), else as the last one. Running statistics are then computed anew where the
    recipe says so, and after SWA unless they are frozen: they belong to no mean of weights.

    Raises:
        JobFailure: non_finite.
    """
    schedule = lesson.distil.schedule
    total = steps_of(schedule, len(lesson.inputs))
    with global_seed(lesson.seed, lesson.inputs.device):  # dropout
        figures = _train(student, lesson, total, on_step)
    averaged = figures.get("snapshots", 0) > 0 and lesson.batch_norm == "train"
    if lesson.batch_norm == "recalibrate" or averaged:
        recalibrate(student, lesson.inputs, str(lesson.inputs.device))
    return figures


def _train(student: nn.Module, lesson: Lesson, total: int, on_step: Callable[[int], None]) -> dict[str, Any]:
    schedule = lesson.distil.schedule
    optimizer = make_optimizer(schedule.optimizer, student.parameters())
    batches = _batches(len(lesson.inputs), schedule.batch_size, lesson.seed)
    curve = _Curve(every=max(1, math.ceil(total / _CURVE_POINTS)))
    keeper = _keeper(lesson)
    _train_mode(student, lesson.batch_norm)
    for step in range(1, total + 1):
        lr = lesson.rate(step - 1, total)
        loss = _one_step(student, optimizer, lesson, next(batches).to(lesson.inputs.device), lr)
        curve.add(step, step == total, loss, lr)
        on_step(step)
        if keeper.ends(student, step):
            break
    return {"steps": step, "stop": keeper.reason, "curve": curve.points} | keeper.finish(student)


class _Last:
    """Keeps the last student."""

    reason = "length"

    def ends(self, student: nn.Module, step: int) -> bool:
        """Look at the student after a step, counted from 1; return whether to stop."""
        return False

    def finish(self, student: nn.Module) -> dict[str, Any]:
        """Make the student what it is to be, and return figures."""
        return {}


class _Best(_Last):
    """Keeps the best student on the validation set, and stops when it has not changed for long (FedDF 4.1)."""

    def __init__(self, stop: parts.EarlyStop, validate: Callable[[nn.Module], float], batch_norm: str):
        self._stop, self._validate, self._batch_norm = stop, validate, batch_norm
        self._watch, self._best = Watch(), dict[str, Tensor]()

    def ends(self, student: nn.Module, step: int) -> bool:
        if step % self._stop.eval_every:
            return False
        seen = self._watch.seen(step, self._validate(student))
        if seen is not self._watch:
            self._watch, self._best = seen, _copy_state(student)
        _train_mode(student, self._batch_norm)
        if not self._watch.exhausted(step, self._stop.patience):
            return False
        self.reason = "no improvement"
        return True

    def finish(self, student: nn.Module) -> dict[str, Any]:
        if not self._best:
            return {}
        student.load_state_dict(self._best)
        return {"best_step": self._watch.best_step, "best_validation_accuracy": self._watch.best}


class _Mean(_Last):
    """Keeps the mean of the students at the ends of cycles (SWA); without a cycle that counts, the last one."""

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


def _keeper(lesson: Lesson) -> _Last:
    schedule = lesson.distil.schedule
    if schedule.swa is not None:
        return _Mean(schedule.swa)
    if schedule.early_stop is not None and lesson.validate is not None:
        return _Best(schedule.early_stop, lesson.validate, lesson.batch_norm)
    return _Last()


def _one_step(student: nn.Module, optimizer: torch.optim.Optimizer, lesson: Lesson, batch: Tensor, lr: float) -> Tensor:
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.zero_grad(set_to_none=True)
    objective = lesson.distil.objective
    logits = student(lesson.augment(lesson.inputs[batch]))
    loss = OBJECTIVES[type(objective)](objective, logits, lesson.targets[batch])
    loss.backward()  # type: ignore[no-untyped-call]
    if lesson.distil.schedule.clip_norm is not None:
        torch.nn.utils.clip_grad_norm_(student.parameters(), lesson.distil.schedule.clip_norm)
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
