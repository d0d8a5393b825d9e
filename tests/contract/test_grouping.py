"""FedSDD's groups: sizes, and a draw that follows names and rounds alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import RuleError
from contract.grouping import group_sizes, split

NAMES = st.lists(st.text("abcdef", min_size=1, max_size=6), unique=True, max_size=20)


@given(st.integers(0, 200), st.integers(1, 20))
def test_sizes_are_even_and_the_first_are_larger(clients: int, groups: int) -> None:
    sizes = group_sizes(clients, groups)
    assert (sum(sizes), len(sizes)) == (clients, groups)
    assert sizes == sorted(sizes, reverse=True) and sizes[0] - sizes[-1] <= 1


@given(NAMES, st.integers(1, 6), st.integers(0, 9), st.randoms())
def test_everybody_is_in_one_group_whatever_the_order(names: list[str], groups: int, seed: int, random: Any) -> None:
    made = split(names, groups, seed=seed, round_index=4)
    assert sorted(name for group in made for name in group) == sorted(names)
    assert [len(group) for group in made] == group_sizes(len(names), groups)
    assert split(random.sample(names, len(names)), groups, seed=seed, round_index=4) == made


def test_rounds_and_seeds_draw_anew() -> None:
    names = [f"ward-{number}" for number in range(12)]
    drawn = [split(names, 3, seed=seed, round_index=index) for seed in (1, 2) for index in (1, 2, 3)]
    assert len({str(groups) for groups in drawn}) == 6


def test_a_client_is_as_often_in_one_group_as_in_another() -> None:
    """600 rounds, 4 groups: 150 expected; five standard deviations are 53."""
    names = [f"ward-{number}" for number in range(8)]
    counts = [0] * 4
    for index in range(600):
        groups = split(names, 4, seed=5, round_index=index)
        counts[next(number for number, group in enumerate(groups) if "ward-3" in group)] += 1
    assert all(97 < count < 203 for count in counts)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: group_sizes(3, 0), "bad_option"),
        (lambda: group_sizes(-1, 2), "bad_counts"),
        (lambda: split(["a", "a"], 2, seed=0, round_index=0), "bad_option"),
    ],
)
def test_refusals(call: Any, code: str) -> None:
    with pytest.raises(RuleError) as caught:
        call()
    assert caught.value.code == code
