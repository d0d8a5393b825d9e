"""Pseudo-labels: every teacher sees every server sample once, one teacher in memory at a time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contract.recipes.recipe import Distillation
from contract.tensors import TensorFile
from contract.wire.federations import Task
from worker.parts.combine import Stream, effective_teachers
from worker.parts.weigh import Float, entropy, log_weights, normalise
from worker.pipeline.networks import BATCH, build_network, count_right, outputs
from worker.specs import JobFailure, NetworkRef


@dataclass(frozen=True)
class Teacher:
    """One client's model, and the discriminator scores that say where it is at home."""

    client: str
    network: NetworkRef
    num_samples: int
    scores: Path | None = None


@dataclass(frozen=True)
class Ensemble:
    """What the teachers say of one set of S samples.

    Attributes:
        logits: float32 [S, C]; their softmax is the pseudo-label.
        weights: [m, S], float64, summing to 1 over the m teachers.
        forwards: samples that went through a teacher: m S.
    """

    logits: Tensor
    weights: Float
    forwards: int


@dataclass
class _Tally:
    """One data set on its way through the teachers."""

    inputs: Tensor
    stream: Stream
    rows: list[Float] = field(default_factory=list)
    forwards: int = 0


def _scores(teacher: Teacher, name: str, size: int) -> Float | None:
    if teacher.scores is None:
        return None
    with TensorFile(teacher.scores) as file:
        if name not in file.header.tensors:
            return None
        scores = file.read(name).astype(np.float64)
    if scores.shape != (size,):
        raise JobFailure(
            "schema_mismatch", f"scores of {teacher.client!r} on the {name} set: {scores.shape}, wanted ({size},)"
        )
    return scores


def _visit(teacher: Teacher, sets: Mapping[str, _Tally], distil: Distillation, task: Task, device: str) -> None:
    owner = f"update of {teacher.client!r}"
    module = build_network(teacher.network, task, device, owner=owner)
    for name, tally in sets.items():
        scores = _scores(teacher, name, len(tally.inputs))
        row = np.empty(len(tally.inputs))
        for start, logits in outputs(module, tally.inputs, device, owner=owner):
            rows = slice(start, start + len(logits))
            part = scores[rows] if scores is not None else None
            row[rows] = log_weights(distil.weigh, teacher.num_samples, logits, part)
            tally.stream.add(start, logits, row[rows])
            tally.forwards += len(logits)
        tally.rows.append(row)


def label(
    teachers: Sequence[Teacher],
    sets: Mapping[str, Tensor],
    distil: Distillation,
    task: Task,
    device: str,
    on_teacher: Callable[[int], None],
) -> dict[str, Ensemble]:
    """Let every teacher look once at every sample of every set (FedDF Alg. 1; FedGO Alg. 2, labels once per round).

    Memory: one teacher, [S, C] float64 per set, and [m, S] float64 for the weights.

    Args:
        teachers: in the order of their clients' names.
        sets: 'unlabeled' and perhaps 'test' -> inputs [S, ...].
        distil: the recipe's weighting and combination.
        task: the federation's.
        device: torch device.
        on_teacher: called with the number of teachers done.

    Raises:
        JobFailure: non_finite, naming the client; schema_mismatch; architecture_failed.
    """
    if not teachers:
        raise JobFailure("no_participants", "no client of this round can be a teacher")
    tallies = {
        name: _Tally(inputs, Stream(len(inputs), task.num_classes, distil.combine.kind))
        for name, inputs in sets.items()
    }
    for done, teacher in enumerate(teachers, start=1):
        _visit(teacher, tallies, distil, task, device)
        on_teacher(done)
    return {
        name: Ensemble(
            torch.from_numpy(tally.stream.logits().astype(np.float32)), normalise(np.stack(tally.rows)), tally.forwards
        )
        for name, tally in tallies.items()
    }


def describe(ensemble: Ensemble) -> dict[str, Any]:
    """Return figures of an ensemble: mean entropy of its labels in nats, how many teachers it comes from in effect."""
    effective = effective_teachers(ensemble.weights)
    return {
        "teachers": len(ensemble.weights),
        "entropy": float(entropy(ensemble.logits.double().numpy()).mean()),
        "effective_teachers": {"mean": float(effective.mean()), "min": float(effective.min())},
    }


def ensemble_accuracy(ensemble: Ensemble, labels: Tensor) -> float:
    """Return the share of samples whose pseudo-label has its maximum at the label."""
    right = 0
    for start in range(0, len(labels), BATCH):
        rows = slice(start, start + BATCH)
        right += count_right(ensemble.logits[rows].double().numpy(), labels[rows].numpy())
    return right / len(labels)
