"""Who is named for what, and who is not: a few odd ones, none where all are alike, none of too few."""

import numpy as np
import pytest

from worker.parts.directions import Direction
from worker.parts.flags import copying, disagreeing, idle, opposing, sound
from worker.parts.votes import Agreement, agreement

CLASSES = np.repeat(np.arange(10), 30)


def pointing(*cosines: float) -> dict[str, Direction]:
    return {f"c{index}": Direction(value, None, None) for index, value in enumerate(cosines)}


def test_one_that_points_against_the_others_is_named() -> None:
    assert set(opposing(pointing(0.4, 0.5, 0.3, -0.4))) == {"c3"}
    assert "cosine -0.40, the median 0.35" in opposing(pointing(0.4, 0.5, 0.3, -0.4))["c3"].detail


@pytest.mark.parametrize("cosines", [(0.4, 0.5, 0.05), (0.0, -0.05, 0.02, -0.08), (-0.5, 0.4), ()])
def test_at_right_angles_or_of_too_few_nobody_is(cosines: tuple[float, ...]) -> None:
    assert opposing(pointing(*cosines)) == {}


def test_where_all_are_all_over_the_place_nobody_is() -> None:
    assert opposing(pointing(-0.3, 0.5, -0.2, 0.6, 0.0)) == {}


def test_rare_data_point_away_and_are_right_and_are_not_named() -> None:
    """As seen of eight devices of which one alone has two classes, and one sends its change turned round."""
    found = pointing(0.28, 0.4, 0.4, 0.41, 0.43, 0.36, -0.36, -0.77)
    beyond = {f"c{index}": value for index, value in enumerate([0.97, 0.97, 0.95, 0.97, 0.97, 0.93, 0.96, 0.89])}
    right = sound(beyond)
    assert right == {f"c{index}" for index in range(7)}
    assert set(opposing(found, right)) == {"c7"}
    assert set(opposing(found, right | {"c7"})) == {"c7"}, "turned round, however right it still is"
    assert "no votes" not in opposing(found, right)["c7"].detail


def test_without_votes_both_are_named_and_the_words_say_what_else_it_may_be() -> None:
    found = opposing(pointing(0.28, 0.4, 0.4, 0.41, 0.43, 0.36, -0.36, -0.77))
    assert set(found) == {"c6", "c7"}
    assert found["c6"].detail.endswith("or its data are like nobody else's, which no votes tell here")


def test_before_anybody_has_learnt_votes_excuse_nobody() -> None:
    assert sound({"a": 0.1, "b": 0.1, "c": 0.2, "d": -0.1}) is None
    assert sound({"a": 0.9, "b": 0.9}) is None


def test_who_sends_the_model_back_is_named_and_one_with_little_data_is_not() -> None:
    found = idle({"lazy": 0.0, "nearly": 0.005, "few": 0.1, "a": 1.0, "b": 1.2, "c": 0.9, "d": 1.1})
    assert set(found) == {"lazy", "nearly"}
    assert "unchanged" in found["lazy"].detail and "0.0056" in found["nearly"].detail
    assert idle({"lazy": 0.0, "a": 1.0}) == {}


def test_both_sides_of_a_copy_are_named() -> None:
    found = copying([["a", "b"]])
    assert "that of b" in found["a"].detail and "that of a" in found["b"].detail


def say(votes: np.ndarray) -> Agreement:
    return agreement(votes, CLASSES, 10)


def test_shifted_labels_are_named_and_rare_classes_are_not() -> None:
    good = np.where(np.arange(300) % 10 == 0, (CLASSES + 4) % 10, CLASSES)
    rare = np.where(CLASSES == 9, 9, 8)
    found = disagreeing(
        {"a": say(good), "b": say(CLASSES), "c": say(good), "rare": say(rare), "evil": say((CLASSES + 1) % 10)}, "them"
    )
    assert set(found) == {"evil"}
    assert found["evil"].detail.startswith("disagrees with them on every class (0% of the samples; ")


def test_before_anybody_has_learnt_nobody_disagrees() -> None:
    random = np.random.default_rng(0)
    assert disagreeing({str(index): say(random.permutation(CLASSES)) for index in range(6)}, "them") == {}
