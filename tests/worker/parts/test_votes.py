"""Agreement by class and beyond chance; whom the ensemble trusts on what."""

import numpy as np
import pytest

from worker.parts.votes import agreement, consensus, decided, trust_by_class, votes_of

CLASSES = np.repeat(np.arange(10), 30)


def test_one_who_knows_two_classes_only_agrees_as_far_as_it_can() -> None:
    votes = np.where(CLASSES == 3, 3, 7)
    found = agreement(votes, CLASSES, 10)
    assert found.share == pytest.approx(0.2)
    assert found.beyond_chance == pytest.approx(1.0)
    assert found.by_class[3] == found.by_class[7] == 1.0 and found.by_class[0] == 0.0


def test_shifted_votes_agree_less_than_by_chance() -> None:
    found = agreement((CLASSES + 1) % 10, CLASSES, 10)
    assert found.share == 0 and found.beyond_chance is not None
    assert found.beyond_chance == pytest.approx(-0.1 / 0.9)
    assert found.error is not None and found.error < 0.05


def test_one_who_always_says_the_same_leaves_no_room_to_judge() -> None:
    found = agreement(np.zeros_like(CLASSES), CLASSES, 10)
    assert (found.beyond_chance, found.error) == (None, None)


def test_guesses_are_about_chance() -> None:
    votes = np.random.default_rng(0).permutation(CLASSES)
    found = agreement(votes, CLASSES, 10)
    assert found.beyond_chance is not None and found.error is not None
    assert abs(found.beyond_chance) < 4 * found.error


def test_a_class_without_samples_has_no_figure() -> None:
    assert agreement(np.array([0, 1]), np.array([0, 1]), 3).by_class == [1.0, 1.0, None]


def test_the_consensus_is_that_of_the_others() -> None:
    votes = np.array([[0, 1], [0, 1], [1, 2], [1, 2], [2, 2]])
    found = consensus(votes, np.ones(5), 3)
    assert found.tolist() == [[1, 2], [1, 2], [0, 1], [0, 1], [0, 1]]
    heavy = consensus(votes, np.array([1, 1, 1, 1, 9.0]), 3)
    assert heavy[0].tolist() == [2, 2] and heavy[4].tolist() == [0, 1]


def test_trust_is_the_mean_weight_by_class_and_decided_sums_to_one() -> None:
    weights = np.array([[0.9, 0.1, 0.5], [0.1, 0.9, 0.5]])
    assert trust_by_class(weights, np.array([0, 0, 2]), 3) == [[0.5, None, 0.5], [0.5, None, 0.5]]
    assert decided(weights).tolist() == pytest.approx([0.5, 0.5])
    assert decided(np.array([[0.9, 0.8], [0.1, 0.2]])).tolist() == [1.0, 0.0]


def test_votes_are_the_largest_logits() -> None:
    assert votes_of(np.array([[0.1, 3.0], [5.0, 3.0]])).tolist() == [1, 0]
