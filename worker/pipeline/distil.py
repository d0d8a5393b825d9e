"""One distillation job: a student learns the pseudo-labels of the server set."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from contract.local import Adam, Optimizer
from contract.recipes.recipe import Distillation
from worker.parts.objectives import distillation_loss
from worker.parts.schedules import Watch, batches_of, learning_rate, steps_of
from worker.specs import JobFailure

_CURVE_POINTS = 50


@dataclass(frozen=True)
class Lesson:
    """What one student learns from.

    Attributes:
        inputs: [U, ...], on the device.
        teacher_logits: float32 [U, C], on the device.
        distil: objective, students and schedule of the recipe.
        seed: of mini-batches and dropout.
        round_index: 1 for the first round.
        rounds_total: rounds of the federation.
        validate: accuracy of the student on the validation set, or None where there is no set.
    """

    inputs: Tensor
    teacher_logits: Tensor
    distil: Distillation
    seed: int
    round_index: int
    rounds_total: int
    validate: Callable[[nn.Module], float] | None = None


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


def make_optimizer(plan: Optimizer, module: nn.Module) -> torch.optim.Optimizer:
    """Return a fresh optimiser over the network's parameters."""
    if isinstance(plan, Adam):
        return torch.optim.Adam(module.parameters(), lr=plan.lr, betas=plan.betas, weight_decay=plan.weight_decay)
    return torch.optim.SGD(module.parameters(), lr=plan.lr, momentum=plan.momentum, weight_decay=plan.weight_decay)


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

    With early stopping and a validation set the student ends as the best one that was evaluated (FedDF 4.1), without
    as the last one.

    Raises:
        JobFailure: non_finite.
    """
    schedule = lesson.distil.schedule
    total = steps_of(schedule, len(lesson.inputs))
    devices = [lesson.inputs.device.index or 0] if lesson.inputs.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(lesson.seed)  # dropout
        return _train(student, lesson, total, on_step)


def _train(student: nn.Module, lesson: Lesson, total: int, on_step: Callable[[int], None]) -> dict[str, Any]:
    schedule, frozen = lesson.distil.schedule, lesson.distil.students.batch_norm
    optimizer = make_optimizer(schedule.optimizer, student)
    batches = _batches(len(lesson.inputs), schedule.batch_size, lesson.seed)
    curve = _Curve(every=max(1, math.ceil(total / _CURVE_POINTS)))
    stop = schedule.early_stop if lesson.validate is not None else None
    watch, best, step, reason = Watch(), None, 0, "length"
    _train_mode(student, frozen)
    while step < total:
        lr = learning_rate(schedule, step, total, lesson.round_index, lesson.rounds_total)
        loss = _one_step(student, optimizer, lesson, next(batches).to(lesson.inputs.device), lr)
        step += 1
        curve.add(step, step == total, loss, lr)
        on_step(step)
        if stop is None or lesson.validate is None or step % stop.eval_every:
            continue
        seen = watch.seen(step, lesson.validate(student))
        best = _copy_state(student) if seen is not watch else best
        watch = seen
        _train_mode(student, frozen)
        if watch.exhausted(step, stop.patience):
            reason = "no improvement"
            break
    if best is not None:
        student.load_state_dict(best)
    figures: dict[str, Any] = {"steps": step, "stop": reason, "curve": curve.points}
    if best is not None:
        figures |= {"best_step": watch.best_step, "best_validation_accuracy": watch.best}
    return figures


def _one_step(student: nn.Module, optimizer: torch.optim.Optimizer, lesson: Lesson, batch: Tensor, lr: float) -> Tensor:
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.zero_grad(set_to_none=True)
    loss = distillation_loss(lesson.distil.objective, student(lesson.inputs[batch]), lesson.teacher_logits[batch])
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
