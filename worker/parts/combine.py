"""Combine: teachers' outputs and their weights -> one soft pseudo-label per sample. float64.

Shapes: m teachers, B samples, C classes; logits [m, B, C], weights [m, B] (None: 1/m each), result [B, C].
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from contract.tensors import Array
from worker.parts.arrays import finite, floats
from worker.parts.errors import PartError
from worker.parts.weigh import Float, softmax, uniform


def _checked(logits: ArrayLike, weights: ArrayLike | None) -> tuple[Float, Float]:
    outputs = floats("logits", logits)
    if outputs.shape[:1] == (0,):
        raise PartError("no_participants", "there is no teacher; at least one is needed")
    if outputs.ndim != 3 or outputs.shape[2] == 0:
        raise PartError("schema_mismatch", f"logits {outputs.shape}: teachers, samples and classes are needed")
    shares = uniform(*outputs.shape[:2]) if weights is None else floats("weights", weights)
    if outputs.shape[:2] != shares.shape:
        raise PartError("schema_mismatch", f"logits {outputs.shape} do not go with weights {shares.shape}")
    if not np.isfinite(shares).all() or (shares < 0).any():
        raise PartError("bad_weight", "a weight is negative or not finite")
    if (shares.sum(axis=0) <= 0).any():
        raise PartError("no_positive_weight", "a sample has no teacher with a positive weight")
    used = shares > 0
    if not np.isfinite(outputs[used]).all():
        raise PartError("non_finite", "a teacher with a positive weight has NaN or infinity among its logits")
    return np.where(used[:, :, None], outputs, 0.0), shares  # skipped, not multiplied: 0 * NaN is NaN


def weighted_logits(logits: ArrayLike, weights: ArrayLike | None = None) -> Float:
    """Return sum_k w_k (f_k - max f_k) [B, C]: the weighted mean of logits up to a constant per sample.

    Taking each teacher's own maximum off leaves the softmax as it is and keeps logits of +-1e4 precise.

    Raises:
        PartError: schema_mismatch, no_participants, bad_weight, no_positive_weight, non_finite.
    """
    outputs, shares = _checked(logits, weights)
    return np.asarray((shares[:, :, None] * (outputs - outputs.max(axis=2, keepdims=True))).sum(axis=0))


def average_logits(logits: ArrayLike, weights: ArrayLike | None = None, temperature: float = 1.0) -> Float:
    """Return softmax(sum_k w_k f_k / T) [B, C] (FedDF AVGLOGITS; FedGO Alg. 1 line 10).

    Raises:
        PartError: as `weighted_logits`; bad_option when the temperature is not positive.
    """
    return soften(weighted_logits(logits, weights), temperature)


def soften(values: Float, temperature: float) -> Float:
    """Return softmax(values [..., C] / T) over the last axis; a T near 0 gives one-hot rows, in which ties stay ties.

    Raises:
        PartError: bad_option (T not positive).
    """
    checked_temperature(temperature)
    with np.errstate(over="ignore"):  # far below the maximum, which is 0: the share is 0
        return softmax((values - values.max(axis=-1, keepdims=True)) / temperature)


@dataclass(frozen=True)
class Ensemble:
    """A pseudo-label [B, C] and the number of teachers behind it."""

    target: Float
    members: int


def ring_ensemble(logits: Sequence[ArrayLike], temperature: float = 4.0) -> Ensemble:
    """Return softmax(mean over rounds and groups of f / T) (FedSDD eq. 5; T = 4 in section 4.1).

    Args:
        logits: one array [K, B, C] for each of the R rounds that are there.
        temperature: T.

    Raises:
        PartError: as `average_logits`.
    """
    rounds = [floats("logits of a round", values, 3) for values in logits]
    if any(values.shape[1:] != rounds[0].shape[1:] for values in rounds):
        raise PartError("schema_mismatch", "the rounds' logits differ in samples or classes")
    members = sum(len(values) for values in rounds)
    if members == 0:
        raise PartError("no_participants", "there is no teacher; at least one is needed")
    return Ensemble(average_logits(np.concatenate(rounds), None, temperature), members)


@dataclass(frozen=True)
class Reduced:
    """DS-FL's mean of probabilities [B, C] and the target [B, C] that is made of it."""

    mean: Float
    target: Float


def reduce_entropy(mean: ArrayLike, temperature: float = 0.1) -> Reduced:
    """Return softmax(p / T) of mean probabilities p [B, C]: a softmax of probabilities, sharp for small T (DS-FL).

    Raises:
        PartError: bad_option (T not positive), out_of_range (a probability outside [0, 1]), non_finite.
    """
    probs = finite("probabilities", floats("probabilities", mean, 2))
    if ((probs < 0) | (probs > 1 + 1e-6)).any():
        raise PartError("out_of_range", "a probability is outside [0, 1]")
    return Reduced(probs, soften(probs, temperature))


