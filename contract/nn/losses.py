"""Losses of every kind of task, and the one form in which all kinds of classes are compared: rows of K logits.

B samples of a batch, C columns of a task, K classes at a position. Each rule stands here once; devices learn labels by
`hard`, and whoever compares two networks (distillation, weights of teachers) reads `class_rows` of both.
"""

import torch
from torch import Tensor
from torch.nn import functional

from contract.tasks import TASKS, TaskKind
from contract.wire.tasks import InputSpec, Task


def normalised(inputs: Tensor, spec: InputSpec) -> Tensor:
    """Return inputs [B, *shape] as networks read them: int64 token ids, or float32 (x - mean) / scale by channel."""
    if spec.is_tokens:
        return inputs.to(torch.int64)
    inputs, given = inputs.to(torch.float32), spec.normalisation
    if given is None:
        return inputs
    edges = (1, -1, *(1 for _ in spec.shape[1:]))
    mean, scale = (torch.tensor(each, dtype=torch.float32, device=inputs.device).view(edges) for each in given)
    return (inputs - mean) / scale


def class_rows(outputs: Tensor, kind: TaskKind) -> Tensor:
    """Return a network's outputs as logits of one softmax in the last axis: [B, K] or [B, positions..., K].

    A label of a multilabel task is a position with two classes, there and not there, whose logits are z and 0. Of a
    regression the values [B, C] themselves.
    """
    if kind == "multilabel":
        return torch.stack([outputs, torch.zeros_like(outputs)], dim=-1)
    return outputs.movedim(1, -1) if kind == "dense" else outputs


def from_class_rows(rows: Tensor, kind: TaskKind) -> Tensor:
    """Return outputs whose `class_rows` are these, up to a constant per position."""
    if kind == "multilabel":
        return rows[..., 0] - rows[..., 1]
    return rows.movedim(-1, 1) if kind == "dense" else rows


def flat_rows(outputs: Tensor, kind: TaskKind) -> Tensor:
    """Return `class_rows` of all positions one after another, [N, K]."""
    rows = class_rows(outputs, kind)
    return rows if rows.ndim == 2 else rows.flatten(0, -2)


def _distance(outputs: Tensor, labels: Tensor, huber: float | None) -> Tensor:
    if huber is None:
        return functional.mse_loss(outputs, labels)
    return functional.huber_loss(outputs, labels, delta=huber)


def hard(outputs: Tensor, labels: Tensor, task: Task) -> Tensor:
    """Return a task's mean loss of outputs [B, *task.output_shape] by labels [B, *task.label_shape], a scalar.

    Cross-entropy, over the labelled positions of all samples together (0 where there is none); of multilabel the binary
    one, over all labels; of regressions squared errors, or Huber's where the task says so.
    """
    if task.kind == "classification":
        return functional.cross_entropy(outputs, labels)
    if task.kind == "multilabel":
        return functional.binary_cross_entropy_with_logits(outputs, labels.to(outputs.dtype))
    if task.kind == "regression":
        return _distance(outputs, labels.to(outputs.dtype), task.huber)
    rows, wanted, ignored = flat_rows(outputs, task.kind), labels.flatten().to(torch.int64), TASKS[task.kind].ignored
    assert ignored is not None
    counted = (wanted != ignored).sum().clamp(min=1)
    return functional.cross_entropy(rows, wanted, ignore_index=ignored, reduction="sum") / counted


def error(outputs: Tensor, targets: Tensor, huber: float | None) -> Tensor:
    """Return the mean squared difference of values [B, C], a scalar; beyond `huber` it is linear (Huber 1964).

    With delta = huber that is mean of e^2 / 2 where |e| <= delta, else delta (|e| - delta / 2).
    """
    return _distance(outputs, targets, huber)


def hits(outputs: Tensor, labels: Tensor, task: Task) -> tuple[Tensor, Tensor]:
    """Return how many labelled positions are right, and how many there are, as int64 scalars.

    Of regressions nothing is right or wrong: 0 of 0.
    """
    if task.kind == "classification":
        return (outputs.argmax(1) == labels).sum(), torch.tensor(len(labels), device=outputs.device)
    if task.kind == "regression":
        return (torch.zeros((), dtype=torch.int64, device=outputs.device),) * 2
    if task.kind == "multilabel":
        return ((outputs > 0) == (labels == 1)).sum(), torch.tensor(labels.numel(), device=outputs.device)
    kept = labels.ne(TASKS[task.kind].ignored or 0)
    return ((class_rows(outputs, task.kind).argmax(-1) == labels) & kept).sum(), kept.sum()
