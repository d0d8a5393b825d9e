"""Fixed point: exact sums, the stated error, counters, and what does not fit."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import RuleError
from contract.secure.fixed import FixedPoint, rounded_quotient
from tests.reference import secure as slow

F = st.floats(-4, 4, width=32)


def test_a_case_by_hand() -> None:
    """c = 1, b = 8: L = 127. 0.5 is 63.5 levels, to even 64; with n = 2 x = 128. -3 counts as -1: x = -254."""
    fixed = FixedPoint(1.0, 8, 32)
    x = fixed.encode(np.array([0.5, -3.0], np.float32), np.zeros(2, np.float32), 2)
    assert x.tolist() == [128, 2**32 - 254]
    mean = fixed.decode(x, np.array([1.0, 1.0], np.float32), 2, "F32")
    np.testing.assert_allclose(mean, [1 + 64 / 127, 0.0], atol=1e-7)


@given(
    st.lists(st.tuples(F, F, st.integers(0, 1000)), min_size=1, max_size=6),
    st.sampled_from([(32, 64), (16, 32), (20, 32)]),
    st.randoms(),
)
def test_sums_equal_those_of_unbounded_integers_in_any_order(
    clients: list[tuple[float, float, int]], widths: tuple[int, int], random: Any
) -> None:
    bits, modulus_bits = widths
    fixed, weight = FixedPoint(2.5, bits, modulus_bits), sum(n for _, _, n in clients) or 1
    base = np.array([0.25], np.float32)
    if weight > fixed.most_weight:
        return
    parts = [fixed.encode(np.array([a], np.float32), base, n) for a, _, n in clients]
    wanted = [slow.encode(float(np.float32(a)), 0.25, n, 2.5, bits, 2**modulus_bits) for a, _, n in clients]
    assert [int(part[0]) for part in parts] == wanted
    random.shuffle(parts)
    total = np.sum(parts, axis=0, dtype=fixed.residues)
    assert int(total[0]) == sum(wanted) % 2**modulus_bits
    mean = fixed.decode(total, base, weight, "F64")
    assert mean[0] == pytest.approx(slow.decode(int(total[0]), 0.25, weight, 2.5, bits, 2**modulus_bits), rel=1e-12)


@given(st.lists(st.tuples(F, st.integers(1, 10_000_000)), min_size=1, max_size=8))
def test_the_mean_is_within_half_a_step_of_the_plain_one(clients: list[tuple[float, int]]) -> None:
    fixed = FixedPoint(4.5)
    base, weight = np.array([0.0], np.float64), sum(n for _, n in clients)
    total = np.sum([fixed.encode(np.array([v]), base, n) for v, n in clients], axis=0, dtype=fixed.residues)
    plain = sum(v * n for v, n in clients) / weight
    assert abs(fixed.decode(total, base, weight, "F64")[0] - plain) <= fixed.step / 2 * (1 + 1e-6) + 1e-15


def test_counters_are_averaged_exactly_and_masks_vote() -> None:
    fixed = FixedPoint(1.0)
    base = np.array([2**40, 7], np.int64)
    clients = [(np.array([2**40 + 3, 8]), 1), (np.array([2**40 + 4, 7]), 1)]
    total = np.sum([fixed.encode(v, base, n) for v, n in clients], axis=0, dtype=fixed.residues)
    assert fixed.decode(total, base, 2, "I64").tolist() == [2**40 + 4, 7]  # 3.5 and 0.5, to even
    flags, off = np.array([True, False]), np.array([False, True])
    votes = fixed.encode(off, flags, 3) + fixed.encode(flags, flags, 2)
    assert fixed.decode(votes, flags, 5, "BOOL").tolist() == [False, True]


def test_small_integers_stay_in_their_type() -> None:
    fixed = FixedPoint(1.0)
    base = np.array([120], np.int8)
    total = fixed.encode(np.array([127], np.int8), base, 1)
    assert fixed.decode(total, base, 1, "I8").tolist() == [127]
    assert fixed.decode(np.array([50], fixed.residues), base, 1, "I8").tolist() == [127]


@given(st.integers(-(2**62), 2**62), st.integers(1, 2**40))
def test_a_rounded_quotient(numerator: int, denominator: int) -> None:
    found = int(rounded_quotient(np.array([numerator], np.int64), denominator)[0])
    twice = 2 * (numerator - found * denominator)
    assert abs(twice) <= denominator
    assert abs(twice) < denominator or found % 2 == 0


def test_the_largest_weights_do_not_wrap() -> None:
    for fixed in (FixedPoint(1.0), FixedPoint(1.0, 16, 32)):
        weight = fixed.most_weight
        for value in (1.0, -1.0):
            total = fixed.encode(np.array([value]), np.zeros(1), weight)
            assert fixed.decode(total, np.zeros(1), weight, "F64")[0] == pytest.approx(value, rel=1e-9)
        with pytest.raises(RuleError, match="do not fit the modulus"):
            fixed.encode(np.zeros(1), np.zeros(1), weight + 1)
        with pytest.raises(RuleError, match="weights sum to"):
            fixed.decode(np.zeros(1, fixed.residues), np.zeros(1), weight + 1, "F64")


def test_nan_and_infinity_are_refused_and_what_is_clipped_is_counted() -> None:
    fixed = FixedPoint(1.0)
    for value in (np.nan, np.inf):
        with pytest.raises(RuleError, match="NaN or infinity"):
            fixed.encode(np.array([value]), np.zeros(1), 1)
    assert fixed.clipped(np.array([1.5, -1.0, -2.0]), np.zeros(3)) == 2
    assert fixed.clipped(np.array([5, 6]), np.zeros(2, np.int64)) == 0
