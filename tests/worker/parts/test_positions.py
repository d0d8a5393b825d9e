"""Teachers of many positions: labels of large sets in files, weights as means over positions, positions left out."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contract.measures import softmax
from contract.nn.losses import class_rows, flat_rows
from contract.recipes import parts
from tests.reference import measures as slow
from worker.parts import objectives, space
from worker.parts.combine import Form, Mean
from worker.parts.weigh import entropy, log_variance, log_weights
from worker.pipeline.targets import Targets
from worker.registry import implements

SHAPE = (3, 2, 4)  # positions 3 x 2, four classes
COMBINERS = [parts.CombineLogits(), parts.CombineProbs(sharpen=2.0), parts.CombineEra()]


def made(choice: Any, logits: np.ndarray, weights: np.ndarray, folder: Path) -> Any:
    form = Form(logits.shape[1], logits.shape[2:], "dense")
    with ExitStack() as stack:
        combiner: Mean = implements.of(choice)(choice, form, folder / "sums", stack)
        for each, row in zip(logits, np.log(weights), strict=True):
            for start in range(0, len(row), 3):
                combiner.add(start, each[start : start + 3], row[start : start + 3])
        return combiner.result(weights).logits


@pytest.mark.parametrize("choice", COMBINERS, ids=lambda choice: choice.kind)
def test_each_position_is_combined_as_a_sample_of_its_own_would_be(choice: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    logits, weights = rng.normal(size=(3, 5, *SHAPE)), rng.dirichlet(np.ones(3), 5).T
    whole = made(choice, logits, weights, tmp_path)
    for position in np.ndindex(SHAPE[:2]):
        alone = made(choice, np.ascontiguousarray(logits[:, :, *position]), weights, tmp_path)
        np.testing.assert_allclose(softmax(whole[:, *position]), softmax(alone), rtol=1e-12)


@pytest.mark.parametrize("choice", COMBINERS, ids=lambda choice: choice.kind)
def test_a_large_set_lies_in_a_file_and_has_the_same_labels(
    choice: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    logits, weights = rng.normal(size=(2, 40, *SHAPE)), rng.dirichlet(np.ones(2), 40).T
    held = made(choice, logits, weights, tmp_path)
    monkeypatch.setattr(space, "HELD", 100)
    filed = made(choice, logits, weights, tmp_path)
    assert isinstance(filed, np.memmap) and not isinstance(held, np.memmap)
    assert filed.dtype == np.float32 and filed.tobytes() == held.astype(np.float32).tobytes()
    assert not list(tmp_path.iterdir())  # the files have no names any longer
    targets = Targets(torch.from_numpy(filed))
    assert targets.to("cpu") is targets
    assert torch.equal(targets[torch.tensor([3, 1])].logits, torch.from_numpy(np.asarray(filed[[3, 1]])))


def test_a_regression_averages_values(tmp_path: Path) -> None:
    choice = parts.CombineLogits()
    combiner = implements.of(choice)(choice, Form(1, (2,), "regression"), tmp_path / "sums", ExitStack())
    for values, weight in (([[1.0, 10.0]], 0.25), ([[5.0, 30.0]], 0.75)):
        combiner.add(0, np.array(values), np.log([weight]))
    np.testing.assert_allclose(combiner.result(np.array([[0.25], [0.75]])).logits, [[4.0, 25.0]], rtol=1e-12)


def test_confidence_is_the_mean_over_the_positions_that_are_there() -> None:
    logits = np.random.default_rng(2).normal(size=(4, 3, 5))
    gaps = logits.copy()
    gaps[0, 2] = gaps[1] = np.nan  # one position of a sample, all of another
    for given, kept in ((logits, 3), (gaps, 2)):
        by_entropy = log_weights(parts.WeighEntropy(tau=0.5), 1, given, None)
        by_variance = log_weights(parts.WeighVariance(), 1, given, None)
        assert by_entropy[0] == pytest.approx(-np.mean([entropy(logits[0, at]) for at in range(kept)]) / 0.5)
        assert by_variance[0] == pytest.approx(np.log(np.mean([softmax(logits[0, at]).var() for at in range(kept)])))
    assert by_entropy[1] == 0 and by_variance[1] == -np.inf


def test_binary_confidence_of_labels() -> None:
    outputs = torch.tensor([[0.0, 2.0]], dtype=torch.float64)
    rows = class_rows(outputs, "multilabel").numpy()
    p = 1 / (1 + np.exp(-2.0))
    mean = (np.log(2) - p * np.log(p) - (1 - p) * np.log(1 - p)) / 2
    assert log_weights(parts.WeighEntropy(), 1, rows, None) == pytest.approx([-mean])
    assert np.exp(log_variance(rows)) == pytest.approx(np.array([[0.0, (p - 0.5) ** 2]]))


def test_students_of_labels_learn_bernoulli_divergences() -> None:
    draw = torch.Generator().manual_seed(0)
    student, teacher = torch.randn(2, 4, 3, generator=draw, dtype=torch.float64)
    rows, targets = Targets(class_rows(teacher, "multilabel")).beside(flat_rows(student, "multilabel"))
    pairs = zip(teacher.flatten().tolist(), student.flatten().tolist(), strict=True)
    wanted = sum(slow.binary_kl(*pair) for pair in pairs) / 12
    assert float(objectives.kl(rows, targets.logits)) == pytest.approx(wanted)


def test_students_skip_positions_that_do_not_count() -> None:
    draw = torch.Generator().manual_seed(0)
    student = torch.randn(2, 3, 4, generator=draw, requires_grad=True)
    teacher = torch.randn(2, 3, 4, generator=draw)
    counted = torch.tensor([[True, True, False], [False, False, False]])
    rows, targets = Targets(teacher, counted=counted).beside(flat_rows(student, "tokens"))
    assert torch.equal(rows, student[0, :2]) and torch.equal(targets.logits, teacher[0, :2])
    rows, targets = Targets(teacher, counted=counted)[torch.tensor([1])].beside(flat_rows(student[1:], "tokens"))
    loss = objectives.kl(rows, targets.logits)
    loss.backward()
    assert float(loss.detach()) == 0 and student.grad is not None and not student.grad.any()