def ds_fl_target(probs: ArrayLike, temperature: float = 0.1) -> Reduced:
    """Return the mean over clients of probabilities [m, B, C], and its target (Itahara et al. 2021, eq. 5 and 12: ERA).

    Raises:
        PartError: as `reduce_entropy`; no_participants, schema_mismatch.
    """
    values = floats("probabilities", probs)
    if values.shape[:1] == (0,):
        raise PartError("no_participants", "there is nobody whose probabilities to average")
    if values.ndim != 3 or values.shape[2] == 0:
        raise PartError("schema_mismatch", f"probabilities {values.shape}: clients, samples and classes are needed")
    if ((finite("probabilities", values) < 0) | (values > 1 + 1e-6)).any():
        raise PartError("out_of_range", "a probability is outside [0, 1]")
    return reduce_entropy(values.mean(axis=0), temperature)


def average_probs(logits: ArrayLike, weights: ArrayLike | None = None) -> Float:
    """Return sum_k w_k softmax(f_k) [B, C] (FedBE eq. 4).

    Raises:
        PartError: as `weighted_logits`.
    """
    outputs, shares = _checked(logits, weights)
    return np.asarray((shares[:, :, None] * softmax(outputs)).sum(axis=0))


def sharpen(probs: ArrayLike, power: float = 2.0) -> Float:
    """Return p^power / sum p^power over the last axis of p [..., C] (FedBE section 5.1: power 2); ties stay ties.

    Raises:
        PartError: bad_option (power not positive), out_of_range (a negative probability), non_finite,
            no_positive_weight (a row of zeros).
    """
    values = floats("probabilities", probs)
    if not (power > 0 and np.isfinite(power)):
        raise PartError("bad_option", f"the power of sharpening is {power}; it must be positive and finite")
    if not np.isfinite(values).all():
        raise PartError("non_finite", "probabilities: NaN or infinity")
    if (values < 0).any():
        raise PartError("out_of_range", "a probability is negative")
    peak = values.max(axis=-1, keepdims=True)
    if not (peak > 0).all():
        raise PartError("no_positive_weight", "a row of probabilities is all 0")
    with np.errstate(divide="ignore", over="ignore", under="ignore"):  # powers of what is far below the largest: 0
        return softmax(power * np.log(values / peak))


def checked_temperature(temperature: float) -> float:
    """Return a temperature that is positive and finite.

    Raises:
        PartError: bad_option.
    """
    if not (temperature > 0 and np.isfinite(temperature)):
        raise PartError("bad_option", f"the temperature is {temperature}; it must be positive and finite")
    return temperature


class Stream:
    """The same combination with one teacher in memory at a time: an online softmax over the teachers.

    Log weights may depend on the teacher's own outputs (variance, entropy), so the normaliser is known only after the
    last teacher. A running maximum per sample keeps every exponential at most 1. Memory: [B, C] and two [B].

    Args:
        samples: B.
        classes: C.
        kind: 'logits' (as `weighted_logits`) or 'probs' (as `average_probs`).
    """

    def __init__(self, samples: int, classes: int, kind: str = "logits"):
        if kind not in ("logits", "probs"):
            raise PartError("bad_option", f"combine {kind!r} is not known; use 'logits' or 'probs'")
        self._kind = kind
        self._sum = np.zeros((samples, classes))
        self._weight = np.zeros(samples)
        self._peak = np.full(samples, -np.inf)

    def add(self, start: int, logits: Float, log_weight: Float) -> None:
        """Take one teacher's logits [b, C] for the samples from `start` on, with its log weights [b] (-inf: weight 0).

        Raises:
            PartError: non_finite.
        """
        if not np.isfinite(logits).all() or np.isnan(log_weight).any() or np.isposinf(log_weight).any():
            raise PartError("non_finite", "logits or weights have NaN or infinity")
        rows = slice(start, start + len(logits))
        values = softmax(logits) if self._kind == "probs" else logits - logits.max(axis=1, keepdims=True)
        peak = np.maximum(self._peak[rows], log_weight)
        nobody = np.isneginf(peak)  # so far every weight is 0: count all alike, until one is positive
        with np.errstate(invalid="ignore"):  # -inf - -inf, replaced by the next line's 1
            keep = np.where(nobody, 1.0, np.exp(self._peak[rows] - peak))
            share = np.where(nobody, 1.0, np.exp(log_weight - peak))
        self._sum[rows] = self._sum[rows] * keep[:, None] + values * share[:, None]
        self._weight[rows] = self._weight[rows] * keep + share
        self._peak[rows] = peak

    def state(self) -> dict[str, Float]:
        """Return the sums so far, float64: what `restore` needs to go on with the next teacher."""
        return {"sum": self._sum, "weight": self._weight, "peak": self._peak}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Go on from sums that `state` gave."""
        for name, held in self.state().items():
            held[...] = state[name]

    def result(self) -> Float:
        """Return [B, C]: the mean logits up to a constant per sample, or the mean probabilities.

        Raises:
            PartError: no_participants when no teacher was added for some sample.
        """
        if (self._weight <= 0).any():
            raise PartError("no_participants", "a sample was seen by no teacher")
        return np.asarray(self._sum / self._weight[:, None])

    def logits(self) -> Float:
        """Return teacher logits [B, C] whose softmax is the pseudo-label, for either kind."""
        mean = self.result()
        if self._kind == "logits":
            return mean
        return np.log(np.maximum(mean, np.finfo(np.float32).tiny))


def effective_teachers(weights: Float) -> Float:
    """Return 1 / sum_k w_k^2 [B] for weights [m, B] that sum to 1: m when all count alike, 1 when one rules."""
    return np.asarray(1.0 / (weights**2).sum(axis=0))
