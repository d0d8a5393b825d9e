"""Local training of one round: a module, samples and a `LocalPlan` in, trained weights and figures out."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from client_sdk import methods, modes, named, parted
from client_sdk.data import Samples
from client_sdk.errors import ModelMismatch, TrainingError, UnexpectedAnswer, UsageError
from client_sdk.methods.base import Method, Outcome, Work
from client_sdk.named import Inputs
from client_sdk.outputs import dtype_of
from client_sdk.precision import Binary, Scaling
from client_sdk.privacy import PrivateSteps, Spent, secret_seed
from client_sdk.wishes import PLAIN, Wishes
from contract import updates
from contract.errors import RuleError
from contract.layout import layout
from contract.local import LocalPlan
from contract.nn import codec, devices, losses
from contract.nn.frozen import TiedNames, frozen_but
from contract.nn.optim import make_optimizer
from contract.nn.seeding import global_seed
from contract.partition import Partition
from contract.tensors import Header, TensorError, TensorFile
from contract.wire.federations import Prototype


@dataclass(frozen=True)
class LocalResult:
    """What a round's training gives.

    Attributes:
        loss, accuracy: means over the last epoch, while it was training; the loss is that of the data, without
            penalties of the weights. The accuracy is the share of labelled positions that were right; None of
            regressions.
        tensors: the update's tensors on the CPU, exactly those of `contract.layout.layout` and in its order.
        memory: what the method keeps on the device for its next round, if the update counts.
        control_reset: SCAFFOLD's control variate was lost and started at zeros again.
        metrics: further figures, which stay on the device.
        spent: the privacy that this round costs, with DP-SGD.
    """

    loss: float
    accuracy: float | None
    steps: int
    num_samples: int
    tensors: dict[str, Tensor] = field(default_factory=dict)
    memory: dict[str, Tensor] = field(default_factory=dict)
    control_reset: bool = False
    spent: Spent | None = None
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Hooks:
    """Who is told how far a round's training is; see `train_local`.

    Attributes:
        on_report: of a training of the user's own (`client_sdk.loops`).
        over: says why the round takes no update of this device any more; None: it does.
    """

    on_epoch: Callable[[int, float], None] | None = None
    on_step: Callable[[int], None] | None = None
    on_pass: Callable[[], None] | None = None
    on_report: Callable[[Any], None] | None = None
    over: Callable[[], str | None] | None = None


@dataclass(frozen=True)
class Trained:
    """What all steps of a round gave; the weights are in the module. Fields as in `LocalResult`."""

    loss: float
    accuracy: float | None
    steps: int
    num_samples: int
    spent: Spent | None = None
    metrics: dict[str, float] = field(default_factory=dict)


Loop = Callable[[Work, Method, torch.Generator], Trained]
"""Takes a round's steps: on the network of the work, as its plan and its method say; the generator is for orders."""


