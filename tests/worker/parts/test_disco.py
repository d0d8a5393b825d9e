"""FedDisco's weights and the filter of the worst: by hand, invariances, refusals."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import fusing
from worker.parts import disco, filters
from worker.parts.errors import PartError

COUNTS = st.lists(st.lists(st.integers(0, 40), min_size=3, max_size=3).filter(any), min_size=1, max_size=6)


@given(COUNTS, st.sampled_from(disco.METRICS), st.randoms())
def test_weights_sum_to_one_and_follow_their_clients(counts: list[list[int]], metric: str, random: Any) -> None:
    numbers = [sum(row) for row in counts]
    made = disco.weights(numbers, counts, metric=metric)
    assert made.weights.sum() == pytest.approx(1.0)
    assert (made.weights >= 0).all()
    order = random.sample(range(len(counts)), len(counts))
    other = disco.weights([numbers[i] for i in order], [counts[i] for i in order], metric=metric)
    np.testing.assert_allclose(other.weights, made.weights[order], atol=1e-9)


@given(COUNTS, st.sampled_from(disco.METRICS), st.floats(0, 2), st.floats(0, 1))
def test_weights_are_the_slow_ones(counts: list[list[int]], metric: str, a: float, b: float) -> None:
    made = disco.weights([sum(row) for row in counts], counts, a, b, metric)
    gaps, weights = fusing.disco(counts, [sum(row) for row in counts], a, b, metric)
    np.testing.assert_allclose(made.discrepancy, gaps, atol=1e-7)
    np.testing.assert_allclose(made.weights, weights, atol=1e-6)


@given(COUNTS, st.sampled_from(disco.METRICS))
def test_only_the_shares_of_labels_matter(counts: list[list[int]], metric: str) -> None:
    one, ten = disco.discrepancy(counts, metric), disco.discrepancy([[10 * n for n in row] for row in counts], metric)
    np.testing.assert_allclose(one, ten, atol=1e-7)


def test_by_hand() -> None:
    """Uniform target of two classes, one client with one class only: l1 1, l2 sqrt(1/2), cosine 1 - sqrt(1/2)."""
    counts = [[4, 0], [5, 5]]
    np.testing.assert_allclose(disco.discrepancy(counts, "l1"), [1, 0])
    np.testing.assert_allclose(disco.discrepancy(counts, "l2"), [np.sqrt(0.5), 0])
    np.testing.assert_allclose(disco.discrepancy(counts, "cosine"), [1 - np.sqrt(0.5), 0], atol=1e-15)
    np.testing.assert_allclose(disco.discrepancy(counts, "kl"), [1, 0])
    np.testing.assert_allclose(
        disco.discrepancy(counts, "kl", [9, 1]), np.array([np.log(1 / 0.9), 0.510826]) / 0.616186, 1e-5
    )


def test_all_uniform_is_the_weighted_mean_plus_b() -> None:
    made = disco.weights([10, 30], [[5, 5], [15, 15]])
    assert made.discrepancy.tolist() == [0.0, 0.0]
    np.testing.assert_allclose(made.weights, [0.35 / 1.2, 0.85 / 1.2])


def test_nobody_left_falls_back_to_the_numbers_of_samples() -> None:
    made = disco.weights_from([10, 30], [5.0, 5.0])
    assert made.fallback is True
    assert made.weights.tolist() == [0.25, 0.75]


def test_client_without_samples_gets_nothing_of_b() -> None:
    made = disco.weights([10, 0, 30], [[5, 5], [0, 0], [15, 15]])
    assert made.weights[1] == 0
    np.testing.assert_allclose(made.weights[[0, 2]], disco.weights([10, 30], [[5, 5], [15, 15]]).weights)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: disco.weights([1], [[1, 1]], metric="kullback"), "bad_option"),
        (lambda: disco.weights([1], [[1, -1]]), "bad_counts"),
        (lambda: disco.weights([1], [[0, 0]]), "bad_counts"),
        (lambda: disco.weights([1], [[np.nan, 1]]), "bad_counts"),
        (lambda: disco.weights([1, 2], [[1, 1]]), "schema_mismatch"),
        (lambda: disco.weights([1, 2], [[1, 1], [1, 1, 1]]), "schema_mismatch"),
        (lambda: disco.weights([1], [[1, 1]], target=[1, 1, 1]), "schema_mismatch"),
        (lambda: disco.weights([1], [[1, 1]], target=[0, 0]), "bad_counts"),
        (lambda: disco.weights([1], [[1, 1]], target=[1, 0]), "non_finite"),
        (lambda: disco.weights([], []), "no_participants"),
        (lambda: disco.weights([0], [[1, 1]]), "no_positive_weight"),
        (lambda: disco.weights([-1], [[1, 1]]), "bad_weight"),
        (lambda: disco.weights_from([1], [np.nan]), "non_finite"),
        (lambda: disco.weights_from([1], [-0.1]), "out_of_range"),
        (lambda: disco.weights_from([1], [0.1, 0.1]), "schema_mismatch"),
        (lambda: disco.weights_from([1], [0.1], a=-1.0), "bad_option"),
        (lambda: disco.weights_from([1], [0.1], b=np.nan), "bad_option"),
        (lambda: filters.drop_worst([], 10), "no_participants"),
        (lambda: filters.drop_worst([np.nan], 10), "non_finite"),
        (lambda: filters.drop_worst([45.0], 10), "out_of_range"),
        (lambda: filters.drop_worst([0.5], 0), "too_few_classes"),
        (lambda: filters.drop_worst([0.5], 10, 0.0), "bad_option"),
    ],
)
def test_refusals(call: Any, code: str) -> None:
    with pytest.raises(PartError) as caught:
        call()
    assert caught.value.code == code


def test_exactly_at_the_threshold_stays_and_one_class_does_no_harm() -> None:
    assert filters.drop_worst([0.12, 0.1199], 10).kept == [0]
    single = filters.drop_worst([1.0, 1.0], 1)
    assert (single.kept, single.all_dropped) == ([0, 1], True)
