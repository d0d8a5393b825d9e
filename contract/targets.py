"""Labels held against a task: their shape and their values; `contract.labels` has the rule of whole numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.labels import not_whole
from contract.tasks import TASKS
from contract.wire.tasks import Task


def conform(labels: NDArray[Any], task: Task, rows: Sequence[int] | None = None) -> NDArray[Any]:
    """Return labels as a task has them: [B, *task.label_shape], uint8 (multilabel, dense), float32 or int64.

    A task of one label or one number a sample takes [B], too.

    Args:
        labels: [B, ...], any kind of number.
        task: of any kind.
        rows: which samples of the data set these are; by default the first ones.

    Raises:
        ValueError: names the first sample that does not fit, and the remedy.
    """
    shape = (len(labels), *task.label_shape)
    if labels.dtype.kind not in "biuf":
        raise ValueError(f"labels are no numbers ({labels.dtype}); send {TASKS[task.kind].labels}")
    if labels.shape != shape and labels.size == np.prod(shape) and task.label_shape == (1,):
        labels = labels.reshape(shape)
    if labels.shape != shape:
        raise ValueError(
            f"labels of one sample have shape {list(labels.shape[1:])}, wanted is {list(task.label_shape)}: a task of "
            f"kind {task.kind!r} takes {TASKS[task.kind].labels}, C = {task.num_classes}"
            f"{reshaping(labels.shape[1:], task)}"
        )
    if task.kind == "regression":
        return _finite(labels, rows)
    return _whole(labels, task, rows)


def reshaping(shape: Sequence[int], task: Task) -> str:
    """Return what makes labels of this shape a sample the task's, as the end of a sentence; "" where nothing does.

    Args:
        shape: of one sample's labels, not the task's.
        task: of any kind.
    """
    have, wanted, count = list(shape), list(task.label_shape), task.num_classes
    if have == [1, *wanted]:
        return "; take y[:, 0]"
    if have == [*wanted, 1]:
        return "; take y[..., 0]"
    if task.kind in ("multilabel", "regression"):
        from_numbers = task.kind == "multilabel" and not have
        return f"; class numbers become that by numpy.eye({count})[y]" if from_numbers else ""
    if have == [count, *wanted]:
        return "; one-hot labels become that by argmax(1)"
    if have == [*wanted, count]:
        return "; one-hot labels become that by argmax(-1)"
    resized = task.kind == "dense" and len(have) == len(wanted)
    return "; resize the masks as the inputs are, by nearest neighbour" if resized else ""


def check_labelled(labels: NDArray[Any], task: Task) -> str:
    """Refuse labels of which none counts; return what looks like a mistake in those that do, or "".

    Masks in black and white (0 and 255) are such: their foreground is what counts nowhere.

    Args:
        labels: all of a data set's, as `conform` returns them.
        task: of any kind.

    Raises:
        ValueError: every label is the one that is ignored.
    """
    ignored = TASKS[task.kind].ignored
    if ignored is None or not labels.size:
        return ""
    counts = labels != ignored
    if not counts.any():
        raise ValueError(f"labels are all {ignored}, which counts nowhere; label some positions, from 0")
    return black_and_white(labels) if task.kind == "dense" else ""


def black_and_white(labels: NDArray[Any]) -> str:
    """Return what looks like a mistake in masks of 0 and 255 alone, or "".

    Args:
        labels: classes of pixels or voxels, whole numbers.
    """
    ignored = TASKS["dense"].ignored
    counts = labels != ignored
    if counts.all() or not counts.any() or (counts & (labels != 0)).any():
        return ""
    return f"labels are 0 or {ignored} alone, and {ignored} counts nowhere; is it a class of yours, number it 1"


def _finite(labels: NDArray[Any], rows: Sequence[int] | None) -> NDArray[np.float32]:
    if labels.dtype.kind == "b":
        raise ValueError("labels are truth values, wanted are numbers; for those take kind 'multilabel'")
    with np.errstate(over="ignore"):
        made = labels.astype(np.float32)
    _refuse(~np.isfinite(made), labels, rows, "every value is to be a finite float32; leave the sample out")
    return made


def _whole(labels: NDArray[Any], task: Task, rows: Sequence[int] | None) -> NDArray[Any]:
    for wrong, remedy in not_whole(labels):
        _refuse(wrong, labels, rows, remedy)
    if task.kind == "multilabel":
        _refuse((labels != 0) & (labels != 1), labels, rows, "a label is there, 1, or not, 0; make yours 0 or 1")
        return labels.astype(np.uint8)
    ignored = TASKS[task.kind].ignored
    kept = np.ones(labels.shape, np.bool_) if ignored is None else labels != ignored
    besides = "" if ignored is None else f", and {ignored} is ignored"
    remedy = f"the federation's {task.num_classes} classes are 0 to {task.num_classes - 1}{besides}; map yours to these"
    _refuse(kept & ((labels < 0) | (labels >= task.num_classes)), labels, rows, remedy)
    return labels.astype(np.uint8 if task.kind == "dense" else np.int64)


def _refuse(wrong: NDArray[np.bool_], labels: NDArray[Any], rows: Sequence[int] | None, remedy: str) -> None:
    if not wrong.any():
        return
    at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    sample = int(at[0]) if rows is None else rows[int(at[0])]
    where = f" at {[int(index) for index in at[1:]]}" if len(at) > 1 else ""
    raise ValueError(f"sample {sample} has label {labels[at]:g}{where}; {remedy}")
