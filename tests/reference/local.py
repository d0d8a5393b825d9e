"""The devices' objectives, slowly: loops from the papers' formulas that share nothing with the product."""

import math
from collections.abc import Sequence
from typing import Any

from tests.reference.ensembles import kl, softmax


def proximal(now: Sequence[float], sent: Sequence[float], mu: float) -> float:
    """FedProx: mu/2 ||w - w_sent||^2."""
    return mu / 2 * math.fsum((a - b) ** 2 for a, b in zip(now, sent, strict=True))


def fedgkd(student: Any, teacher: Any, gamma: float, tau: float) -> float:
    """FedGKD: gamma/2 tau^2 KL(teacher_tau || student_tau)."""
    return gamma / 2 * kl(student, teacher, tau)


def cosine(one: Sequence[float], two: Sequence[float]) -> float:
    length = math.sqrt(math.fsum(a * a for a in one)) * math.sqrt(math.fsum(b * b for b in two))
    return math.fsum(a * b for a, b in zip(one, two, strict=True)) / length


def moon(z: Any, near: Any, far: Any, mu: float, tau: float) -> float:
    """MOON eq. 3: mu times the mean of -ln of the global model's share among all similarities."""
    total = 0.0
    for index, row in enumerate(z):
        similarities = [cosine(row, other[index]) / tau for other in (near, *far)]
        total -= math.log(softmax(similarities)[0])
    return mu * total / len(z)


def feduv(logits: Any, features: Any) -> tuple[float, float]:
    """FedUV eq. 4 to 7: how far the outputs' deviations are below one-hot ones, how near the features are."""
    batch, classes = len(logits), len(logits[0])
    ideal = math.sqrt((1 - 1 / classes) * (1 / classes) * classes / (classes - 1)) if classes > 1 else 0.0
    probs = [softmax(row) for row in logits]
    short = []
    for column in zip(*probs, strict=True):
        mean = math.fsum(column) / batch
        short.append(max(0.0, ideal - math.sqrt(math.fsum((p - mean) ** 2 for p in column) / (batch - 1))))
    pairs = [math.dist(features[i], features[j]) ** 2 for i in range(batch) for j in range(i + 1, batch)]
    apart = sorted(pair for pair in pairs if pair > 0)
    middle = apart[(len(apart) - 1) // 2] if apart else 1.0
    return math.fsum(short) / classes, math.fsum(math.exp(-pair / middle) for pair in pairs) / len(pairs)


def pull(features: Any, labels: Sequence[int], prototypes: Any, weight: float) -> float:
    """FedTGP: weight times the mean squared difference to the prototype of the sample's class."""
    squares = [
        (f - p) ** 2 for row, y in zip(features, labels, strict=True) for f, p in zip(row, prototypes[y], strict=True)
    ]
    return weight * math.fsum(squares) / len(squares)


def variate(x: float, y: float, c: float, c_i: float, lr: float, steps: int) -> float:
    """SCAFFOLD option II: c_i - c + (x - y) / (K eta)."""
    return c_i - c + (x - y) / (steps * lr)
