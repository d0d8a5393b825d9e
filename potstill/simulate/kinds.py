"""What the labels of a data set are: the kind of its task, seen from them or said, and the strata they are dealt by."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from contract.faults import faults_of
from contract.labels import class_numbers
from contract.targets import conform
from contract.tasks import TASKS, TaskKind
from contract.wire.tasks import InputSpec, Task
from potstill.samples import Inputs, Labels, Strata
from potstill.simulate.config import SimulationError

TENTHS = 10
"""Strata of numbers: tenths of the samples, in the order of their values."""
DEALT_BY: dict[TaskKind, str] = {
    "classification": "class",
    "multilabel": "rarest label",
    "regression": "tenth of the values",
    "dense": "most frequent class beside the background",
    "tokens": "most frequent class beside the commonest",
}


def dtype_of(inputs: Inputs) -> Literal["int64", "float32"]:
    """Return what samples are: token ids or floats."""
    return "int64" if inputs.dtype.kind == "i" else "float32"


def seen(inputs: Inputs, labels: NDArray[Any], where: str) -> TaskKind:
    """Return the kind of task that labels can only be of.

    Args:
        inputs: [N, *shape].
        labels: [N, ...].
        where: of messages, what they begin with.

    Raises:
        SimulationError: they could be of several kinds, or are of none; the message names `--task`.
    """
    fractions = labels.dtype.kind == "f" and not np.array_equal(labels, np.floor(labels))
    shape, each = inputs.shape[1:], labels.shape[1:]
    if not each:
        return "regression" if fractions else "classification"
    as_tokens, as_pixels = inputs.dtype.kind == "i" and each == shape, len(shape) > 2 and each == shape[1:]
    flags, column = bool(np.isin(labels, (0, 1)).all()), len(each) == 1
    fitting: dict[TaskKind, bool] = {
        "multilabel": column and flags,
        "regression": column and (fractions or not (flags or as_tokens)),
        "dense": as_pixels and not fractions,
        "tokens": as_tokens and not fractions,
    }
    found = [kind for kind, fits in fitting.items() if fits]
    if len(found) == 1:
        return found[0]
    told = f"labels {labels.dtype} {list(labels.shape)} beside inputs {list(inputs.shape)}"
    if found:
        raise SimulationError(f"{where}: {told} could be of {' or '.join(found)}; say which with --task")
    known = "; ".join(f"{kind}: {row.labels}" for kind, row in TASKS.items())
    raise SimulationError(f"{where}: {told} are of no kind of task that --task names ({known})")


def task_of(kind: TaskKind, classes: int, inputs: Inputs, metric: str | None = None) -> Task:
    """Return the task of a data set.

    Raises:
        SimulationError: such labels and inputs make no task, or the kind has no such metric.
    """
    spec = InputSpec(shape=list(inputs.shape[1:]), dtype=dtype_of(inputs))
    try:
        return Task(kind=kind, num_classes=classes, input=spec, metric=metric)
    except ValidationError as error:
        where, message = faults_of(error)[0]
        raise SimulationError(": ".join(filter(None, ["data", where, message]))) from error


def checked(inputs: Inputs, labels: NDArray[Any], kind: TaskKind, where: str) -> tuple[Labels, Task]:
    """Return labels as their kind of task has them, and the task, whose C is what they show.

    Raises:
        SimulationError: the first label that does not fit; the message begins with `where`.
    """
    try:
        if kind == "classification":
            numbers = class_numbers(labels, len(inputs))
            return numbers, task_of(kind, int(numbers.max()) + 1, inputs)
        task = task_of(kind, _classes(labels, kind), inputs)
        return conform(labels, task), task
    except ValueError as error:
        raise SimulationError(f"{where}: {error}") from error


def _classes(labels: NDArray[Any], kind: TaskKind) -> int:
    """Return C; labels that are out of bounds are for `conform` to name."""
    if kind in ("multilabel", "regression"):
        return labels.shape[1] if labels.ndim > 1 else 1
    kept = labels[labels != TASKS[kind].ignored]
    return max(2, int(kept.max()) + 1) if kept.size else 2


def strata(labels: Labels, task: Task) -> Strata:
    """Return what samples are dealt by, [N], in S groups from 0.

    Classes of a classification; of several labels the rarest that a sample has, C where it has none; tenths of the
    first number; of positions the most frequent class but the one that most positions of the whole set have.
    """
    if task.kind == "classification":
        return np.asarray(labels, np.int64)
    if task.kind == "multilabel":
        rarest = np.argsort(labels.sum(axis=0), kind="stable")
        first = np.argmax(labels[:, rarest] > 0, axis=1)
        return np.where(labels.any(axis=1), rarest[first], task.num_classes)
    if task.kind == "regression":
        order = np.argsort(labels[:, 0], kind="stable")
        tenths = np.empty(len(labels), np.int64)
        tenths[order] = np.arange(len(labels)) * TENTHS // max(len(labels), 1)
        return tenths
    return _most_frequent(labels, task)


def _most_frequent(labels: Labels, task: Task) -> Strata:
    ignored, count = TASKS[task.kind].ignored, task.num_classes
    rows = (np.bincount(row[row != ignored].astype(np.int64), minlength=count) for row in labels)
    counts = np.stack(list(rows))
    common = int(counts.sum(axis=0).argmax())
    counts[:, common] = 0
    return np.where(counts.any(axis=1), counts.argmax(axis=1), common)
