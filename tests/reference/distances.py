"""Distances and outliers, slowly: sums of squares number by number, medians by sorting."""

import math
from collections.abc import Sequence


def norm(values: Sequence[float]) -> float:
    return math.sqrt(math.fsum(float(value) ** 2 for value in values))


def distance(values: Sequence[float], base: Sequence[float]) -> float:
    return norm([float(value) - float(start) for value, start in zip(values, base, strict=True)])


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def spreads(values: Sequence[float]) -> list[float]:
    """Iglewicz and Hoaglin 1993, of logarithms: (x - median) / (1.4826 MAD), the divisor ln 1.25 at least."""
    logs = [math.log(value) for value in values]
    middle = median(logs)
    mad = median([abs(value - middle) for value in logs])
    return [(value - middle) / max(1.4826 * mad, math.log(1.25)) for value in logs]
