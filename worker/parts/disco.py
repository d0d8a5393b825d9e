"""FedDisco: averaging weights that take off what a client's labels differ from a target (Ye et al. 2023).

FedGO App. E.2 uses a = 0.5, b = 0.1. The clients' label counts must be known, which they may not want to tell.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from worker.parts.arrays import Float, finite, floats, option
from worker.parts.errors import PartError
from worker.parts.fuse import contributors, shares

METRICS = ("kl", "l1", "l2", "cosine")


@dataclass(frozen=True)
class Weights:
    """FedDisco's weights.

    Attributes:
        weights: [m], sum 1; 0 for a client without samples.
        discrepancy: d_k [m].
        fallback: True where every weight would be 0, so that they are n_k / sum n instead.
    """

    weights: Float
    discrepancy: Float
    fallback: bool


def discrepancy(class_counts: ArrayLike, metric: str = "kl", target: ArrayLike | None = None) -> Float:
    """Return d_k [m], how far each client's label distribution q_k is from the target.

    'kl' is KL(q_k || target) divided by its sum over the clients (0 for all where that sum is at most 1e-12); 'l1' and
    'l2' are norms of q_k - target; 'cosine' is 1 - cos(q_k, target). As in the authors' code, only 'kl' is divided.

    Args:
        class_counts: samples per class [m, C].
        metric: one of the four.
        target: a distribution [C], or counts; None for uniform.

    Raises:
        PartError: bad_option (metric), bad_counts (negative, not finite, or a client without samples),
            schema_mismatch, non_finite (KL is infinite: the target lacks a class that a client has), no_participants.
    """
    if metric not in METRICS:
        raise PartError("bad_option", f"metric {metric!r} is not known; use one of {', '.join(METRICS)}")
    counts = floats("class counts", class_counts)
    if counts.shape[:1] == (0,):
        raise PartError("no_participants", "there is nobody to weight")
    if counts.ndim != 2 or counts.shape[1] == 0:
        raise PartError("schema_mismatch", f"class counts {counts.shape}: clients and classes are needed")
    goal = floats("target", np.ones(counts.shape[1]) if target is None else target, 1)
    if goal.shape != counts.shape[1:]:
        raise PartError("schema_mismatch", f"the target has {goal.size} classes, the counts have {counts.shape[1]}")
    local, goal = _distributions("class counts of a client", counts), _distributions("the target", goal[None])[0]
    if metric == "l1":
        return np.asarray(np.abs(local - goal).sum(axis=1))
    if metric == "l2":
        return np.asarray(np.sqrt(((local - goal) ** 2).sum(axis=1)))
    if metric == "cosine":
        cosine = local @ goal / (np.linalg.norm(local, axis=1) * np.linalg.norm(goal))
        return np.asarray(np.maximum(1.0 - cosine, 0.0))
    return _normalised_kl(local, goal)


def _distributions(name: str, counts: Float) -> Float:
    if not np.isfinite(counts).all() or (counts < 0).any() or (counts.sum(axis=1) <= 0).any():
        raise PartError("bad_counts", f"{name}: counts are at least 0, finite, and not all 0")
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def _normalised_kl(local: Float, goal: Float) -> Float:
    present = local > 0
    if (present & (goal == 0)).any():
        raise PartError("non_finite", "a client has a class that the target gives no share; its KL is infinite")
    ratio = np.where(present, local, 1.0) / np.where(present, goal, 1.0)
    divergence = np.maximum((local * np.log(ratio)).sum(axis=1), 0.0)
    total = divergence.sum()
    return np.zeros(len(local)) if total <= 1e-12 else np.asarray(divergence / total)


def weights_from(num_samples: Sequence[float], distance: ArrayLike, a: float = 0.5, b: float = 0.1) -> Weights:
    """Return relu(n_k / sum n - a d_k + b), normalised; n_k / sum n where all of them are 0.

    Args:
        num_samples: n_k [m]; a client with 0 is no participant and gets weight 0.
        distance: d_k [m], as `discrepancy` returns it.
        a: what a discrepancy of 1 takes off.
        b: what everybody gets.

    Raises:
        PartError: no_participants, bad_weight, no_positive_weight, schema_mismatch, non_finite, out_of_range (a
            negative d_k), bad_option (a or b).
    """
    option("a", a)
    if not np.isfinite(b):
        raise PartError("bad_option", f"b is {b}; it must be finite")
    if len(num_samples) == 0:
        raise PartError("no_participants", "there is nobody to weight")
    fractions = np.asarray(shares(num_samples))
    gaps = finite("d", floats("d", distance, 1))
    if gaps.shape != fractions.shape:
        raise PartError("schema_mismatch", f"{fractions.size} numbers of samples but {gaps.size} discrepancies")
    if (gaps < 0).any():
        raise PartError("out_of_range", "a discrepancy is negative")
    raw = np.where(fractions > 0, np.maximum(fractions - a * gaps + b, 0.0), 0.0)
    if not raw.max() > 0:
        return Weights(fractions, gaps, fallback=True)
    raw /= raw.max()  # so that no sum overflows
    return Weights(np.asarray(raw / raw.sum()), gaps, fallback=False)


def weights(
    num_samples: Sequence[float],
    class_counts: Sequence[Sequence[float]],
    a: float = 0.5,
    b: float = 0.1,
    metric: str = "kl",
    target: ArrayLike | None = None,
) -> Weights:
    """Return FedDisco's weights from label counts [m, C]; the discrepancies of clients without samples are 0.

    Raises:
        PartError: as `discrepancy` and `weights_from`.
    """
    if len(num_samples) != len(class_counts):
        raise PartError("schema_mismatch", f"{len(num_samples)} numbers of samples but {len(class_counts)} rows")
    if len(num_samples) == 0:
        raise PartError("no_participants", "there is nobody to weight")
    kept, counts = contributors(num_samples), floats("class counts", class_counts, 2)
    gaps = np.zeros(len(num_samples))
    gaps[kept] = discrepancy(counts[kept], metric, target)
    return weights_from(num_samples, gaps, a, b)
