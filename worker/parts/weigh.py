"""Weigh: how much each teacher counts, sample by sample. float64 throughout.

Shapes: m teachers, B samples, C classes; logits [m, B, C], weights [m, B]. Every weighting is a log weight per teacher
and sample, normalised over teachers by a softmax, so that teachers can be streamed one at a time (`combine.Stream`).
Symbols as in FedGO: n_k samples of client k, a_k discriminator score, D_k its probability, Phi_k = D_k / (1 - D_k).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contract.local import CLIP
from contract.recipes import parts
from worker.parts import arrays
from worker.parts.errors import PartError
from worker.registry import implements

Float = NDArray[np.float64]


def _floats(name: str, values: ArrayLike, ndim: int) -> Float:
    array = arrays.floats(name, values)
    if array.shape[:1] == (0,):
        raise PartError("no_participants", "there is no teacher; at least one is needed")
    if array.ndim != ndim or (ndim == 3 and array.shape[2] == 0):
        raise PartError("schema_mismatch", f"{name}: {ndim} axes are needed, none of them empty, not {array.shape}")
    return array


def _finite(name: str, array: Float) -> Float:
    if not np.isfinite(array).all():
        raise PartError("non_finite", f"{name}: NaN or infinity")
    return array


def log_softmax(logits: Float) -> Float:
    """Return log softmax over the last axis of logits [..., C], with the maximum taken off first."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def softmax(logits: Float) -> Float:
    """Return softmax over the last axis of logits [..., C]."""
    return np.asarray(np.exp(log_softmax(logits)))


def normalise(log_weights: Float) -> Float:
    """Return weights [m, B] that sum to 1 over the teachers; a sample that nobody wants (all -inf) gets 1/m each.

    Raises:
        PartError: no_participants (m = 0), non_finite (NaN or +inf).
    """
    if log_weights.shape[0] == 0:
        raise PartError("no_participants", "there is no teacher; at least one is needed")
    if np.isnan(log_weights).any() or np.isposinf(log_weights).any():
        raise PartError("non_finite", "a log weight is NaN or infinity")
    peak = log_weights.max(axis=0)
    nobody = np.isneginf(peak)
    safe = np.where(nobody, 0.0, log_weights)
    weights = np.exp(safe - safe.max(axis=0))
    return np.asarray(weights / weights.sum(axis=0))


# ------------------------------------------------------------------------------------- log weights of one teacher [B]
def log_variance(logits: Float, space: str = "probs") -> Float:
    """Return ln Var over the classes of each sample (Fed-ET eq. 3), population variance; -inf where it is 0.

    Args:
        logits: [..., B, C].
        space: 'probs' for the variance of the softmax (Fed-ET), 'logits' for that of the logits (as FedGO describes).

    Raises:
        PartError: bad_option.
    """
    if space not in ("probs", "logits"):
        raise PartError("bad_option", f"space {space!r} is not known; use 'probs' or 'logits'")
    values = softmax(logits) if space == "probs" else logits - logits.max(axis=-1, keepdims=True)
    width = np.abs(values).max(axis=-1, keepdims=True)  # taken off first: the square of a large logit overflows
    with np.errstate(divide="ignore", under="ignore"):
        spread = (values / np.where(width > 0, width, 1.0)).var(axis=-1)
        return np.asarray(np.log(spread) + 2.0 * np.log(np.where(width > 0, width, 1.0)[..., 0]))


def entropy(logits: ArrayLike) -> Float:
    """Return the natural-log entropy [...] of softmax(logits [..., C]), between 0 and ln C."""
    logs = log_softmax(np.asarray(logits, dtype=np.float64))
    return np.asarray(-(np.exp(logs) * logs).sum(axis=-1) + 0.0)


def log_entropy_weight(logits: Float, tau: float = 1.0) -> Float:
    """Return -H(softmax f) / tau for logits f [..., C] (FedHKT and FedDS as compared by FedGO; tau in the exponential).

    Raises:
        PartError: bad_option (tau not positive).
    """
    if not (tau > 0 and np.isfinite(tau)):
        raise PartError("bad_option", f"tau is {tau}; it must be positive and finite")
    return np.asarray(-entropy(logits) / tau)


