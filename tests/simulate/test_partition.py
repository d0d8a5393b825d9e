from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from potstill.samples import Labels
from potstill.simulate import partition
from potstill.simulate.config import SimulationError
from potstill.simulate.partition import Shares

Dealer = Callable[[Labels, int, np.random.Generator], Shares]
DEALERS: dict[str, Dealer] = {
    "iid": partition.iid,
    "dirichlet": lambda labels, clients, generator: partition.dirichlet(labels, clients, 0.1, generator, 5),
    "balanced": lambda labels, clients, generator: partition.dirichlet_balanced(labels, clients, 0.5, generator),
    "step": partition.step,
}


def labels_of(count: int, classes: int = 10, seed: int = 0) -> Labels:
    return np.random.default_rng(seed).integers(0, classes, count)


@pytest.mark.parametrize("dealer", DEALERS)
@pytest.mark.parametrize("clients", [1, 4, 13, 20])
def test_every_sample_goes_to_one_client(dealer: str, clients: int) -> None:
    labels = labels_of(600)
    shares = DEALERS[dealer](labels, clients, np.random.default_rng(1))
    assert len(shares) == clients
    assert sorted(index for share in shares for index in share) == list(range(600))


@pytest.mark.parametrize("dealer", DEALERS)
def test_the_seed_decides(dealer: str) -> None:
    labels = labels_of(300)
    one, same, other = (DEALERS[dealer](labels, 6, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one == same
    assert one != other


@given(st.integers(1, 12), st.floats(0.01, 100), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_everybody_has_the_smallest_share(clients: int, alpha: float, seed: int) -> None:
    shares = partition.dirichlet(labels_of(130), clients, alpha, np.random.default_rng(seed), smallest=10)
    assert min(map(len, shares)) >= 10
    assert sorted(index for share in shares for index in share) == list(range(130))


def test_a_share_that_no_draw_gives_is_topped_up() -> None:
    shares = partition.dirichlet(labels_of(200, classes=2), 20, 0.01, np.random.default_rng(0), smallest=10)
    assert list(map(len, shares)) == [10] * 20


def test_a_small_alpha_is_skewed_and_a_large_one_even() -> None:
    labels = labels_of(5000)

    def largest_class(alpha: float) -> float:
        counts = partition.counts(labels, partition.dirichlet(labels, 10, alpha, np.random.default_rng(0)), 10)
        return float((counts.max(1) / counts.sum(1)).mean())

    assert largest_class(0.1) > 0.45
    assert largest_class(1000) < 0.15


def test_feddfs_balance_keeps_sizes_near_the_mean() -> None:
    labels = labels_of(2000)
    shares = partition.dirichlet_balanced(labels, 25, 0.1, np.random.default_rng(3))
    sizes = [len(share) for share in shares]
    assert min(sizes) >= 0.5 * 80 - 1
    free = [len(share) for share in partition.dirichlet(labels, 25, 0.1, np.random.default_rng(3))]
    assert np.std(sizes) < np.std(free)


def test_step_gives_two_major_classes_and_a_little_of_the_rest() -> None:
    labels = np.repeat(np.arange(10), 200)
    counts = partition.counts(labels, partition.step(labels, 10, np.random.default_rng(0), major=2, minor=5), 10)
    assert ((counts > 50).sum(1) == 2).all()
    assert ((counts == 5).sum(1) == 8).all()
    assert (counts.sum(0) == 200).all()


def test_step_gives_what_is_nobodys_major_to_all() -> None:
    labels = np.repeat(np.arange(10), 90)
    counts = partition.counts(labels, partition.step(labels, 3, np.random.default_rng(0), major=2, minor=5), 10)
    assert (counts[:, 6:] == 30).all()


def test_iid_sizes_differ_by_one_at_most() -> None:
    sizes = [len(share) for share in partition.iid(labels_of(103), 10, np.random.default_rng(0))]
    assert max(sizes) - min(sizes) == 1


@given(st.lists(st.integers(0, 40), max_size=3), st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_stratified_parts_have_the_pools_proportions(sizes: list[int], seed: int) -> None:
    labels = np.repeat(np.arange(4), [60, 30, 20, 10])
    *parts, rest = partition.stratified(labels, sizes, np.random.default_rng(seed))
    assert [len(part) for part in parts] == sizes
    assert sorted(index for part in [*parts, rest] for index in part) == list(range(120))
    for part, size in zip(parts, sizes, strict=True):
        expected = size * np.array([60, 30, 20, 10]) / 120
        assert (np.abs(np.bincount(labels[part], minlength=4) - expected) <= 1 + len(sizes)).all()


@pytest.mark.parametrize(
    ("deal", "message"),
    [
        (lambda g: partition.iid(labels_of(3), 4, g), "take fewer clients"),
        (lambda g: partition.dirichlet(labels_of(39), 4, 0.1, g), "39 samples cannot give 10"),
        (lambda g: partition.dirichlet(labels_of(99), 4, 0.0, g), "alpha: 0"),
        (lambda g: partition.dirichlet(labels_of(99), 4, float("nan"), g), "alpha: nan"),
        (lambda g: partition.dirichlet_balanced(labels_of(99), 4, -1.0, g), "alpha: -1"),
        (lambda g: partition.step(labels_of(99), 4, g, major=11), "major: 11"),
        (lambda g: partition.stratified(labels_of(9), [5, 5], g), "10 samples are asked for, there are 9"),
    ],
)
def test_the_impossible_is_refused(deal: Callable[[np.random.Generator], object], message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        deal(np.random.default_rng(0))


def test_each_client_is_a_user() -> None:
    """Of a, b, c and d with 3, 1, 2 and 4 samples, b has too few for 2 each: three clients are the others, in order."""
    users = np.array(list("daacdbddac"))
    shares = partition.by_user(users, 3, np.random.default_rng(0), smallest=2)
    assert shares == [[1, 2, 8], [3, 9], [0, 4, 6, 7]]
    drawn = {tuple(map(tuple, partition.by_user(users, 2, np.random.default_rng(s), 2))) for s in range(20)}
    assert len(drawn) == 3, "any two of the three, by seed"
    assert partition.by_user(users, 2, np.random.default_rng(4), 2) == partition.by_user(
        users, 2, np.random.default_rng(4), 2
    )
    with pytest.raises(SimulationError, match="clients: 3 of 4 users have 2 samples or more, 4 are asked for"):
        partition.by_user(users, 4, np.random.default_rng(0), 2)
