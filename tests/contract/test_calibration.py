"""Calibration: worked by hand, against a slow reference, whatever the batches."""

import math

import numpy as np
import pytest

from contract.calibration import Calibration


def logits(*probabilities: float) -> np.ndarray:
    return np.asarray(np.log([[each, 1 - each] for each in probabilities]))


def measured(bins: int, outputs: np.ndarray, labels: np.ndarray, cuts: list[int]) -> float:
    figure = Calibration(bins)
    for batch in np.split(np.arange(len(labels)), cuts):
        figure.add(outputs[batch], labels[batch])
    return figure.value()


def slow(bins: int, outputs: np.ndarray, labels: np.ndarray) -> float:
    """Return sum_m |B_m| / n |acc(B_m) - conf(B_m)| as it is written."""
    total = 0.0
    for number in range(1, bins + 1):
        inside = []
        for row, label in zip(outputs, labels, strict=True):
            shares = [math.exp(each) / sum(math.exp(other) for other in row) for each in row]
            if (number - 1) / bins < max(shares) <= number / bins:
                inside.append((max(shares), shares.index(max(shares)) == label))
        if inside:
            right, sure = (sum(each[place] for each in inside) / len(inside) for place in (1, 0))
            total += len(inside) / len(labels) * abs(right - sure)
    return total


def test_two_bins_by_hand() -> None:
    # (0.5, 1]: confidences 0.6, 0.8, 0.9 with one right: 3/4 |1/3 - 2.3/3|; (0, 0.5]: 0.5, right: 1/4 |1 - 0.5|
    outputs, labels = logits(0.6, 0.8, 0.9, 0.5), np.array([0, 1, 1, 0])
    assert measured(2, outputs, labels, []) == pytest.approx(0.75 * (2.3 - 1) / 3 + 0.25 * 0.5)


def test_one_that_is_as_often_right_as_it_says() -> None:
    assert measured(1, logits(0.75, 0.75, 0.75, 0.75), np.array([0, 0, 0, 1]), []) == pytest.approx(0.0, abs=1e-12)
    assert measured(10, np.array([[1000.0, 0.0]]), np.array([1]), []) == 1.0
    assert Calibration(3).value() == 0.0


@pytest.mark.parametrize("bins", [1, 4, 15])
def test_it_is_what_the_paper_says_whatever_the_batches(bins: int) -> None:
    numbers = np.random.default_rng(bins)
    outputs, labels = 2 * numbers.normal(size=(80, 3)), numbers.integers(0, 3, 80)
    expected = slow(bins, outputs, labels)
    for cuts in ([], [1, 40], [79]):
        assert measured(bins, outputs, labels, cuts) == pytest.approx(expected, abs=1e-12)
