"""Local training of one round: a module, samples and a `LocalPlan` in, trained weights and figures out."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from client_sdk import objectives
from client_sdk.data import Samples
from client_sdk.errors import ModelMismatch, TrainingError
from contract.local import Adam, LocalPlan, Optimizer


@dataclass(frozen=True)
class LocalResult:
    """Figures of one round; loss and accuracy are means over the last epoch, while it was training."""

    loss: float
    accuracy: float
    steps: int
    num_samples: int


def choose_device(name: str) -> torch.device:
    """Return the torch device of that name; ``auto`` takes CUDA, then Apple's MPS, then the CPU."""
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[torch.Generator]:
    """Seed torch for dropout and the like, deterministic convolutions on CUDA; yield a generator for orders.

    The process's own generators and settings are as before afterwards.
    """
    devices = [torch.cuda.current_device() if device.index is None else device.index] if device.type == "cuda" else []
    with (
        torch.random.fork_rng(devices=devices),
        torch.backends.cudnn.flags(enabled=True, deterministic=True, benchmark=False),
    ):
        torch.manual_seed(seed)
        yield torch.Generator().manual_seed(seed)


def make_optimizer(plan: Optimizer, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the plan's optimiser over `parameters`."""
    if isinstance(plan, Adam):
        return torch.optim.Adam(parameters, lr=plan.lr, betas=plan.betas, weight_decay=plan.weight_decay)
    return torch.optim.SGD(parameters, lr=plan.lr, momentum=plan.momentum, weight_decay=plan.weight_decay)


def train_local(
    module: nn.Module,
    samples: Samples,
    plan: LocalPlan,
    *,
    seed: int,
    device: torch.device,
    on_epoch: Callable[[int, float], None] | None = None,
) -> LocalResult:
    """Train `module` in place.

    Args:
        module: maps [B, *input] to logits [B, C]; on `device` afterwards.
        samples: checked against the task.
        seed: of the order of samples and of torch's generators.
        on_epoch: called after each epoch with its number, from 1 on, and its mean loss.

    Raises:
        TrainingError: the loss or a weight is not finite.
        ModelMismatch: the module has nothing to train, or its output is not [B, C].
    """
    assert samples.task is not None
    module.to(device).train()
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not parameters:
        raise ModelMismatch("model: no parameter has requires_grad; there is nothing to train")
    optimizer, loss_of = make_optimizer(plan.optimizer, parameters), objectives.build(plan.objective, module)
    steps, loss, accuracy = 0, 0.0, 0.0
    with seeded(seed, device) as order:
        for epoch in range(1, plan.epochs + 1):
            lost, right = torch.zeros((), device=device), torch.zeros((), dtype=torch.int64, device=device)
            for inputs, labels in samples.batches(plan.batch_size, order, device):
                with statistics_kept(module, len(labels)):
                    logits = module(inputs)
                _check_logits(logits, len(labels), samples.task.num_classes)
                step_loss = loss_of(module, logits, labels)
                _step(optimizer, step_loss, parameters, plan.clip_norm)
                steps += 1
                lost += step_loss.detach() * len(labels)
                right += (logits.detach().argmax(1) == labels).sum()
            loss, accuracy = float(lost) / len(samples), int(right) / len(samples)
            check_finite(module, loss, epoch)
            if on_epoch is not None:
                on_epoch(epoch, loss)
    return LocalResult(loss, accuracy, steps, len(samples))


def _step(
    optimizer: torch.optim.Optimizer, loss: Tensor, parameters: list[nn.Parameter], clip_norm: float | None
) -> None:
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    if clip_norm is not None:
        torch.nn.utils.clip_grad_norm_(parameters, clip_norm)
    optimizer.step()


@contextmanager
def statistics_kept(module: nn.Module, batch: int) -> Iterator[None]:
    """Let BatchNorm use its running statistics for a batch of one, for which it has no statistics of its own."""
    norms = [
        layer
        for layer in (module.modules() if batch == 1 else ())
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.training
    ]
    for layer in norms:
        layer.eval()
    try:
        yield
    finally:
        for layer in norms:
            layer.train()


def check_finite(module: nn.Module, loss: float, epoch: int) -> None:
    """Refuse to go on from a loss or a weight that is NaN or infinite.

    Raises:
        TrainingError: naming the epoch and the first such tensor.
    """
    bad = next(
        (name for name, value in module.state_dict().items() if value.is_floating_point() and not _finite(value)), None
    )
    if bad is None and torch.isfinite(torch.tensor(loss)):
        return
    what = f"the loss is {loss}" if bad is None else f"tensor {bad!r} has a value that is NaN or infinite"
    raise TrainingError(
        f"{what} after epoch {epoch}; nothing was uploaded. Look for extreme values in the inputs; the operator can "
        "lower local.optimizer.lr or set local.clip_norm"
    )


def _finite(value: Tensor) -> bool:
    return bool(torch.isfinite(value).all())


def _check_logits(logits: Tensor, batch: int, classes: int) -> None:
    if tuple(logits.shape) != (batch, classes):
        raise ModelMismatch(
            f"model: returned shape {list(logits.shape)} for {batch} samples; logits of shape "
            f"[{batch}, {classes}] are needed, one column per class"
        )
