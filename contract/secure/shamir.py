"""Shamir's secret sharing (1979) over a prime field: any t shares give a secret of 32 bytes back, fewer say nothing.

A polynomial f of degree t - 1 with f(0) = the secret and random coefficients; the share of x is f(x) mod P.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence

from contract.errors import RuleError

PRIME = 2**256 + 297
"""The smallest prime above all secrets."""
SECRET_BYTES = 32
SHARE_BYTES = 33

Draw = Callable[[int], int]
"""n -> a random whole number in [0, n)."""


def split(secret: bytes, points: Sequence[int], threshold: int, draw: Draw = secrets.randbelow) -> dict[int, bytes]:
    """Return point -> share.

    Args:
        secret: 32 bytes.
        points: distinct, 1 to P - 1.
        threshold: t, 1 to the number of points.
        draw: where coefficients come from; other than the system's own only in tests.

    Raises:
        RuleError: bad_option.
    """
    if len(secret) != SECRET_BYTES:
        raise RuleError("bad_option", f"a secret has {SECRET_BYTES} bytes, not {len(secret)}")
    if len(set(points)) != len(points) or not all(0 < point < PRIME for point in points):
        raise RuleError("bad_option", "the points of shares must be distinct and positive")
    if not 1 <= threshold <= len(points):
        raise RuleError("bad_option", f"threshold {threshold} of {len(points)} shares")
    coefficients = [int.from_bytes(secret, "big"), *(draw(PRIME) for _ in range(threshold - 1))]
    return {point: _evaluate(coefficients, point).to_bytes(SHARE_BYTES, "big") for point in points}


def _evaluate(coefficients: Sequence[int], point: int) -> int:
    value = 0
    for coefficient in reversed(coefficients):  # Horner
        value = (value * point + coefficient) % PRIME
    return value


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Return the secret: the value at 0 of the polynomial through t of the shares (Lagrange).

    More shares than t are held against that polynomial, so that a false one among them is found.

    Raises:
        RuleError: too_few_shares; bad_share, when there is no such polynomial or no such secret.
    """
    if len(shares) < threshold:
        raise RuleError("too_few_shares", f"{len(shares)} of {threshold} shares are here")
    values = {point: int.from_bytes(share, "big") for point, share in sorted(shares.items())}
    if not all(len(share) == SHARE_BYTES for share in shares.values()) or max(values.values()) >= PRIME:
        raise RuleError("bad_share", "a share is no number of the field")
    used = dict(list(values.items())[:threshold])
    if any(_interpolate(used, point) != value for point, value in values.items() if point not in used):
        raise RuleError("bad_share", "the shares do not belong to one secret")
    secret = _interpolate(used, 0)
    if secret >> (8 * SECRET_BYTES):
        raise RuleError("bad_share", "the shares do not give a secret")
    return secret.to_bytes(SECRET_BYTES, "big")


def _interpolate(values: Mapping[int, int], at: int) -> int:
    total = 0
    for point, value in values.items():
        above, below = value, 1
        for other in values:
            if other != point:
                above = above * (at - other) % PRIME
                below = below * (point - other) % PRIME
        total = (total + above * pow(below, -1, PRIME)) % PRIME
    return total
