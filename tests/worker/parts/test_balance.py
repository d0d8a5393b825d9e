"""Balanced odds: a case by hand, a slow reference, sums on both sides, refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import ensembles as slow
from worker.parts.balance import balance
from worker.parts.errors import PartError

SEEDS = st.integers(0, 2**31 - 1)


def odds(seed: int, clients: int, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ln n_k + ln Phi_k(x) [N, S], and n_k."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 200, clients).astype(np.float64)
    return np.log(counts)[:, None] + np.clip(rng.normal(0, 4, (clients, samples)), -13, 13), counts


def test_two_clients_by_hand() -> None:
    """n = (1, 1), odds (1, 3) and (1, 1): clients' means become 1 first, so (1/2, 3/2) and (1, 1); samples sum to 1:
    (1/3, 3/5) and (2/3, 2/5), means 7/15 and 8/15; clients get 1/2 again, by 15/14 and 15/16.
    """
    found = balance(np.log([[1.0, 3.0], [1.0, 1.0]]), np.array([1.0, 1.0]), sweeps=1)
    np.testing.assert_allclose(np.exp(found.logs), [[5 / 14, 9 / 14], [5 / 8, 3 / 8]], rtol=1e-12)
    np.testing.assert_allclose(np.exp(found.scales), [1 / 2 * 15 / 14, 15 / 16], rtol=1e-12)


@given(SEEDS, st.integers(1, 5), st.integers(1, 6), st.integers(1, 4))
def test_it_is_the_slow_one(seed: int, clients: int, samples: int, sweeps: int) -> None:
    logs, counts = odds(seed, clients, samples)
    expected = slow.balanced(np.exp(logs).tolist(), counts.tolist(), sweeps)
    np.testing.assert_allclose(np.exp(balance(logs, counts, sweeps).logs), expected, rtol=1e-9)


def test_clients_own_their_shares_and_samples_have_total_one() -> None:
    logs, counts = odds(4, 10, 700)
    weights = np.exp(balance(logs, counts, sweeps=50).logs)
    np.testing.assert_allclose(weights.mean(axis=1), counts / counts.sum(), rtol=1e-12)
    np.testing.assert_allclose(weights.sum(axis=0), 1, atol=1e-5)


def test_weights_hang_on_the_scales_alone() -> None:
    """What was taken off samples is the same for all clients: plain odds by the scales weigh as balanced ones do."""
    logs, counts = odds(5, 4, 30)
    found = balance(logs, counts, sweeps=20)
    scaled, weights = np.exp(logs + found.scales[:, None]), np.exp(found.logs)
    np.testing.assert_allclose(scaled / scaled.sum(axis=0), weights / weights.sum(axis=0), rtol=1e-9)


def test_without_a_sweep_nothing_is_moved() -> None:
    logs, counts = odds(6, 3, 5)
    found = balance(logs, counts, sweeps=0)
    assert found.logs.tobytes() == logs.tobytes() and not found.scales.any()


def test_one_client_owns_all() -> None:
    logs, counts = odds(7, 1, 5)
    np.testing.assert_allclose(balance(logs, counts, 3).logs, 0, atol=1e-12)


@pytest.mark.parametrize(
    ("logs", "counts", "code"),
    [
        (np.zeros((0, 3)), np.ones(0), "no_participants"),
        (np.zeros((2, 3)), np.ones(3), "schema_mismatch"),
        (np.zeros((2, 0)), np.ones(2), "bad_option"),
        (np.zeros((2, 3)), np.array([1.0, 0.0]), "bad_weight"),
        (np.full((2, 3), np.nan), np.ones(2), "non_finite"),
    ],
)
def test_refusals(logs: np.ndarray, counts: np.ndarray, code: str) -> None:
    with pytest.raises(PartError) as caught:
        balance(logs, counts, 2)
    assert caught.value.code == code
