"""What is measured of a model on labelled data, kind by kind: batches in, figures out (`contract.tasks.TASKS`).

B samples of a batch, P their positions together, C classes or columns. float64; sums are exact where they are counts.
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from contract.guard import fault, theirs
from contract.metrics import MetricChoice
from contract.tasks import TASKS
from contract.wire.tasks import Task

Floats = NDArray[np.floating[Any]]
Float64 = NDArray[np.float64]
MOST_BY_CLASS = 64
"""Figures of single classes are given where there are no more."""


class Meter(Protocol):
    """Takes a data set batch by batch."""

    def add(self, outputs: Floats, labels: NDArray[Any]) -> None:
        """Take outputs [B, *task.output_shape] and labels [B, *task.label_shape]."""

    def figures(self) -> dict[str, Any]:
        """Return the task's metrics by name; `by_class` beside them where there are few classes.

        Raises:
            ValueError: nothing that is labelled was added.
        """


class Figure(Protocol):
    """What measures by a `MetricChoice`: it takes a data set batch by batch, and hangs not on where batches are cut."""

    def add(self, outputs: Float64, labels: NDArray[Any]) -> None:
        """Take a network's outputs [B, ...], float64, and labels [B, ...]."""

    def value(self) -> float:
        """Return the figure of all that was added."""


def value_of(choice: MetricChoice, figure: Figure) -> float:
    """Return a figure's value, finite or not.

    Raises:
        PluginFault: it is of another package, and raised an error or is no number.
    """
    with theirs(choice):
        value = figure.value()
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise fault(choice, f"measured {type(value).__name__}, which is no number") from error


def meter(task: Task) -> Meter:
    """Return what measures a task."""
    if task.kind == "regression":
        return _Errors(task)
    return _Labels(task) if task.kind == "multilabel" else _Classes(task)


def log_softmax(logits: Float64) -> Float64:
    """Return log softmax over the last axis of logits [..., C], with the maximum taken off first."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def softmax(logits: Float64) -> Float64:
    """Return softmax over the last axis of logits [..., C]."""
    return np.asarray(np.exp(log_softmax(logits)))


def main_figure(task: Task, figures: dict[str, Any]) -> float:
    """Return the value of a task's main metric."""
    return float(figures[task.main_metric.name])


def f1_of(hits: Floats, labelled: Floats, predicted: Floats) -> NDArray[np.float64]:
    """Return F1 = 2 tp / (labelled + predicted) of each class, NaN for one that is neither; counts [C]."""
    with np.errstate(invalid="ignore"):
        return np.asarray(2.0 * hits / (labelled + predicted))


def _mean(values: Floats) -> float:
    """Return the mean over the classes that are there; 0 where none is."""
    there = values[np.isfinite(values)]
    return float(there.mean()) if len(there) else 0.0


def _shown(values: Floats) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


def average_precision(scores: Floats, there: NDArray[np.bool_]) -> float:
    """Return sum_n (R_n - R_(n-1)) P_n over the distinct scores, highest first; NaN where no sample has the label.

    Args:
        scores: [N].
        there: which samples have the label [N].
    """
    order = np.argsort(-scores, kind="stable")
    sorted_scores, hits = scores[order], np.cumsum(there[order])
    if not len(hits) or hits[-1] == 0:
        return float("nan")
    ends = np.flatnonzero(np.append(np.diff(sorted_scores) != 0, True))  # samples of one score come together
    precision, recall = hits[ends] / (ends + 1), hits[ends] / hits[-1]
    return float((np.diff(recall, prepend=0.0) * precision).sum())


