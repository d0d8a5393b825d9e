"""When a round's labels are shared, by hand."""

from typing import Any

import pytest

from service.domain.sharing import MOST, Shard, seconds_of_a_teacher, shards, was_in_vain

FORTY = [f"c{number:02}" for number in range(40)]


def figures(count: int, label: float, **labels: Any) -> dict[str, Any]:
    """Return what a round says of its labels."""
    return {"ensemble": {"teachers": count}, "seconds": {"label": label}} | ({"labels": labels} if labels else {})


def test_a_teacher_costs_the_most_that_was_measured_wherever_it_was_asked() -> None:
    """10 in 20 s are 2 s each; 10 that shards asked in 25 s are 2.5 s each, though 6 are left in the end."""
    assert seconds_of_a_teacher([figures(10, 20.0)]) == 2.0
    assert seconds_of_a_teacher([figures(6, 5.0, seconds=25.0, asked=10), figures(10, 20.0)]) == 2.5
    assert seconds_of_a_teacher([{}, {"seconds": {"label": 3.0}}]) is None
    assert seconds_of_a_teacher([]) is None


@pytest.mark.parametrize(
    ("seconds", "size", "shard_seconds", "workers"),
    [
        (10.0, 0, 60.0, 1),  # nobody to share with
        (10.0, 0, 0.0, 8),  # turned off
        (2.9, 0, 60.0, 8),  # 116 s are less than two shards
        (10.0, 126_000_000, 60.0, 8),  # 40 x 126 MB take 100.8 s of the store: more than a quarter of 400 s
    ],
)
def test_small_rounds_are_not_shared(seconds: float, size: int, shard_seconds: float, workers: int) -> None:
    assert shards(FORTY, seconds, size, shard_seconds, workers) == []


def test_shards_are_about_as_long_as_asked_and_as_many_for_each_worker() -> None:
    """400 s in shards of 60 s are 6.7, thus 8 for 4 workers: five teachers each. 40 x 124 MB fit into 100 s."""
    found = shards(FORTY, 10.0, 124_000_000, 60.0, 4)
    assert [len(each.teachers) for each in found] == [5] * 8
    assert [name for each in found for name in each.teachers] == FORTY
    assert {(each.part, each.parts) for each in found} == {(0, 1)}
    assert max(len(each.teachers) for each in shards(FORTY, 1e9, 0, 1.0, 3)) == 1
    assert len(shards([str(each) for each in range(10_000)], 1.0, 0, 1.0, 3)) <= MOST + 3


def test_few_teachers_are_asked_of_parts_of_the_sets() -> None:
    """Three teachers of 100 s each, in shards of 60 s, for two workers: six shards, halves of the sets."""
    found = shards(["x", "y", "z"], 100.0, 0, 60.0, 2)
    assert found == [Shard((name,), part, 2) for name in "xyz" for part in (0, 1)]


def test_a_round_that_asked_most_teachers_again_was_shared_in_vain() -> None:
    assert was_in_vain(figures(10, 5.0, teachers=10, here=6))
    assert not was_in_vain(figures(10, 5.0, teachers=10, here=5))
    assert not was_in_vain(figures(10, 5.0))
