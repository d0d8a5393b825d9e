"""Slow references of what is measured and minimised in tasks of many labels: loops over single numbers."""

import math
from typing import Any


def f1(labels: list[int], predicted: list[int], label: int) -> float | None:
    """Return F1 of one class; None where nobody has it."""
    hits = sum(a == b == label for a, b in zip(labels, predicted, strict=True))
    there = sum(a == label for a in labels) + sum(b == label for b in predicted)
    return None if there == 0 else 2 * hits / there


def iou(labels: list[int], predicted: list[int], label: int) -> float | None:
    """Return intersection over union of one class; None where nobody has it."""
    both = sum(a == b == label for a, b in zip(labels, predicted, strict=True))
    either = sum(label in pair for pair in zip(labels, predicted, strict=True))
    return None if either == 0 else both / either


def mean(values: list[float | None]) -> float:
    """Return the mean of those that are there."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else 0.0


def average_precision(scores: list[float], there: list[int]) -> float | None:
    """Return the area under precision by recall, as steps at each distinct score; None where none is there."""
    if not sum(there):
        return None
    area, recall = 0.0, 0.0
    for bound in sorted(set(scores), reverse=True):
        taken = [a for a, score in zip(there, scores, strict=True) if score >= bound]
        now = sum(taken) / sum(there)
        area, recall = area + (now - recall) * sum(taken) / len(taken), now
    return area


def cross_entropy(logits: list[float], label: int) -> float:
    """Return -ln softmax(logits)[label]."""
    top = max(logits)
    return top + math.log(sum(math.exp(each - top) for each in logits)) - logits[label]


def binary_cross_entropy(logit: float, label: int) -> float:
    """Return -ln of the probability of what is there."""
    return math.log1p(math.exp(-logit)) if label else math.log1p(math.exp(logit))


def binary_kl(teacher: float, student: float) -> float:
    """Return KL of two Bernoulli distributions, by their logits."""
    p, q = (1 / (1 + math.exp(-each)) for each in (teacher, student))
    return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))


def huber(error: float, delta: float) -> float:
    """Return Huber's loss of one error."""
    return error**2 / 2 if abs(error) <= delta else delta * (abs(error) - delta / 2)


def r2(values: list[float], wanted: list[float]) -> float:
    """Return 1 - squared errors / squared deviations of one column."""
    centre = sum(wanted) / len(wanted)
    return 1 - sum((a - b) ** 2 for a, b in zip(values, wanted, strict=True)) / sum((b - centre) ** 2 for b in wanted)


def flat(nested: Any) -> list[Any]:
    """Return the numbers of nested lists in their order."""
    return [each for inner in nested for each in flat(inner)] if isinstance(nested, list) else [nested]