def choose_device(name: str) -> torch.device:
    """Return the torch device of that name; ``auto`` takes CUDA, then Apple's MPS, then the CPU.

    Raises:
        UsageError: there is no such device here; the message names those that are.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        return devices.find(name)
    except ValueError as error:
        raise UsageError(f"device: {error}, or auto for the best of them") from error


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[torch.Generator]:
    """Seed torch for dropout and the like, deterministic convolutions on CUDA; yield a generator for orders.

    The process's own generators and settings are as before afterwards.
    """
    with (
        global_seed(seed, device),
        torch.backends.cudnn.flags(enabled=True, deterministic=True, benchmark=False),
    ):
        yield torch.Generator().manual_seed(seed)


def train_local(
    module: nn.Module,
    samples: Samples,
    plan: LocalPlan,
    *,
    seed: int,
    device: torch.device,
    base: Header | None = None,
    extras: Mapping[str, Path] | None = None,
    memory: Mapping[str, Tensor] | None = None,
    first: bool = True,
    round_index: int = 1,
    prototype: Prototype | None = None,
    parts: Partition | None = None,
    on_epoch: Callable[[int, float], None] | None = None,
    on_step: Callable[[int], None] | None = None,
    on_pass: Callable[[], None] | None = None,
    loop: Loop | None = None,
    wishes: Wishes = PLAIN,
) -> LocalResult:
    """Train `module` in place. A whole client's round, without the network and without any file of its own.

    Parts that rest (`client_sdk.modes`) stay in evaluation mode. Floating inputs come in the module's own dtype.

    Args:
        module: maps [B, *input] to outputs [B, *task.output_shape], with the weights as they were sent; on `device`
            afterwards, each part in the mode that it had.
        samples: checked against the task.
        seed: of the order of samples and of torch's generators; not read where the plan is private.
        base: header of the model as it was sent; by default the module's own.
        extras: files that the objective reads, by what they are.
        memory: what earlier rounds of this device left (`LocalResult.memory`).
        first: this device has not taken part before; with no memory it has then lost none.
        round_index: 1 for the federation's first round.
        prototype: what the network is, where it is one of the catalogue.
        parts: which tensors are trained, sent and kept; None: all are trained and sent.
        on_epoch: called after each epoch with its number, from 1 on, and its mean loss.
        on_step, on_pass: called after each step with their number so far; before each batch that the network sees.
        loop, wishes: takes the steps instead of the plan's epochs of batches; what this device's user wants otherwise.

    Raises:
        TrainingError: the loss or a weight is not finite.
        ModelMismatch: the module has nothing to train, its output is not [B, C], or the objective needs more of it.
        UnexpectedAnswer: an extra is missing or is not what the objective reads.
    """
    assert samples.task is not None
    module.to(device)
    with _parted(module, parts):
        parameters = {name: value for name, value in module.named_parameters() if value.requires_grad}
        if not parameters:
            raise ModelMismatch("model: no parameter has requires_grad; there is nothing to train")
        base, memory = base or parted.sent_header(codec.manifest(module), parts), memory or {}
        given = samples.given_as(dtype_of(module))
        work = Work(
            module, parameters, given, plan, base, extras or {}, memory, first, seed, device, round_index, prototype
        )
        work.parts, work.on_pass = parts, on_pass or work.on_pass
        work.criterion, work.mixed = wishes.criterion(samples, plan), wishes.mixed_on(device)
        return _train_round(work, loop or partial(_train, on_epoch=on_epoch, on_step=on_step))


@contextmanager
def _parted(module: nn.Module, parts: Partition | None) -> Iterator[None]:
    """Freeze what nobody trains, for as long as this lasts."""
    try:
        frozen = frozen_but(module, None if parts is None else parts.moving)
        with frozen:
            yield
    except TiedNames as error:
        raise ModelMismatch(f"model: {error}") from error


def _train_round(work: Work, loop: Loop) -> LocalResult:
    assert work.samples.task is not None
    plan, names = work.plan, _layout(work, work.samples.task.num_classes)
    if plan.precision is not None:
        work.binary = Binary(work.module, work.base)
    try:
        drawn_from = work.seed if plan.privacy is None else secret_seed()
        with modes.training(work.module, work.moving), seeded(drawn_from, work.device) as order:
            method = methods.build(work)
            with _frozen(work, method.frozen()):
                method.before(order)
                trained = loop(work, method, order)
            outcome = method.after(trained.steps)
        sent, kept = _tensors(work, outcome, names)
    except RuleError as error:
        raise TrainingError(f"{error.detail}; nothing was uploaded") from error
    figures = (trained.loss, trained.accuracy, trained.steps, trained.num_samples)
    return LocalResult(*figures, sent, kept, outcome.control_reset, trained.spent, trained.metrics)


@contextmanager
def _frozen(work: Work, names: Collection[str]) -> Iterator[None]:
    """Train all but some of the parameters; which ones the user's module trains is as before afterwards."""
    parameters = work.parameters
    work.parameters = {name: value for name, value in parameters.items() if name not in names}
    stay = [value for name, value in parameters.items() if name in names]
    try:
        for value in stay:
            value.requires_grad_(False)
        yield
    finally:
        work.parameters = parameters
        for value in stay:
            value.requires_grad_(True)


def _layout(work: Work, classes: int) -> list[str]:
    named = work.plan.objective.shaped_by
    beside = None if named is None else work.extras.get(named)
    if named is not None and beside is None:
        raise UnexpectedAnswer(f"extras.{named}: it did not come, and the objective needs it; tell the operator")
    try:
        return list(layout(work.plan, work.base, classes, None if beside is None else _header(beside)))
    except TensorError as error:
        raise ModelMismatch(f"model: {error.detail}") from error


def _header(path: Path) -> Header:
    with TensorFile(path) as file:
        return file.header


