"""Losses of every kind of task: against slow references, at ignored positions, and the rows that teachers share."""

import pytest
import torch
from torch import Tensor

from contract.nn import losses
from contract.tasks import KINDS
from contract.wire.federations import InputSpec, Task
from tests.reference import measures as slow

SHAPES = {
    "classification": ({"shape": [3]}, 4),
    "multilabel": ({"shape": [3]}, 3),
    "regression": ({"shape": [3]}, 2),
    "dense": ({"shape": [1, 2, 3]}, 3),
    "tokens": ({"shape": [5], "dtype": "int64"}, 4),
}


def task(kind: str, **more: float) -> Task:
    given, count = SHAPES[kind]
    return Task.model_validate({"kind": kind, "num_classes": count, "input": given} | more)


def drawn(kind: str) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(1)
    outputs = torch.randn(6, *task(kind).output_shape, generator=draw, requires_grad=True)
    if kind == "regression":
        return outputs, torch.randn(6, 2, generator=draw)
    top = 2 if kind == "multilabel" else task(kind).num_classes
    labels = torch.randint(top, (6, *task(kind).label_shape), generator=draw)
    if kind == "tokens":
        labels[:, 3:] = -100
        labels[0] = -100
    if kind == "dense":
        labels[1, 0] = 255
        labels = labels.to(torch.uint8)
    return outputs, labels.to(torch.uint8) if kind == "multilabel" else labels


@pytest.mark.parametrize("kind", ["classification", "dense", "tokens"])
def test_cross_entropy_is_the_mean_over_labelled_positions(kind: str) -> None:
    outputs, labels = drawn(kind)
    rows = losses.flat_rows(outputs, task(kind).kind).tolist()
    kept = [(logits, int(label)) for logits, label in zip(rows, labels.flatten(), strict=True) if 0 <= label < 200]
    wanted = sum(slow.cross_entropy(logits, label) for logits, label in kept) / len(kept)
    assert losses.hard(outputs, labels, task(kind)).item() == pytest.approx(wanted, rel=1e-5)


def test_labels_and_values() -> None:
    outputs, labels = drawn("multilabel")
    pairs = zip(outputs.flatten().tolist(), labels.flatten().tolist(), strict=True)
    wanted = sum(slow.binary_cross_entropy(*pair) for pair in pairs) / labels.numel()
    assert losses.hard(outputs, labels, task("multilabel")).item() == pytest.approx(wanted, rel=1e-5)
    values, targets = drawn("regression")
    errors = (values - targets).flatten().tolist()
    assert losses.hard(values, targets, task("regression")).item() == pytest.approx(
        sum(each**2 for each in errors) / len(errors), rel=1e-5
    )
    huber = sum(slow.huber(each, 0.7) for each in errors) / len(errors)
    assert losses.hard(values, targets, task("regression", huber=0.7)).item() == pytest.approx(huber, rel=1e-5)
    assert losses.error(values, targets, 0.7).item() == pytest.approx(huber, rel=1e-5)


@pytest.mark.parametrize(("kind", "ignored"), [("dense", 255), ("tokens", -100)])
def test_a_batch_without_labels_moves_nothing(kind: str, ignored: int) -> None:
    outputs, labels = drawn(kind)
    loss = losses.hard(outputs, torch.full_like(labels, ignored), task(kind))
    loss.backward()
    assert float(loss.detach()) == 0 and outputs.grad is not None and not outputs.grad.any()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_come_back_as_outputs(kind: str) -> None:
    outputs, _ = drawn(kind)
    rows = losses.class_rows(outputs, task(kind).kind)
    torch.testing.assert_close(losses.from_class_rows(rows, task(kind).kind), outputs)


def test_two_classes_of_a_label_are_its_probability() -> None:
    outputs, _ = drawn("multilabel")
    there = losses.class_rows(outputs, "multilabel").softmax(-1)[..., 0]
    torch.testing.assert_close(there, outputs.sigmoid())


@pytest.mark.parametrize("kind", KINDS)
def test_hits_are_counted_where_there_is_a_label(kind: str) -> None:
    outputs, labels = drawn(kind)
    right, seen = (int(each) for each in losses.hits(outputs, labels, task(kind)))
    assert (kind == "regression") == (seen == 0) and 0 <= right <= seen
    if kind in ("dense", "tokens"):
        found = losses.flat_rows(outputs, task(kind).kind).argmax(-1).tolist()
        kept = [(a, b) for a, b in zip(found, labels.flatten().tolist(), strict=True) if 0 <= b < 200]
        assert (right, seen) == (sum(a == b for a, b in kept), len(kept))


def test_inputs_are_normalised_by_channel_and_floats_are_left_alone() -> None:
    spec = InputSpec(shape=[2, 1, 2], dtype="uint8", mean=[0.0, 100.0], scale=[255.0, 50.0])
    given = torch.tensor([[[[0, 255]], [[100, 200]]]], dtype=torch.uint8)
    assert losses.normalised(given, spec).tolist() == [[[[0.0, 1.0]], [[0.0, 2.0]]]]
    plain = torch.randn(2, 3)
    assert losses.normalised(plain, InputSpec(shape=[3])) is plain
    halves = losses.normalised(plain.half(), InputSpec(shape=[3], dtype="float16"))
    assert halves.dtype == torch.float32 and torch.equal(halves, plain.half().float())