class _Classes:
    """Classification, dense and tokens: counts by class, ignored positions left out; ties go to the lowest class."""

    def __init__(self, task: Task):
        self._task, self._ignored = task, TASKS[task.kind].ignored
        self._axis = -1 if task.kind == "tokens" else 1
        self._hits, self._labelled, self._predicted = (np.zeros(task.num_classes) for _ in range(3))
        self._nats = 0.0

    def add(self, outputs: Floats, labels: NDArray[Any]) -> None:
        """Take logits and labels."""
        kept = np.ones(labels.shape, bool) if self._ignored is None else labels != self._ignored
        wanted, found = labels[kept].astype(np.int64), outputs.argmax(axis=self._axis)[kept]
        count = self._task.num_classes
        self._labelled += np.bincount(wanted, minlength=count)
        self._predicted += np.bincount(found, minlength=count)
        self._hits += np.bincount(wanted[wanted == found], minlength=count)
        if self._task.kind == "tokens":
            logits = np.asarray(outputs[kept], np.float64)  # [P, C]
            logits = logits - logits.max(axis=1, keepdims=True)
            chosen = np.take_along_axis(logits, wanted[:, None], 1)[:, 0]
            self._nats += float((np.log(np.exp(logits).sum(axis=1)) - chosen).sum())

    def figures(self) -> dict[str, Any]:
        """Return accuracy, or pixel accuracy with IoU and Dice, F1 and perplexity."""
        seen = self._labelled.sum()
        if not seen:
            raise ValueError("no position is labelled; every label is the one that is ignored")
        right, f1 = float(self._hits.sum() / seen), f1_of(self._hits, self._labelled, self._predicted)
        if self._task.kind == "dense":
            with np.errstate(invalid="ignore"):
                iou = self._hits / (self._labelled + self._predicted - self._hits)
            found = {"mean_iou": _mean(iou), "dice": _mean(f1), "pixel_accuracy": right}
            return found | self._by_class(iou)
        found = {"accuracy": right, "macro_f1": _mean(f1)}
        if self._task.kind == "tokens":
            with np.errstate(over="ignore"):
                found["perplexity"] = float(min(np.exp(self._nats / seen), np.finfo(np.float64).max))
        return found | self._by_class(f1)

    def _by_class(self, values: Floats) -> dict[str, Any]:
        return {"by_class": _shown(values)} if len(values) <= MOST_BY_CLASS else {}


class _Labels:
    """Multilabel: counts by label at a logit of 0, and all scores for the average precision [N, C] float32."""

    def __init__(self, task: Task):
        self._hits, self._labelled, self._predicted = (np.zeros(task.num_classes) for _ in range(3))
        self._scores: list[NDArray[np.float32]] = []
        self._there: list[NDArray[np.bool_]] = []

    def add(self, outputs: Floats, labels: NDArray[Any]) -> None:
        """Take logits [B, C] and labels [B, C]."""
        there, found = labels == 1, outputs > 0
        self._labelled += there.sum(axis=0)
        self._predicted += found.sum(axis=0)
        self._hits += (there & found).sum(axis=0)
        self._scores.append(outputs.astype(np.float32))
        self._there.append(there)

    def figures(self) -> dict[str, Any]:
        """Return micro and macro F1 and the mean average precision; F1 is 0 where nothing is there nor predicted."""
        if not self._scores:
            raise ValueError("there is no sample")
        f1 = f1_of(self._hits, self._labelled, self._predicted)
        micro = f1_of(*(np.atleast_1d(each.sum()) for each in (self._hits, self._labelled, self._predicted)))
        scores, there = np.concatenate(self._scores), np.concatenate(self._there)
        precisions = [average_precision(scores[:, label], there[:, label]) for label in range(scores.shape[1])]
        found = {
            "micro_f1": _mean(micro),
            "macro_f1": _mean(f1),
            "mean_average_precision": _mean(np.array(precisions)),
        }
        return found | ({"by_class": _shown(f1)} if len(f1) <= MOST_BY_CLASS else {})


class _Errors:
    """Regression: sums of errors, and of each column the running mean and squared deviations (Chan et al. 1979)."""

    def __init__(self, task: Task):
        self._count = 0
        self._squares, self._absolute, self._mean, self._spread = (np.zeros(task.num_classes) for _ in range(4))

    def add(self, outputs: Floats, labels: NDArray[Any]) -> None:
        """Take values [B, C] and labels [B, C]."""
        wanted = labels.astype(np.float64)
        errors = np.asarray(outputs, np.float64) - wanted
        self._squares += (errors**2).sum(axis=0)
        self._absolute += np.abs(errors).sum(axis=0)
        before, added = self._count, len(wanted)
        shift = wanted.mean(axis=0) - self._mean
        self._count += added
        self._spread += ((wanted - wanted.mean(axis=0)) ** 2).sum(axis=0) + shift**2 * before * added / self._count
        self._mean += shift * added / self._count

    def figures(self) -> dict[str, Any]:
        """Return RMSE, MAE and R2; a column without deviations counts 1 where it is exact, else 0."""
        if not self._count:
            raise ValueError("there is no sample")
        with np.errstate(divide="ignore", invalid="ignore"):
            r2 = np.where(self._spread > 0, 1 - self._squares / self._spread, (self._squares == 0) * 1.0)
        total = self._count * len(self._squares)
        return {
            "rmse": float(np.sqrt(self._squares.sum() / total)),
            "mae": float(self._absolute.sum() / total),
            "r2": float(r2.mean()),
        }
