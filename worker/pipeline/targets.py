"""What students learn from: pseudo-labels, or a server set's own labels in their form."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from contract.nn.losses import class_rows
from contract.tasks import TASKS
from contract.tokenizer import PADDING
from contract.wire.federations import Task
from worker.parts import combine
from worker.parts.space import is_held, space
from worker.pipeline.networks import read_labels
from worker.specs import JobFailure


@dataclass(frozen=True)
class Targets:
    """What students learn from.

    Attributes:
        logits: float32 [S, C]; their softmax is the pseudo-label. Where samples have positions [S, P..., C], as
            `contract.nn.losses.class_rows` has them; of regressions the values.
        labels: the consensus's hard label, int64 [S] (Fed-ET).
        diversity: what those say who disagree, float32 [S, C] (Fed-ET).
        counted: which positions are learnt, bool [S, P...]; None: all of them.
    """

    logits: Tensor
    labels: Tensor | None = None
    diversity: Tensor | None = None
    counted: Tensor | None = None

    def __getitem__(self, rows: Tensor) -> "Targets":
        """Return those of some samples, on the rows' device."""

        def some(each: Tensor | None) -> Tensor | None:
            return None if each is None else each[rows.to(each.device)].to(rows.device)

        return Targets(*map(some, self._all()))  # type: ignore[arg-type]

    def to(self, device: str) -> "Targets":
        """Return them on a device; those that are not held in memory stay where they are."""
        if not is_held(tuple(self.logits.shape), np.float32):
            return self
        return Targets(*(None if each is None else each.to(device) for each in self._all()))  # type: ignore[arg-type]

    def beside(self, rows: Tensor) -> "tuple[Tensor, Targets]":
        """Return a student's rows [N, C], of all positions, and their targets, without those that do not count."""
        wanted = self.logits.reshape(-1, self.logits.shape[-1])
        if self.counted is None:
            return rows, Targets(wanted)
        kept = self.counted.flatten()
        return (rows[kept], Targets(wanted[kept])) if bool(kept.any()) else (rows * 0, Targets(wanted * 0))

    def _all(self) -> tuple[Tensor | None, ...]:
        return self.logits, self.labels, self.diversity, self.counted


def targets_of(made: combine.Labels, counted: Tensor | None = None) -> Targets:
    """Return labels as students read them: float32."""
    logits, diversity = (
        None if each is None else torch.from_numpy(each.astype(np.float32, copy=each.dtype != np.float32))
        for each in (made.logits, made.diversity)
    )
    assert logits is not None
    return Targets(logits, None if made.labels is None else torch.from_numpy(made.labels), diversity, counted)


_NEVER = -1e9
"""The logit of a class that a label is not: its probability is 0 at any temperature, and 0 times it is 0."""


def own_targets(path: Path, task: Task, size: int, scratch: Path) -> Targets:
    """Return a server set's own labels as what students learn: all probability on the label (FedBE's ablation).

    Positions whose label is ignored are not learnt.

    Args:
        path: safetensors file with `labels` [S, *task.label_shape].
        task: of any kind.
        size: S, the number of its inputs.
        scratch: file for what does not fit into memory.

    Raises:
        JobFailure: schema_mismatch: no labels, not one for each sample, or one outside [0, C).
    """
    labels, num_classes = read_labels(path, "unlabeled", task), task.num_classes
    if len(labels) != size:
        raise JobFailure("schema_mismatch", f"the unlabeled data set has {len(labels)} labels for {size} samples")
    if task.kind == "regression":
        return Targets(labels)
    if task.kind == "multilabel":
        there = labels.unsqueeze(2) == torch.tensor([1, 0], dtype=labels.dtype)  # [S, C, 2]: there, not there
        return Targets(torch.where(there, 0.0, _NEVER))
    if task.positions:
        return _of_positions(labels.numpy(), task, scratch)
    wrong = labels[(labels < 0) | (labels >= num_classes)]
    if len(wrong):
        said = f"the unlabeled data set has label {int(wrong[0])}; wanted are 0 to {num_classes - 1}"
        raise JobFailure("schema_mismatch", said)
    logits = torch.full((size, num_classes), _NEVER)
    return Targets(logits.scatter_(1, labels.unsqueeze(1), 0.0))


def _of_positions(labels: NDArray[Any], task: Task, scratch: Path) -> Targets:
    """Return the targets of labels [S, P...]."""
    counted = labels != TASKS[task.kind].ignored
    logits = space((*labels.shape, task.num_classes), np.float32, scratch)
    for row, label, kept in zip(logits, labels, counted, strict=True):
        row[...] = _NEVER
        np.put_along_axis(row, np.where(kept, label, 0).astype(np.int64)[..., None], 0.0, axis=-1)
    return Targets(torch.from_numpy(logits), counted=torch.from_numpy(counted))


def rows_shape(task: Task) -> tuple[int, ...]:
    """Return the shape of `class_rows` of one sample."""
    return tuple(class_rows(torch.empty(1, *task.output_shape, device="meta"), task.kind).shape[1:])


def counted_in(inputs: Tensor, task: Task) -> Tensor | None:
    """Return which positions of token ids [S, L] are learnt and weighed, all but padding; None of other tasks."""
    return inputs != PADDING if task.kind == "tokens" else None
