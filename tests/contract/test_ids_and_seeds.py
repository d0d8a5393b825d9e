"""Ids that sort by time; seeds that follow from names."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.ids import PREFIXES, new_id
from contract.seeds import derive_seed, derive_uniform


@pytest.mark.parametrize("kind", PREFIXES)
def test_an_id_says_what_it_is(kind: str) -> None:
    id_ = new_id(kind)
    assert re.fullmatch(PREFIXES[kind] + r"_[0-9a-hjkmnp-tv-z]{23}", id_)
    assert len(id_) <= 64


def test_prefixes_are_different_and_an_unknown_kind_has_none() -> None:
    assert len(set(PREFIXES.values())) == len(PREFIXES)
    with pytest.raises(KeyError):
        new_id("unicorn")


def test_ids_sort_by_the_order_in_which_they_were_made() -> None:
    made = [new_id("job") for _ in range(2000)]
    assert made == sorted(made)
    assert len(set(made)) == 2000


def test_ids_stay_in_order_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    first = new_id("job")
    monkeypatch.setattr("contract.ids.time.time_ns", lambda: 0)
    assert new_id("job") > first


def test_threads_make_different_ids() -> None:
    with ThreadPoolExecutor(8) as pool:
        made = [id_ for some in pool.map(lambda _: [new_id("update") for _ in range(200)], range(8)) for id_ in some]
    assert len(set(made)) == 1600


def test_seeds_are_what_they_were() -> None:
    """Frozen: another number would make old runs unrepeatable."""
    assert derive_seed(0) == 2794681957168023473
    assert derive_seed(7, "round", 3, "client", "ward-7", "train") == 2612234405382269293


path = st.lists(st.one_of(st.text("abc/", max_size=5), st.integers(0, 99)), max_size=4)


@given(st.integers(0, 2**63 - 1), path)
def test_a_seed_is_a_63_bit_number_that_follows_from_the_path(seed: int, path: list[str | int]) -> None:
    made = derive_seed(seed, *path)
    assert 0 <= made < 2**63
    assert made == derive_seed(seed, *path)
    assert 0 < derive_uniform(seed, *path) < 1


@given(st.integers(0, 2**62), path, path)
def test_other_paths_have_other_seeds(seed: int, one: list[str | int], two: list[str | int]) -> None:
    if [str(part) for part in one] != [str(part) for part in two]:
        assert derive_seed(seed, *one) != derive_seed(seed, *two)
    assert derive_seed(seed, *one) != derive_seed(seed + 1, *one)


def test_parts_do_not_run_together() -> None:
    assert derive_seed(1, "ab", "c") != derive_seed(1, "a", "bc")
    assert derive_seed(1, "a", "") != derive_seed(1, "a")


def test_uniform_numbers_are_spread_evenly() -> None:
    numbers = sorted(derive_uniform(3, "client", i) for i in range(1000))
    largest = max(abs(number - (i + 0.5) / 1000) for i, number in enumerate(numbers))
    assert largest < 1.63 / 1000**0.5  # Kolmogorov-Smirnov, 1 %
