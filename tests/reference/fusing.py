"""Rules of fusing, slowly: loops from the papers' formulas that share nothing with the product.

Values are [m][n]: m clients, n numbers each.
"""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy.typing as npt

Row = Sequence[float] | npt.NDArray[Any]
Values = Sequence[Row] | npt.NDArray[Any]


def columns(values: Values) -> list[list[float]]:
    return [[float(row[j]) for row in values] for j in range(len(values[0]))]


def average(values: Values, weights: Row) -> list[float]:
    """FedAvg: sum_k n_k w_k / sum n; whoever has n_k = 0 is skipped, not multiplied."""
    kept = [k for k, weight in enumerate(weights) if weight > 0]
    total = math.fsum(float(weights[k]) for k in kept)
    size = len(values[kept[0]])
    return [math.fsum(float(weights[k]) * float(values[k][j]) for k in kept) / total for j in range(size)]


def rounded_mean(values: Sequence[int], weights: Sequence[int]) -> int:
    """The n_k mean of integers, half to even, in fractions."""
    return round(Fraction(sum(v * w for v, w in zip(values, weights, strict=True)), sum(weights)))


def median(values: Values) -> list[float]:
    """Yin et al. 2018, Def. 1: the middle one of each coordinate; the mean of the middle two of an even number."""
    result = []
    for column in columns(values):
        column.sort()
        half = len(column) // 2
        result.append(column[half] if len(column) % 2 else (column[half - 1] + column[half]) / 2)
    return result


def trimmed_mean(values: Values, cut: int) -> list[float]:
    """Yin et al. 2018, Def. 2: the mean of each coordinate without its `cut` largest and smallest."""
    result = []
    for column in columns(values):
        column.sort()
        left = column[cut : len(column) - cut]
        result.append(math.fsum(left) / len(left))
    return result


def squared_distance(one: Row, other: Row) -> float:
    return math.fsum((float(a) - float(b)) ** 2 for a, b in zip(one, other, strict=True))


def krum_order(values: Values, byzantine: int) -> list[int]:
    """Blanchard et al. 2017, section 4: by the sum of squared distances to the m - f - 2 nearest others."""
    scores = []
    for i, mine in enumerate(values):
        distances = sorted(squared_distance(mine, other) for j, other in enumerate(values) if j != i)
        scores.append(math.fsum(distances[: len(values) - byzantine - 2]))
    return sorted(range(len(values)), key=lambda i: (scores[i], i))


def clipped_mean(previous: Row, values: Values, weights: Row, max_norm: float) -> list[float]:
    """Sun et al. 2019, section 4: w + sum_k p_k min(1, max_norm / ||w_k - w||) (w_k - w)."""
    total, result = math.fsum(weights), [float(w) for w in previous]
    for row, weight in zip(values, weights, strict=True):
        norm = math.sqrt(squared_distance(row, previous))
        factor = min(1.0, max_norm / norm) if norm > 0 else 1.0
        for j in range(len(result)):
            result[j] += weight / total * factor * (float(row[j]) - float(previous[j]))
    return result


def by_group(values: Values, weights: Row, groups: Sequence[int], previous: Values) -> list[list[float]]:
    """FedSDD eq. 2: each group's average; a group without clients, or whose clients have no samples, stays."""
    result = []
    for k, old in enumerate(previous):
        mine = [i for i, group in enumerate(groups) if group == k and weights[i] > 0]
        result.append(average([values[i] for i in mine], [weights[i] for i in mine]) if mine else list(old))
    return result


# ----------------------------------------------------------------------------------------------------------- posteriors
def gaussian(values: Values, weights: Row) -> tuple[list[float], list[float]]:
    """FedBE eq. 5: the mean and variance of what every sample says, clients counted n_k times, in fractions."""
    means, variances = [], []
    shares = [Fraction(w) / sum(map(Fraction, weights)) for w in weights]
    for j in range(len(values[0])):
        column = [Fraction(float(values[k][j])) if weights[k] > 0 else Fraction(0) for k in range(len(values))]
        mean = sum((p * w for p, w in zip(shares, column, strict=True)), Fraction(0))
        means.append(float(mean))
        variances.append(float(sum((p * (w - mean) ** 2 for p, w in zip(shares, column, strict=True)), Fraction(0))))
    return means, variances


def gaussian_sample(mean: Row, var: Row, noise: Row, scale: float, floor: float = -math.inf) -> list[float]:
    """FedBE eq. 5: mu + scale sqrt(var) eps, not below the floor."""
    return [max(m + scale * math.sqrt(v) * e, floor) for m, v, e in zip(mean, var, noise, strict=True)]


def dirichlet(values: Values, weights: Row, gamma: Row) -> tuple[list[float], list[float]]:
    """FedBE eq. 7: coefficients gamma_i n_i / sum gamma n and the combination, in fractions."""
    raw = [Fraction(g) * Fraction(n) for g, n in zip(gamma, weights, strict=True)]
    parts = [each / sum(raw) for each in raw]
    kept = [i for i, part in enumerate(parts) if part > 0]
    mixed = [
        float(sum((parts[i] * Fraction(float(values[i][j])) for i in kept), Fraction(0)))
        for j in range(len(values[kept[0]]))
    ]
    return [float(part) for part in parts], mixed