def log_odds(score: ArrayLike, link: str = "double_sigmoid") -> Float:
    """Return ln Phi of discriminator scores of any shape (FedGO Def. 3.5, App. E.2).

    Args:
        score: a before any sigmoid; for link 'prob' the probability D.
        link: 'double_sigmoid': D = sigmoid(sigmoid(a)), so ln Phi = sigmoid(a), between 0 and 1. 'sigmoid': ln Phi = a,
            clipped to +-ln((1 - CLIP) / CLIP). 'prob': D is given, clipped to [CLIP, 1 - CLIP].

    Raises:
        PartError: non_finite, out_of_range (a probability outside [0, 1]), bad_option.
    """
    values = _finite("discriminator scores", np.asarray(score, dtype=np.float64))
    if link == "double_sigmoid":
        small = np.exp(-np.abs(values))  # in (0, 1]: no overflow on either side
        return np.asarray(np.where(values >= 0, 1.0 / (1.0 + small), small / (1.0 + small)))
    if link == "sigmoid":
        bound = np.log1p(-CLIP) - np.log(CLIP)
        return np.asarray(np.clip(values, -bound, bound))
    if link != "prob":
        raise PartError("bad_option", f"link {link!r} is not known; use 'double_sigmoid', 'sigmoid' or 'prob'")
    _require_probabilities(values)
    inside = np.clip(values, CLIP, 1.0 - CLIP)
    return np.asarray(np.log(inside) - np.log1p(-inside))


def odds_of(score: ArrayLike, link: str = "double_sigmoid") -> Float:
    """Return Phi = D / (1 - D), of the scores' shape: in (1, e) for 'double_sigmoid'. Else as `log_odds`."""
    return np.asarray(np.exp(log_odds(score, link)))


def log_probability(score: ArrayLike) -> Float:
    """Return ln sigmoid(a) for scores of any shape: the log of a single-sigmoid discriminator's probability (DaFKD).

    Raises:
        PartError: non_finite.
    """
    values = _finite("discriminator scores", np.asarray(score, dtype=np.float64))
    return np.asarray(np.minimum(values, 0.0) - np.log1p(np.exp(-np.abs(values))))


def _require_probabilities(values: Float) -> None:
    if ((values < 0) | (values > 1)).any():
        raise PartError("out_of_range", "a discriminator probability is outside [0, 1]")


# ----------------------------------------------------------------------------- weights of all teachers at once [m, B]
def uniform(teachers: int, samples: int) -> Float:
    """Return 1/m everywhere (FedDF's AVGLOGITS).

    Raises:
        PartError: no_participants.
    """
    return normalise(np.zeros((max(teachers, 0), max(samples, 0))))


def log_counts(num_samples: Sequence[float] | NDArray[Any]) -> Float:
    """Return ln n_k [m]; -inf for a client without samples.

    Raises:
        PartError: no_participants, bad_weight (negative or not finite), no_positive_weight.
    """
    counts = arrays.floats("numbers of samples", num_samples, 1)
    if counts.size == 0:
        raise PartError("no_participants", "there is no teacher; at least one is needed")
    if not np.isfinite(counts).all() or (counts < 0).any():
        raise PartError("bad_weight", "a number of samples is negative or not finite")
    if not (counts > 0).any():
        raise PartError("no_positive_weight", "every client has 0 samples; at least one must have some")
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(counts))


def samples(num_samples: Sequence[float], size: int) -> Float:
    """Return n_k / sum n for each of `size` samples.

    Raises:
        PartError: as `log_counts`.
    """
    return normalise(np.repeat(log_counts(num_samples)[:, None], size, axis=1))


def variance(logits: ArrayLike, space: str = "probs") -> Float:
    """Return Var_k / sum Var for logits [m, B, C]; uniform where all are 0 (Fed-ET eq. 3).

    Raises:
        PartError: bad_option, non_finite, no_participants.
    """
    return normalise(log_variance(_finite("logits", _floats("logits", logits, 3)), space))


def entropy_softmax(logits: ArrayLike, tau: float = 1.0) -> Float:
    """Return softmax over teachers of -H_k / tau for logits [m, B, C].

    Raises:
        PartError: bad_option, non_finite, no_participants.
    """
    entropies = entropy(_finite("logits", _floats("logits", logits, 3)))
    arrays.option("tau", tau, open_low=True)
    with np.errstate(over="ignore"):  # tau near 0: all but the surest teachers get 0
        return normalise((entropies.min(axis=0) - entropies) / tau)


