"""Pseudo-labels: by hand, extreme logits, and the streamed form against the plain one."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from worker.parts import combine, weigh
from worker.parts.errors import PartError


def softmax(row: list[float]) -> list[float]:
    powers = np.exp(np.array(row))
    return (powers / powers.sum()).tolist()


def test_logits_by_hand() -> None:
    """1/4 (4, 0) + 3/4 (0, 8) = (1, 6)."""
    got = combine.average_logits([[[4.0, 0.0]], [[0.0, 8.0]]], [[0.25], [0.75]])
    np.testing.assert_allclose(got, [softmax([1.0, 6.0])], rtol=1e-12)


def test_probs_by_hand() -> None:
    """1/4 (3/4, 1/4) + 3/4 (1/2, 1/2) = (9/16, 7/16)."""
    got = combine.average_probs([[[np.log(3), 0.0]], [[2.0, 2.0]]], [[0.25], [0.75]])
    np.testing.assert_allclose(got, [[9 / 16, 7 / 16]], rtol=1e-12)


def test_logits_of_ten_thousand_keep_their_differences() -> None:
    got = combine.average_logits([[[1e4, 1e4 + 1]], [[-1e4, -1e4 + 1]]], [[0.5], [0.5]])
    np.testing.assert_allclose(got, [softmax([0.0, 1.0])], rtol=1e-9)


@given(
    logits=arrays(np.float64, (3, 2, 4), elements=st.floats(-50, 50)),
    shift=arrays(np.float64, (3, 2, 1), elements=st.floats(-1e4, 1e4)),
)
def test_each_teacher_may_shift_its_logits(logits: np.ndarray, shift: np.ndarray) -> None:
    weights = weigh.samples([1, 2, 3], 2)
    moved = combine.average_logits(logits + shift, weights)
    np.testing.assert_allclose(moved, combine.average_logits(logits, weights), rtol=1e-8, atol=1e-12)


def test_a_teacher_of_weight_zero_is_skipped_not_multiplied() -> None:
    got = combine.average_logits([[[np.nan, 1.0]], [[2.0, 0.0]]], [[0.0], [1.0]])
    np.testing.assert_allclose(got, [softmax([2.0, 0.0])], rtol=1e-12)


def test_sharpen_by_hand() -> None:
    """(0.8, 0.2) squared is (0.64, 0.04): 16/17 and 1/17; ties stay ties."""
    np.testing.assert_allclose(combine.sharpen([[0.8, 0.2]]), [[16 / 17, 1 / 17]], rtol=1e-12)
    assert combine.sharpen([[0.5, 0.5, 0.0]]).tolist() == [[0.5, 0.5, 0.0]]


def test_effective_teachers() -> None:
    got = combine.effective_teachers(np.array([[0.5, 1.0, 0.25], [0.5, 0.0, 0.75]]))
    np.testing.assert_allclose(got, [2.0, 1.0, 1.6])


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: combine.average_logits([[[np.inf, 0.0]]], [[1.0]]), "non_finite"),
        (lambda: combine.average_logits([[[1.0, 0.0]]], [[-1.0]]), "bad_weight"),
        (lambda: combine.average_logits([[[1.0, 0.0]]], [[0.0]]), "no_positive_weight"),
        (lambda: combine.average_logits([[[1.0, 0.0]]], [[0.5], [0.5]]), "schema_mismatch"),
        (lambda: combine.average_logits(np.zeros((0, 1, 2)), np.zeros((0, 1))), "no_participants"),
        (lambda: combine.average_logits([[[1.0, 0.0]]], [[1.0]], 0.0), "bad_option"),
        (lambda: combine.sharpen([[1.0]], 0.0), "bad_option"),
        (lambda: combine.sharpen([[-1.0, 2.0]]), "out_of_range"),
        (lambda: combine.Stream(1, 2, "votes"), "bad_option"),
        (lambda: combine.Stream(1, 2).add(0, np.array([[np.nan, 0.0]]), np.zeros(1)), "non_finite"),
        (lambda: combine.Stream(1, 2).result(), "no_participants"),
    ],
)
def test_refusals(call: Callable[[], object], code: str) -> None:
    with pytest.raises(PartError) as caught:
        call()
    assert caught.value.code == code


def streamed(kind: str, logits: np.ndarray, log_weights: np.ndarray, batch: int) -> combine.Stream:
    stream = combine.Stream(logits.shape[1], logits.shape[2], kind)
    for outputs, row in zip(logits, log_weights, strict=True):
        for start in range(0, logits.shape[1], batch):
            stream.add(start, outputs[start : start + batch], row[start : start + batch])
    return stream


@pytest.mark.parametrize("kind", ["logits", "probs"])
@given(
    logits=arrays(np.float64, (4, 5, 3), elements=st.floats(-40, 40)),
    log_weights=arrays(np.float64, (4, 5), elements=st.floats(-800, 800) | st.just(-np.inf)),
    batch=st.integers(1, 6),
)
def test_streaming_equals_all_at_once(kind: str, logits: np.ndarray, log_weights: np.ndarray, batch: int) -> None:
    """Whatever the order of magnitude of the weights, and where nobody wants a sample."""
    weights = weigh.normalise(log_weights)
    plain = combine.weighted_logits if kind == "logits" else combine.average_probs
    got = streamed(kind, logits, log_weights, batch)
    np.testing.assert_allclose(got.result(), plain(logits, weights), rtol=1e-9, atol=1e-12)
    as_label = combine.average_logits if kind == "logits" else combine.average_probs
    np.testing.assert_allclose(weigh.softmax(got.logits()), as_label(logits, weights), rtol=1e-9, atol=1e-12)
