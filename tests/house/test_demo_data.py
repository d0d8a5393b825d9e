"""D1's split: its counts, that it repeats, that it is a partition."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.tensors import TensorFile
from potstill.demo.data import CLASSES, dirichlet_shares, load, split, three_ways


@pytest.mark.parametrize("seed", range(5))
def test_counts_of_the_experiment(seed: int) -> None:
    parts = split(seed)
    assert (len(parts.test), len(parts.server), sum(map(len, parts.clients))) == (355, 719, 723)
    assert len(parts.clients) == 10
    assert min(map(len, parts.clients)) >= 10


def test_images_are_real_and_scaled() -> None:
    images = load()
    assert images.inputs.shape == (1797, 1, 8, 8)
    assert images.inputs.dtype == np.float32
    assert (images.inputs.min(), images.inputs.max()) == (0.0, 1.0)
    assert np.bincount(images.labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_same_seed_same_split_other_seed_other_split() -> None:
    first, again, other = split(3), split(3), split(4)
    assert np.array_equal(first.test.inputs, again.test.inputs)
    assert all(np.array_equal(a.inputs, b.inputs) for a, b in zip(first.clients, again.clients, strict=True))
    assert not np.array_equal(first.test.inputs, other.test.inputs)


def test_every_image_is_in_exactly_one_part() -> None:
    labels = load().labels
    test, server, clients = three_ways(labels, np.random.default_rng(0))
    assert sorted(test + server + clients) == list(range(len(labels)))


def test_parts_of_a_class_follow_the_floors() -> None:
    labels = np.repeat(np.arange(CLASSES), 13)  # 13 of each: 2 test, 5 server, 6 clients
    for part, count in zip(three_ways(labels, np.random.default_rng(1)), (2, 5, 6), strict=True):
        assert np.bincount(labels[part]).tolist() == [count] * CLASSES


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), clients=st.integers(2, 12), alpha=st.floats(0.3, 100))
def test_shares_are_a_partition_with_a_floor(seed: int, clients: int, alpha: float) -> None:
    labels = np.repeat(np.arange(10), 30)
    shares = dirichlet_shares(labels, clients, alpha, np.random.default_rng(seed), smallest=5)
    assert sorted(index for share in shares for index in share) == list(range(300))
    assert min(map(len, shares)) >= 5


def test_small_alpha_is_more_skewed_than_large() -> None:
    labels = np.repeat(np.arange(10), 100)

    def largest_class(alpha: float) -> float:
        shares = dirichlet_shares(labels, 10, alpha, np.random.default_rng(0))
        return float(np.mean([np.bincount(labels[share]).max() / len(share) for share in shares]))

    assert largest_class(0.1) > 2 * largest_class(100)


def test_too_few_samples_are_told() -> None:
    with pytest.raises(ValueError, match="99 samples cannot give 10 to each of 10 clients"):
        dirichlet_shares(np.zeros(99, np.int64), 10, 0.1, np.random.default_rng(0))


def test_saved_parts_have_labels_only_when_asked(tmp_path: Path) -> None:
    part = split(0).clients[0]
    with TensorFile(part.save(tmp_path / "a")) as labelled, TensorFile(part.save(tmp_path / "b", False)) as bare:
        assert np.array_equal(labelled.read("labels"), part.labels)
        assert np.array_equal(bare.read("inputs"), part.inputs)
        assert list(bare.names) == ["inputs"]
