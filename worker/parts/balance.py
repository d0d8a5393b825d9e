"""Balanced odds: whose a sample is, when each client owns its share of the set (Sinkhorn & Knopp 1967). float64.

Shapes: N clients, S samples. L_k(x) is a log weight, n_k a client's number of samples, n their sum.
"""

from dataclasses import dataclass

import numpy as np

from worker.parts.arrays import Float
from worker.parts.errors import PartError


@dataclass(frozen=True)
class Balanced:
    """Log weights after the last sweep.

    Attributes:
        logs: L_k(x) [N, S].
        scales: what they were moved by of each client [N]; what is not among them is the same for all clients of a
            sample, and none of its weights hangs on that.
    """

    logs: Float
    scales: Float


def log_sum(rows: Float, axis: int) -> Float:
    """Return ln sum exp along an axis; -inf where all are."""
    return np.asarray(np.logaddexp.reduce(rows, axis=axis))


def balance(logs: Float, num_samples: Float, sweeps: int) -> Balanced:
    """Return log weights whose weights sum to 1 in each sample, and to n_k / n in each client's mean over the set.

    Each client's mean is brought to n_k first; a sweep then takes ln sum_j exp L_j(x) off every sample, and moves every
    client by ln(n_k / n) - ln mean_S exp L_k. It ends with clients, whose means are exact; the sums of samples come
    near to 1 with the sweeps. Without a sweep nothing is moved.

    Args:
        logs: of the clients' plain odds, ln n_k + ln Phi_k(x) [N, S]; finite.
        num_samples: n_k > 0 [N].
        sweeps: how many.

    Raises:
        PartError: no_participants (N = 0), bad_weight, schema_mismatch, non_finite, bad_option (S = 0).
    """
    if len(logs) == 0:
        raise PartError("no_participants", "there is no client whose odds could be balanced")
    if logs.ndim != 2 or num_samples.shape != logs.shape[:1]:
        raise PartError("schema_mismatch", f"log weights {logs.shape} of {num_samples.shape} numbers of samples")
    if logs.shape[1] == 0:
        raise PartError("bad_option", "the server set has no sample, on which odds could be balanced")
    if not (np.isfinite(num_samples).all() and (num_samples > 0).all()):
        raise PartError("bad_weight", "a number of samples is not finite, or not above 0")
    if not np.isfinite(logs).all():
        raise PartError("non_finite", "a log weight is NaN or infinity")
    if sweeps == 0:
        return Balanced(logs, np.zeros(len(logs)))
    shares, size = np.log(num_samples / num_samples.sum()), np.log(logs.shape[1])
    scales = np.log(num_samples) - (log_sum(logs, axis=1) - size)
    found = logs + scales[:, None]
    for _ in range(sweeps):
        found = found - log_sum(found, axis=0)
        step = shares - (log_sum(found, axis=1) - size)
        found, scales = found + step[:, None], scales + step
    return Balanced(found, scales)
