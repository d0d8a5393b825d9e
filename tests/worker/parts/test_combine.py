"""Pseudo-labels of teachers that come one after another: by hand, against slow references, at extremes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from contract import measures
from contract.recipes import parts
from tests.reference import ensembles as slow
from tests.teachers import combined, target
from worker.parts import combine, weigh
from worker.parts.errors import PartError

NOWHERE = Path("never-made")
LOGITS, PROBS, CONSENSUS = parts.CombineLogits(), parts.CombineProbs(), parts.CombineConsensus()
SHARPENED, ERA = parts.CombineProbs(sharpen=2.0), parts.CombineEra(temperature=0.1)
SLOW: list[tuple[Any, Any]] = [
    (LOGITS, slow.average_logits),
    (PROBS, slow.average_probs),
    (SHARPENED, lambda logits, weights: slow.sharpened(slow.average_probs(logits, weights), 2.0)),
    (ERA, lambda logits, weights: slow.era(slow.average_probs(logits, weights), 0.1)),
    (CONSENSUS, lambda logits, weights: slow.average_probs(logits, weights)),
]
every_combiner = pytest.mark.parametrize(("choice", "reference"), SLOW, ids=lambda each: getattr(each, "kind", ""))


def test_logits_by_hand() -> None:
    """1/4 (4, 0) + 3/4 (0, 8) = (1, 6)."""
    got = target(LOGITS, [[[4.0, 0.0]], [[0.0, 8.0]]], [[0.25], [0.75]])
    np.testing.assert_allclose(got, [slow.softmax([1.0, 6.0])], rtol=1e-12)


def test_probs_by_hand() -> None:
    """1/4 (3/4, 1/4) + 3/4 (1/2, 1/2) = (9/16, 7/16)."""
    got = target(PROBS, [[[np.log(3), 0.0]], [[2.0, 2.0]]], [[0.25], [0.75]])
    np.testing.assert_allclose(got, [[9 / 16, 7 / 16]], rtol=1e-12)


def test_sharpening_by_hand() -> None:
    """(0.8, 0.2) squared is (0.64, 0.04): 16/17 and 1/17; ties stay ties."""
    np.testing.assert_allclose(target(SHARPENED, [[[np.log(4), 0.0]]]), [[16 / 17, 1 / 17]], rtol=1e-12)
    np.testing.assert_allclose(target(SHARPENED, [[[9.0, 9.0, -1e4]]]), [[0.5, 0.5, 0.0]], rtol=1e-12, atol=1e-12)


def test_entropy_reduction_sharpens_and_keeps_ties() -> None:
    even = np.log([[[0.5, 0.3, 0.2]], [[0.3, 0.5, 0.2]]])
    np.testing.assert_allclose(target(parts.CombineEra(temperature=1e-3), even), [[0.5, 0.5, 0.0]], atol=1e-12)
    assert weigh.entropy(combined(ERA, np.log([[[0.6, 0.3, 0.1]]])).logits) < 0.25


WEIGHTS = arrays(np.float64, (4, 5), elements=st.sampled_from([0.0, 1e-300, 0.1, 0.5, 1.0])).filter(
    lambda weights: (weights.sum(axis=0) > 0).all()
)


@every_combiner
@given(arrays(np.float64, (4, 5, 3), elements=st.floats(-40, 40, width=32)), WEIGHTS, st.integers(1, 6))
def test_streamed_labels_are_the_slow_ones(
    choice: Any, reference: Any, logits: np.ndarray, weights: np.ndarray, batch: int
) -> None:
    """Whatever the order of magnitude of the weights and the size of a batch."""
    shares = weights / weights.sum(axis=0)
    got = target(choice, logits, shares, batch)
    np.testing.assert_allclose(got, reference(logits, shares), rtol=1e-6, atol=1e-9)


@every_combiner
@given(arrays(np.float64, (3, 2, 4), elements=st.floats(-20, 20, width=32)), st.permutations([0, 1, 2]))
def test_the_order_of_teachers_does_not_matter(
    choice: Any, reference: Any, logits: np.ndarray, order: list[int]
) -> None:
    np.testing.assert_allclose(target(choice, logits[order]), target(choice, logits), rtol=1e-9, atol=1e-12)


@every_combiner
def test_one_teacher_is_the_ensemble_and_equal_ones_are_one(choice: Any, reference: Any) -> None:
    one = np.random.default_rng(0).normal(size=(1, 4, 3)).astype(np.float32)
    np.testing.assert_allclose(target(choice, one), reference(one, [[1.0] * 4]), rtol=1e-9)
    np.testing.assert_allclose(target(choice, np.repeat(one, 3, axis=0)), target(choice, one), rtol=1e-9)


@given(
    logits=arrays(np.float64, (3, 2, 4), elements=st.floats(-50, 50)),
    shift=arrays(np.float64, (3, 2, 1), elements=st.floats(-1e4, 1e4)),
)
def test_each_teacher_may_shift_its_logits(logits: np.ndarray, shift: np.ndarray) -> None:
    shares = np.array([[1 / 6] * 2, [2 / 6] * 2, [3 / 6] * 2])
    np.testing.assert_allclose(
        target(LOGITS, logits + shift, shares), target(LOGITS, logits, shares), rtol=1e-8, atol=1e-12
    )


def test_logits_of_ten_thousand_keep_their_differences() -> None:
    got = target(LOGITS, [[[1e4, 1e4 + 1]], [[-1e4, -1e4 + 1]]])
    np.testing.assert_allclose(got, [slow.softmax([0.0, 1.0])], rtol=1e-9)
    assert np.isfinite(target(PROBS, [[[1e300, -1e300]], [[3.0, 2.0]]])).all()


@pytest.mark.parametrize("choice", [LOGITS, PROBS])
@pytest.mark.parametrize("first", [0, 1])
def test_a_teacher_of_weight_zero_is_skipped_not_multiplied(choice: Any, first: int) -> None:
    logits, shares = [[[np.nan, np.inf]], [[2.0, 0.0]]], [[0.0], [1.0]]
    order = [first, 1 - first]
    got = target(choice, np.asarray(logits)[order], np.asarray(shares)[order])
    np.testing.assert_allclose(got, [slow.softmax([2.0, 0.0])], rtol=1e-12)


def test_where_nobody_has_weight_all_who_can_be_read_count_alike() -> None:
    """Weights of 0 are log weights of -inf: as Fed-ET has them where every output is flat."""
    logits = [[[1.0, 0.0]], [[3.0, 0.0]], [[np.nan, 0.0]]]
    np.testing.assert_allclose(target(LOGITS, logits, np.zeros((3, 1))), [slow.softmax([2.0, 0.0])], rtol=1e-12)


def test_a_stream_goes_on_from_its_state() -> None:
    logits = np.random.default_rng(1).normal(size=(3, 4, 2))
    whole, begun = (combine.Mean(combine.Form(4, (2,)), NOWHERE, combine.centred) for _ in range(2))
    for each in logits:
        whole.add(0, each, np.zeros(4))
    begun.add(0, logits[0], np.zeros(4))
    going_on = combine.Mean(combine.Form(4, (2,)), NOWHERE, combine.centred)
    going_on.restore({name: array.copy() for name, array in begun.state().items()})
    for each in logits[1:]:
        going_on.add(0, each, np.zeros(4))
    assert going_on.mean().tobytes() == whole.mean().tobytes()


def test_the_consensus_has_labels_and_dissent(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    logits = rng.normal(size=(3, 300, 4)).astype(np.float32)
    shares = np.asarray(slow.by_variance(logits))
    made, (mean, labels, diverse) = combined(CONSENSUS, logits, shares, 64), slow.consensus(logits, shares)
    assert made.labels is not None and made.labels.tolist() == labels
    assert made.diversity is not None
    np.testing.assert_allclose(made.diversity, diverse, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(measures.softmax(made.logits), mean, rtol=1e-6)


def test_effective_teachers() -> None:
    got = combine.effective_teachers(np.array([[0.5, 1.0, 0.25], [0.5, 0.0, 0.75]]))
    np.testing.assert_allclose(got, [2.0, 1.0, 1.6])


def added(logits: Any, log_weight: Any) -> combine.Mean:
    stream = combine.Mean(combine.Form(1, (2,)), NOWHERE, combine.centred)
    stream.add(0, np.asarray(logits), np.asarray(log_weight))
    return stream


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: added([[np.nan, 0.0]], [0.0]), "non_finite"),
        (lambda: added([[1.0, 0.0]], [np.nan]), "non_finite"),
        (lambda: added([[1.0, 0.0]], [np.inf]), "non_finite"),
        (lambda: added([[1.0, 0.0, 0.0]], [0.0]), "schema_mismatch"),
        (lambda: added([[1.0, 0.0]], [0.0, 0.0]), "schema_mismatch"),
        (lambda: added([[np.nan, 0.0]], [-np.inf]).mean(), "no_participants"),
        (lambda: combine.Mean(combine.Form(1, (2,)), NOWHERE, combine.centred).mean(), "no_participants"),
        (lambda: combine.log_probabilities(np.array([np.nan])), "non_finite"),
        (lambda: combine.log_probabilities(np.array([-0.1])), "out_of_range"),
        (lambda: combine.log_probabilities(np.array([1.5])), "out_of_range"),
    ],
)
def test_refusals(call: Any, code: str) -> None:
    with pytest.raises(PartError) as caught:
        call()
    assert caught.value.code == code