def _tensors(work: Work, outcome: Outcome, names: list[str]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return what is sent, in the order of its names, and what is kept; all of it on the CPU."""
    tensors: dict[str, Tensor] = {**codec.unwrap(work.module).state_dict(), **outcome.tensors}
    if work.binary is not None:
        tensors |= work.binary.tensors()
    sent = {name: tensors[name].detach().to("cpu") for name in names}
    own = {updates.KEPT + name: tensors[name] for name in work.kept}
    return sent, {name: value.detach().to("cpu") for name, value in (outcome.memory | own).items()}


def _train(
    work: Work,
    method: Method,
    order: torch.Generator,
    on_epoch: Callable[[int, float], None] | None,
    on_step: Callable[[int], None] | None,
) -> Trained:
    plan, samples, device = work.plan, work.samples, work.device
    optimizer = make_optimizer(plan.optimizer, list(work.parameters.values()))
    private = PrivateSteps(plan, work.module, optimizer, samples, device) if plan.privacy is not None else None
    scaling = Scaling(device) if work.mixed == torch.float16 else None
    steps, loss, accuracy = 0, 0.0, None
    zero = torch.zeros((), dtype=torch.int64, device=device)
    try:
        for epoch in range(1, plan.epochs + 1):
            lost, right, judged, seen = torch.zeros((), device=device), zero, zero, 0
            batches = private.batches() if private else samples.batches(plan.batch_size, order, device)
            for inputs, labels in batches:
                if private is not None:
                    named.floating(
                        inputs, Tensor.requires_grad_
                    )  # else torch warns of Opacus's hooks, an error under `python -W error`
                step = partial(_step, work, method, optimizer, private, scaling, inputs, labels)
                found = step()
                while found is None and steps == 0:  # the scale is sought: a round without a step would be none
                    found = step()
                if found is None:
                    continue
                step_loss, (hits, positions) = found
                steps, seen = steps + 1, seen + len(labels)
                lost += step_loss * len(labels)
                right, judged = right + hits, judged + positions
                if on_step is not None:
                    on_step(steps)
            loss = float(lost) / max(seen, 1)
            accuracy = int(right) / max(int(judged), 1) if work.task.kind != "regression" else None
            check_finite(work.module, loss, epoch)
            if on_epoch is not None:
                on_epoch(epoch, loss)
        if private is not None:
            private.check_buffers()
    finally:
        if private is not None:
            private.close()
    metrics = {} if scaling is None else {"skipped_steps": float(scaling.skipped)}
    return Trained(loss, accuracy, steps, len(samples), private.spent if private else None, metrics)


def _step(
    work: Work,
    method: Method,
    optimizer: torch.optim.Optimizer,
    private: PrivateSteps | None,
    scaling: Scaling | None,
    inputs: Inputs,
    labels: Tensor,
) -> tuple[Tensor, tuple[Tensor, Tensor]] | None:
    """Take one step; return the loss, how many positions were right, and how many were labelled; None: left out."""
    parameters = list(work.parameters.values())
    (private or optimizer).zero_grad()
    loss, none = torch.zeros((), device=work.device), torch.zeros((), dtype=torch.int64, device=work.device)
    hits = none, none
    penalty = method.penalty()  # of the float weights, so before they are rounded
    if len(labels):
        loss, hits = _backward(work, method, scaling, inputs, labels)
    if scaling is not None:
        scaling.unscale(optimizer)
    if private is not None:
        private.privatise(len(labels))
    if penalty is not None:
        _add_gradient(penalty, parameters)
    if work.plan.clip_norm is not None:
        torch.nn.utils.clip_grad_norm_(parameters, work.plan.clip_norm)
    if scaling is None:
        optimizer.step()
    elif not scaling.step(optimizer):
        return None
    return loss, hits


def _backward(
    work: Work, method: Method, scaling: Scaling | None, inputs: Inputs, labels: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    with work.passes(len(labels)):
        logits, features = work.forward(inputs, method.needs_features)
        loss = method.loss(inputs, labels, logits, features)
        if scaling is None:
            loss.backward()  # type: ignore[no-untyped-call]
        else:
            scaling.backward(loss)
    return loss.detach(), losses.hits(logits.detach(), labels, work.task)


def _add_gradient(penalty: Tensor, parameters: list[nn.Parameter]) -> None:
    for parameter, gradient in zip(
        parameters, torch.autograd.grad(penalty, parameters, allow_unused=True), strict=True
    ):
        if gradient is not None:
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


def check_finite(
    module: nn.Module, loss: float, epoch: int, remedy: str = "lower local.optimizer.lr or set local.clip_norm"
) -> None:
    """Refuse to go on from a loss or a weight that is NaN or infinite.

    Raises:
        TrainingError: naming the epoch and the first such tensor.
    """
    bad = not_finite(module)
    if bad is None and torch.isfinite(torch.tensor(loss)):
        return
    what = f"the loss is {loss}" if bad is None else f"tensor {bad!r} has a value that is NaN or infinite"
    raise TrainingError(
        f"{what} after epoch {epoch}; nothing was uploaded. Look for extreme values in the inputs; the operator can "
        f"{remedy}"
    )


def not_finite(module: nn.Module) -> str | None:
    """Return the first tensor of a network that has a value which is NaN or infinite, if there is one."""
    state = {name: value for name, value in module.state_dict().items() if value.is_floating_point()}
    return next((name for name, value in state.items() if not torch.isfinite(value).all()), None)
