"""A server set's own labels as what students learn, of every position."""

from pathlib import Path

import numpy as np
import pytest
import torch

from contract.nn.losses import class_rows, flat_rows
from contract.tasks import TaskKind
from contract.tensors import write_file
from contract.wire.tasks import InputSpec, Task
from worker.parts import objectives, space
from worker.pipeline.targets import own_targets
from worker.specs import JobFailure

DENSE = Task(kind="dense", num_classes=3, input=InputSpec(shape=[1, 4, 4]))
TOKENS = Task(kind="tokens", num_classes=5, input=InputSpec(shape=[6], dtype="int64"))


def labels_of(task: Task, count: int, ignored: int) -> np.ndarray:
    random = np.random.default_rng(0)
    labels = random.integers(0, task.num_classes, (count, *task.label_shape))
    labels[random.random(labels.shape) < 0.3] = ignored
    return labels.astype(np.uint8 if task.kind == "dense" else np.int64)


@pytest.mark.parametrize(("task", "ignored"), [(DENSE, 255), (TOKENS, -100)])
@pytest.mark.parametrize("held", [space.HELD, 16])
def test_students_of_labelled_positions_minimise_cross_entropy(
    task: Task, ignored: int, held: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KL to a label is -log p(label): the mean over all labelled positions, in memory as in a file."""
    monkeypatch.setattr(space, "HELD", held)
    labels = labels_of(task, 7, ignored)
    write_file(tmp_path / "own.safetensors", {"labels": labels})
    found = own_targets(tmp_path / "own.safetensors", task, 7, tmp_path / "scratch")
    assert not (tmp_path / "scratch").exists(), "the file goes with the array"
    rows = torch.tensor([5, 0, 3])
    outputs = torch.from_numpy(np.random.default_rng(1).normal(size=(3, *task.output_shape)).astype(np.float32))
    student, targets = found[rows].beside(flat_rows(outputs, task.kind))
    wanted = torch.from_numpy(labels[rows.numpy()].astype(np.int64))
    expected = torch.nn.functional.cross_entropy(
        class_rows(outputs, task.kind).movedim(-1, 1), wanted, ignore_index=ignored
    )
    assert len(student) == int((wanted != ignored).sum())
    torch.testing.assert_close(objectives.kl(student, targets.logits, 1.0, True), expected)
    torch.testing.assert_close(objectives.soft_cross_entropy(student, targets.logits.softmax(1)), expected)


@pytest.mark.parametrize("task", [DENSE, TOKENS])
def test_a_batch_without_labelled_positions_teaches_nothing(task: Task, tmp_path: Path) -> None:
    ignored: dict[TaskKind, int] = {"dense": 255, "tokens": -100}
    labels = np.full((2, *task.label_shape), ignored[task.kind], np.int64)
    labels[1] = 0
    write_file(tmp_path / "own.safetensors", {"labels": labels})
    found = own_targets(tmp_path / "own.safetensors", task, 2, tmp_path / "scratch")
    outputs = torch.ones(2, *task.output_shape, requires_grad=True)
    student, targets = found[torch.tensor([0, 0])].beside(flat_rows(outputs, task.kind))
    objectives.kl(student, targets.logits, 1.0, True).backward()
    assert outputs.grad is not None and not outputs.grad.any()


def test_labels_that_are_no_classes_are_named(tmp_path: Path) -> None:
    labels = labels_of(DENSE, 4, 255)
    labels[2, 1, 3] = 3
    write_file(tmp_path / "own.safetensors", {"labels": labels})
    with pytest.raises(JobFailure, match=r"sample 2 has label 3 at \[1, 3\]; .*classes are 0 to 2, and 255 is ignored"):
        own_targets(tmp_path / "own.safetensors", DENSE, 4, tmp_path / "scratch")
    with pytest.raises(JobFailure, match="has 4 labels for 5 samples|label 3"):
        own_targets(tmp_path / "own.safetensors", DENSE, 5, tmp_path / "scratch")