def swag_sample(values: Values, diagonal: Row, low_rank: Row, scale: float) -> list[float]:
    """Maddox et al. 2019: mu + sqrt(scale) (sqrt(var) z1 + sum_i z2_i (w_i - mean of w_1 to w_i) / sqrt(m - 1))."""
    result = []
    for j, column in enumerate(columns(values)):
        m = len(column)
        mean = math.fsum(column) / m
        var = math.fsum((w - mean) ** 2 for w in column) / m
        move = math.sqrt(var) * diagonal[j]
        if m > 1:
            off = [w - math.fsum(column[: i + 1]) / (i + 1) for i, w in enumerate(column)]
            move += math.fsum(z * d for z, d in zip(low_rank, off, strict=True)) / math.sqrt(m - 1)
        result.append(mean + math.sqrt(scale) * move)
    return result


# ------------------------------------------------------------------------------------------------------- server's steps
def scaffold(
    x: Row,
    c: Row,
    delta_y: Values,
    delta_c: Values,
    clients_total: int,
    lr: float = 1.0,
    weights: Row | None = None,
) -> tuple[list[float], list[float]]:
    """SCAFFOLD Alg. 1, lines 16 and 17."""
    counted = weights or [1.0] * len(delta_y)
    moved = [
        x[j] + lr * sum(n / sum(counted) * row[j] for n, row in zip(counted, delta_y, strict=True))
        for j in range(len(x))
    ]
    return moved, [c[j] + sum(row[j] for row in delta_c) / clients_total for j in range(len(c))]


def momentum(theta: float, average: float, v: float, beta: float, lr: float, form: str) -> tuple[float, float]:
    """FedAvgM as FedDF App. C.2 prints it ('sum'), or as FedBE's and MOON's code has it ('ema')."""
    delta = theta - average
    v = beta * v + (delta if form == "sum" else (1 - beta) * delta)
    return theta - lr * v, v


def adaptive(
    kind: str, theta: float, average: float, m: float, v: float, lr: float, beta1: float, beta2: float, tau: float
) -> tuple[float, float, float]:
    """Reddi et al. 2021, Alg. 2, lines 8 to 13."""
    delta = average - theta
    m = beta1 * m + (1 - beta1) * delta
    square = delta * delta
    if kind == "adagrad":
        v = v + square
    elif kind == "yogi":
        sign = (v > square) - (v < square)
        v = v - (1 - beta2) * square * sign
    else:
        v = beta2 * v + (1 - beta2) * square
    return theta + lr * m / (math.sqrt(v) + tau), m, v


# ------------------------------------------------------------------------------------------- weights by labels, filters
def disco(counts: Values, num_samples: Row, a: float, b: float, metric: str) -> tuple[list[float], list[float]]:
    """FedDisco against a uniform target: discrepancies d_k and weights relu(n_k / n - a d_k + b), normalised."""
    classes = len(counts[0])
    rows = [[c / sum(row) for c in row] for row in counts]
    u = 1 / classes
    if metric == "l1":
        d = [sum(abs(q - u) for q in row) for row in rows]
    elif metric == "l2":
        d = [math.sqrt(sum((q - u) ** 2 for q in row)) for row in rows]
    elif metric == "cosine":
        d = [1 - sum(q * u for q in row) / math.sqrt(sum(q * q for q in row) * classes * u * u) for row in rows]
    else:
        d = [sum(q * math.log(q / u) for q in row if q > 0) for row in rows]
        d = [each / sum(d) if sum(d) > 1e-12 else 0.0 for each in d]
    raw = [max(n / sum(num_samples) - a * each + b, 0.0) for n, each in zip(num_samples, d, strict=True)]
    if sum(raw) == 0:
        raw = list(num_samples)
    return d, [each / sum(raw) for each in raw]


def margin(client_means: Sequence[dict[int, Row]], classes: int, threshold: float) -> tuple[list[float], float]:
    """FedTGP eq. 8: each class's distance to the nearest other one, and the largest of them, capped."""
    centres = {}
    for label in range(classes):
        found = [means[label] for means in client_means if label in means]
        if found:
            centres[label] = [math.fsum(column) / len(found) for column in zip(*found, strict=True)]
    gaps = dict.fromkeys(centres, math.inf)
    for one, other in itertools.permutations(centres, 2):
        gaps[one] = min(gaps[one], math.dist(centres[one], centres[other]))
    least = min(gaps.values())
    return [gaps.get(label, least) for label in range(classes)], min(max(gaps.values()), threshold)


def buffered(current: Row, bases: Values, updates: Values, counts: Row, factors: Row) -> list[float]:
    """FedBuff, Nguyen et al. 2022, Alg. 1: w + sum_k n_k s_k (u_k - b_k) / sum n; there n_k = 1 and sum n = K."""
    total = math.fsum(float(n) for n in counts)
    found = []
    for j, start in enumerate(current):
        steps = [
            float(n) * float(s) * (float(u[j]) - float(b[j]))
            for n, s, u, b in zip(counts, factors, updates, bases, strict=True)
        ]
        found.append(float(start) + math.fsum(steps) / total)
    return found