def dafkd(probability: ArrayLike) -> Float:
    """Return D_k / sum D for probabilities [m, B]; uniform where every discriminator rejects the sample (DaFKD).

    Raises:
        PartError: non_finite, out_of_range, no_participants.
    """
    values = _finite("discriminator probabilities", _floats("discriminator probabilities", probability, 2))
    _require_probabilities(values)
    with np.errstate(divide="ignore"):
        return normalise(np.log(values))


def odds(num_samples: Sequence[float], score: ArrayLike, link: str = "double_sigmoid") -> Float:
    """Return n_k Phi_k / sum n Phi = softmax_k(ln n_k + ln Phi_k) (FedGO eq. 9).

    Args:
        num_samples: n_k [m]; a client with 0 gets weight 0 and its scores are not looked at.
        score: [m, B], as `log_odds` takes them.
        link: as in `log_odds`.

    Raises:
        PartError: as `log_odds` and `log_counts`; schema_mismatch when the lengths differ.
    """
    values = _floats("discriminator scores", score, 2)
    counts = log_counts(num_samples)
    if values.shape[0] != counts.shape[0]:
        raise PartError("schema_mismatch", f"{counts.shape[0]} sample counts but {values.shape[0]} rows of scores")
    result = np.full(values.shape, -np.inf)
    present = np.isfinite(counts)
    result[present] = counts[present, None] + log_odds(values[present], link)
    return normalise(result)


# ------------------------------------------------------------------------------------ a recipe's choice, one teacher
def log_weights(weigh: parts.Weigh, num_samples: int, logits: Float, scores: Float | None) -> Float:
    """Return one teacher's log weights [B] under a recipe's weighting; `normalise` over teachers makes weights of them.

    Args:
        weigh: the recipe's choice.
        num_samples: n_k > 0.
        logits: the teacher's outputs [B, C].
        scores: its client's discriminator scores a [B], for the weightings that read them.

    Raises:
        PartError: non_finite; bad_option when scores are needed and missing.
    """
    rule: LogWeights = implements.of(weigh)
    return rule(weigh, num_samples, logits, scores)


LogWeights = Callable[[Any, int, Float, Float | None], Float]
"""(choice, n_k, logits [B, C], scores [B] or None) -> log weights [B]."""


def _needed(weigh: parts.WeighChoice, scores: Float | None) -> Float:
    if scores is None:
        raise PartError("bad_option", f"the weighting {weigh.kind!r} reads discriminator scores, and there are none")
    return scores


@implements(parts.WeighUniform)
def _uniform(_: parts.WeighUniform, num_samples: int, logits: Float, scores: Float | None) -> Float:
    return np.zeros(len(logits))


@implements(parts.WeighSamples)
def _samples(_: parts.WeighSamples, num_samples: int, logits: Float, scores: Float | None) -> Float:
    return np.full(len(logits), np.log(num_samples))


@implements(parts.WeighVariance)
def _variance(weigh: parts.WeighVariance, num_samples: int, logits: Float, scores: Float | None) -> Float:
    return log_variance(logits, weigh.space)


@implements(parts.WeighEntropy)
def _entropy(weigh: parts.WeighEntropy, num_samples: int, logits: Float, scores: Float | None) -> Float:
    return log_entropy_weight(logits, weigh.tau)


@implements(parts.WeighDafkd)
def _dafkd(weigh: parts.WeighDafkd, num_samples: int, logits: Float, scores: Float | None) -> Float:
    return log_probability(_needed(weigh, scores))


@implements(parts.WeighOdds)
def _odds(weigh: parts.WeighOdds, num_samples: int, logits: Float, scores: Float | None) -> Float:
    return np.asarray(np.log(num_samples) + log_odds(_needed(weigh, scores), weigh.link))


@implements(parts.WeighProduct)
def _product(weigh: parts.WeighProduct, num_samples: int, logits: Float, scores: Float | None) -> Float:
    """Sum the factors' logarithms; what each factor's weights are divided by is the same for all teachers."""
    return np.asarray(sum(log_weights(factor, num_samples, logits, scores) for factor in weigh.factors))
