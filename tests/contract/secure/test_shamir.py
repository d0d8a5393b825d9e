"""Shares: any t give the secret, false and too few ones are found."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import RuleError
from contract.secure import shamir


def test_the_field_is_one() -> None:
    """Miller and Rabin with forty bases; a composite passes with a chance below 4^-40."""
    prime, odd, twos = shamir.PRIME, shamir.PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in range(2, 42):
        value = pow(base, odd, prime)
        assert value in (1, prime - 1) or any((value := value * value % prime) == prime - 1 for _ in range(twos - 1))
    assert not any(pow(3, 2**256 + step - 1, 2**256 + step) == 1 for step in range(1, 297, 2)), "the smallest"


def test_a_case_by_hand() -> None:
    """f(x) = 5 + 3 x + 2 x^2: 10, 19 and 32 at 1, 2 and 3."""
    draws = iter((3, 2))
    shares = shamir.split((5).to_bytes(32, "big"), [1, 2, 3], 3, lambda _: next(draws))
    assert {point: int.from_bytes(share, "big") for point, share in shares.items()} == {1: 10, 2: 19, 3: 32}


@given(st.binary(min_size=32, max_size=32), st.integers(1, 6), st.integers(0, 3))
def test_any_t_shares_give_the_secret(secret: bytes, threshold: int, spare: int) -> None:
    shares = shamir.split(secret, range(1, threshold + spare + 1), threshold)
    for points in combinations(shares, threshold):
        assert shamir.combine({point: shares[point] for point in points}, threshold) == secret
    assert shamir.combine(shares, threshold) == secret


def test_t_minus_1_shares_go_with_every_secret() -> None:
    """Two of three shares and any guess at 0 lie on one polynomial: they say nothing."""
    shares = shamir.split(bytes(32), [1, 2, 3], 3)
    two = {point: int.from_bytes(shares[point], "big") for point in (1, 2)}
    for guess in (0, 1, 2**255):
        third = shamir._interpolate({0: guess, **two}, 3)
        assert int.from_bytes(shamir.combine({1: shares[1], 2: shares[2], 3: third.to_bytes(33, "big")}, 3)) == guess


def test_false_and_too_few_shares() -> None:
    shares = shamir.split(b"\xff" * 32, [1, 2, 3, 4], 2)
    with pytest.raises(RuleError, match="1 of 2 shares"):
        shamir.combine({1: shares[1]}, 2)
    with pytest.raises(RuleError, match="do not belong to one secret"):
        shamir.combine(shares | {3: shares[4]}, 2)
    for bad in (b"\xff" * 33, b""):
        with pytest.raises(RuleError, match="no number of the field"):
            shamir.combine({1: shares[1], 2: bad}, 2)


@pytest.mark.parametrize(
    ("secret", "points", "threshold", "words"),
    [
        (b"short", [1, 2], 1, "32 bytes"),
        (bytes(32), [1, 1], 1, "distinct"),
        (bytes(32), [0, 1], 1, "distinct"),
        (bytes(32), [1, 2], 3, "threshold 3 of 2"),
        (bytes(32), [1, 2], 0, "threshold 0 of 2"),
    ],
)
def test_what_cannot_be_shared(secret: bytes, points: list[int], threshold: int, words: str) -> None:
    with pytest.raises(RuleError, match=words):
        shamir.split(secret, points, threshold)
