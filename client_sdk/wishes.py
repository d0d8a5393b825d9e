"""What a user wants otherwise of our own loop: another loss, weights of classes, mixed precision."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from client_sdk.data import Samples
from client_sdk.errors import UsageError
from client_sdk.precision import Mixed, dtype_named, has
from contract.local import LocalPlan
from contract.wire.federations import Task

Loss = Callable[[Tensor, Tensor], Tensor]
"""Mean loss of a batch, a scalar, of outputs [B, C] and labels [B]."""
ClassWeights = Sequence[float] | Tensor | Literal["balanced"]


@dataclass(frozen=True)
class Wishes:
    """What our loop does otherwise.

    Attributes:
        loss: in place of the task's; what the plan's objective adds is added to it.
        class_weights: of the task's cross-entropy [C]; ``balanced``: N / (classes that are there * N_c) of this device.
        mixed_precision: forward passes compute in bfloat16 (True) or float16, where that loses little (torch.autocast).
    """

    loss: Loss | None = None
    class_weights: ClassWeights | None = None
    mixed_precision: Mixed = False

    def __post_init__(self) -> None:
        if self.loss is not None and not callable(self.loss):
            raise UsageError(f"loss: a {type(self.loss).__name__} cannot be called; pass a function (outputs, labels)")
        if self.loss is not None and self.class_weights is not None:
            raise UsageError("class_weights: are of the task's loss, and loss= takes its place; weigh there")
        dtype_named(self.mixed_precision)

    def mixed_on(self, device: torch.device) -> torch.dtype | None:
        """Return what forward passes compute in on a device; None: in the network's own."""
        dtype = dtype_named(self.mixed_precision)
        return dtype if dtype is not None and has(dtype, device) else None

    def _check(self, plan: LocalPlan) -> None:
        given = {name: getattr(self, name) for name in ("loss", "class_weights", "mixed_precision")}
        for name, value in given.items():
            if plan.privacy is not None and value is not None and value is not False:
                raise UsageError(
                    f"{name}: this federation trains with local.privacy, where the loss is a plain mean over samples "
                    f"in full precision, or no sample's share is bounded as promised; leave {name} out"
                )

    def criterion(self, samples: Samples, plan: LocalPlan) -> Loss | None:
        """Return what is minimised in place of the task's loss; None: that itself.

        Raises:
            UsageError: the plan does not go with it, the weights are not the task's, or the labels are not known.
        """
        self._check(plan)
        if self.loss is not None:
            return _checked(self.loss)
        if self.class_weights is None:
            return None
        assert samples.task is not None
        task = samples.task
        if task.kind != "classification":
            what = f"a task of kind {task.kind!r} has no one class a sample to weigh"
            raise UsageError(f"class_weights: {what}; pass loss=, or leave it out")
        weights = self._weights(samples, task)
        return lambda outputs, labels: weighted(outputs, labels, weights.to(outputs))

    def _weights(self, samples: Samples, task: Task) -> Tensor:
        if isinstance(self.class_weights, str):
            if self.class_weights != "balanced":
                said = repr(self.class_weights)
                raise UsageError(f"class_weights: {said} is unknown; pass 'balanced', or a number a class")
            return _balanced(samples, task)
        try:
            weights = torch.as_tensor(self.class_weights, dtype=torch.float32)
        except (TypeError, ValueError, RuntimeError) as error:
            raise UsageError(f"class_weights: are no numbers: {error}") from error
        fits = weights.shape == (task.num_classes,) and bool(torch.isfinite(weights).all())
        if not fits or bool((weights < 0).any()) or not bool((weights > 0).any()):
            raise UsageError(
                f"class_weights: {task.num_classes} numbers of at least 0 are needed, one a class and not all of them 0"
            )
        return weights


PLAIN = Wishes()


def weighted(outputs: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Return sum_i w(y_i) l_i / sum_i w(y_i), l the cross-entropy; 0 where no weight is.

    Args:
        outputs, labels: [B, C], [B].
        weights: [C].
    """
    mine = weights[labels]
    each = functional.cross_entropy(outputs, labels, reduction="none")
    return (each * mine).sum() / mine.sum().clamp(min=torch.finfo(mine.dtype).tiny)


def _balanced(samples: Samples, task: Task) -> Tensor:
    if samples.labels is None:
        raise UsageError(
            "class_weights: 'balanced' counts the labels, and not all of this data set's were looked at; pass numbers, "
            "or cache=True"
        )
    counts = torch.bincount(samples.labels.to(torch.int64), minlength=task.num_classes)
    there = counts > 0
    return torch.where(there, counts.sum() / (there.sum() * counts.clamp(min=1)), 0.0)


def _checked(loss: Loss) -> Loss:
    def checked(outputs: Tensor, labels: Tensor) -> Tensor:
        try:
            found: Any = loss(outputs, labels)
        except Exception as error:
            raise UsageError(f"loss: failed on {len(labels)} samples: {type(error).__name__}: {error}") from error
        if not isinstance(found, Tensor) or found.numel() != 1:
            what = f"a tensor {list(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
            raise UsageError(f"loss: returned {what}; return the mean over the batch, a tensor of one number")
        if not found.requires_grad:
            raise UsageError("loss: what it returned has no gradient; make it of the outputs, without detach or item")
        return found.reshape(())

    return checked
