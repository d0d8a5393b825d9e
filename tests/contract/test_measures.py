"""Figures of every kind of task: by hand, against slow references, in batches and at once."""

from typing import Any

import numpy as np
import pytest

from contract.measures import MOST_BY_CLASS, main_figure, meter
from contract.tasks import KINDS, TASKS
from contract.wire.federations import Task
from tests.reference import measures as slow

TASKS_OF: dict[str, Task] = {
    kind: Task.model_validate({"kind": kind, **rest})
    for kind, rest in {
        "classification": {"num_classes": 4, "input": {"shape": [3]}},
        "multilabel": {"num_classes": 3, "input": {"shape": [3]}},
        "regression": {"num_classes": 2, "input": {"shape": [3]}},
        "dense": {"num_classes": 3, "input": {"shape": [1, 4, 4]}},
        "tokens": {"num_classes": 5, "input": {"shape": [6], "dtype": "int64"}},
    }.items()
}


def drawn(kind: str, count: int = 11) -> tuple[np.ndarray, np.ndarray]:
    task, rng = TASKS_OF[kind], np.random.default_rng(3)
    outputs = rng.normal(size=(count, *task.output_shape)).round(1)  # rounded: some scores are tied
    shape = (count, *task.label_shape)
    if kind == "multilabel":
        return outputs, rng.integers(0, 2, shape).astype(np.uint8)
    if kind == "regression":
        return outputs, rng.normal(size=shape).astype(np.float32)
    labels = rng.integers(0, task.num_classes - (kind == "dense"), shape)  # the last class is only ever predicted
    if kind == "dense":
        labels[:, 0] = 255
    if kind == "tokens":
        labels[:, 4:] = -100
    return outputs, labels


def measured(kind: str, outputs: np.ndarray, labels: np.ndarray, batch: int = 100) -> dict[str, Any]:
    found = meter(TASKS_OF[kind])
    for start in range(0, len(labels), batch):
        found.add(outputs[start : start + batch], labels[start : start + batch])
    return found.figures()


@pytest.mark.parametrize("kind", KINDS)
def test_figures_do_not_hang_on_batches_and_have_all_metrics(kind: str) -> None:
    whole, cut = measured(kind, *drawn(kind)), measured(kind, *drawn(kind), batch=3)
    assert {metric.name for metric in TASKS[TASKS_OF[kind].kind].metrics} <= whole.keys() == cut.keys()
    for name in whole.keys() - {"by_class"}:
        assert cut[name] == pytest.approx(whole[name], rel=1e-12)
    assert main_figure(TASKS_OF[kind], whole) == whole[TASKS[TASKS_OF[kind].kind].metrics[0].name]


@pytest.mark.parametrize("kind", ["classification", "dense", "tokens"])
def test_classes_are_counted_as_the_reference_does(kind: str) -> None:
    outputs, labels = drawn(kind)
    task, ignored = TASKS_OF[kind], TASKS[TASKS_OF[kind].kind].ignored
    rows = np.moveaxis(outputs, 1, -1) if kind == "dense" else outputs
    pairs = [
        (int(label), list(map(float, logits)))
        for label, logits in zip(labels.ravel(), rows.reshape(-1, task.num_classes), strict=True)
        if label != ignored
    ]
    wanted, found = [label for label, _ in pairs], [logits.index(max(logits)) for _, logits in pairs]
    got = measured(kind, outputs, labels)
    f1 = [slow.f1(wanted, found, label) for label in range(task.num_classes)]
    right = sum(a == b for a, b in zip(wanted, found, strict=True)) / len(wanted)
    if kind == "dense":
        iou = [slow.iou(wanted, found, label) for label in range(task.num_classes)]
        assert got["by_class"] == pytest.approx(iou)
        assert (got["mean_iou"], got["dice"], got["pixel_accuracy"]) == pytest.approx(
            (slow.mean(iou), slow.mean(f1), right)
        )
        return
    assert (got["accuracy"], got["macro_f1"]) == pytest.approx((right, slow.mean(f1)))
    if kind == "tokens":
        nats = [slow.cross_entropy(logits, label) for label, logits in pairs]
        assert got["perplexity"] == pytest.approx(np.exp(sum(nats) / len(nats)))


def test_labels_are_counted_as_the_reference_does() -> None:
    outputs, labels = drawn("multilabel")
    got = measured("multilabel", outputs, labels)
    columns = [(labels[:, at].tolist(), (outputs[:, at] > 0).astype(int).tolist()) for at in range(3)]
    there, found = ([each for column in columns for each in column[side]] for side in range(2))
    assert got["micro_f1"] == pytest.approx(slow.f1(there, found, 1))
    assert got["by_class"] == pytest.approx([slow.f1(*column, 1) for column in columns])
    assert got["macro_f1"] == pytest.approx(slow.mean([slow.f1(*column, 1) for column in columns]))
    precisions = [slow.average_precision(outputs[:, at].tolist(), labels[:, at].tolist()) for at in range(3)]
    assert got["mean_average_precision"] == pytest.approx(slow.mean(precisions))


def test_average_precision_by_hand() -> None:
    """Ranks 1, 2, 3 hold a hit, a miss, a hit: 1/2 x 1 + 1/2 x 2/3 = 5/6; a label that nobody has is left out."""
    task = Task.model_validate({"kind": "multilabel", "num_classes": 2, "input": {"shape": [1]}})
    found = meter(task)
    found.add(np.array([[3.0, 1.0], [2.0, 1.0], [1.0, 1.0]]), np.array([[1, 0], [0, 0], [1, 0]]))
    assert found.figures()["mean_average_precision"] == pytest.approx(5 / 6)


def test_errors_are_counted_as_the_reference_does() -> None:
    outputs, labels = drawn("regression")
    got = measured("regression", outputs, labels, batch=4)
    errors = [a - b for a, b in zip(slow.flat(outputs.tolist()), slow.flat(labels.tolist()), strict=True)]
    assert got["rmse"] == pytest.approx((sum(each**2 for each in errors) / len(errors)) ** 0.5)
    assert got["mae"] == pytest.approx(sum(map(abs, errors)) / len(errors))
    columns = [slow.r2(outputs[:, at].tolist(), labels[:, at].tolist()) for at in range(2)]
    assert got["r2"] == pytest.approx(sum(columns) / 2, rel=1e-6)


def test_a_column_that_never_changes_has_no_deviations_to_explain() -> None:
    task = Task.model_validate({"kind": "regression", "num_classes": 2, "input": {"shape": [1]}})
    found = meter(task)
    found.add(np.array([[1.0, 2.0], [1.0, 2.5]]), np.array([[1.0, 2.0], [1.0, 2.0]], np.float32))
    assert found.figures()["r2"] == 0.5


def test_classes_by_themselves_are_shown_where_they_are_few() -> None:
    task = Task.model_validate({"num_classes": MOST_BY_CLASS + 1, "input": {"shape": [1]}})
    found = meter(task)
    found.add(np.eye(MOST_BY_CLASS + 1), np.arange(MOST_BY_CLASS + 1))
    assert found.figures() == {"accuracy": 1.0, "macro_f1": 1.0}


@pytest.mark.parametrize(("kind", "ignored"), [("dense", 255), ("tokens", -100)])
def test_what_is_not_labelled_at_all_cannot_be_measured(kind: str, ignored: int) -> None:
    outputs, labels = drawn(kind)
    with pytest.raises(ValueError, match="no position is labelled"):
        measured(kind, outputs, np.full_like(labels, ignored))
