"""Weigh: how much each teacher counts, sample by sample. float64 throughout.

Shapes: m teachers, B samples, C classes; logits [m, B, C], weights [m, B]. Every weighting is a log weight per teacher
and sample, normalised over teachers by a softmax, so that teachers can be streamed one at a time (`combine.Mean`).
Symbols as in FedGO: n_k samples of client k, a_k discriminator score, D_k its probability, Phi_k = D_k / (1 - D_k).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from contract.guard import fault, theirs
from contract.local import CLIP
from contract.measures import log_softmax, softmax
from contract.recipes import parts
from worker.parts.arrays import Float, finite, probabilities
from worker.parts.errors import PartError
from worker.registry import implements


def normalise(rows: Sequence[Float]) -> Float:
    """Return weights [m, B] that sum to 1 over the teachers; a sample that nobody wants (all -inf) gets 1/m each.

    Args:
        rows: each teacher's log weights [B].

    Raises:
        PartError: no_participants (m = 0), schema_mismatch, non_finite (NaN or +inf).
    """
    if len(rows) == 0:
        raise PartError("no_participants", "there is no teacher; at least one is needed")
    if any(row.shape != rows[0].shape for row in rows):
        raise PartError("schema_mismatch", "the teachers' weights are for different numbers of samples")
    log_weights = np.stack(rows)
    if np.isnan(log_weights).any() or np.isposinf(log_weights).any():
        raise PartError("non_finite", "a log weight is NaN or infinity")
    peak = log_weights.max(axis=0)
    nobody = np.isneginf(peak)
    safe = np.where(nobody, 0.0, log_weights)
    weights = np.exp(safe - safe.max(axis=0))
    return np.asarray(weights / weights.sum(axis=0))


def over_positions(values: Float, of_logs: bool) -> Float:
    """Return [B], the mean over the positions of values [B] or [B, P...]; those that are NaN are none.

    A sample without a position counts nothing by logarithms, else 0.

    Args:
        values: of each position.
        of_logs: they are logarithms, and the result is that of the mean.
    """
    if values.ndim == 1:
        return values
    flat = values.reshape(len(values), -1)
    kept = ~np.isnan(flat)
    count = kept.sum(axis=1)
    if of_logs:
        total = np.logaddexp.reduce(np.where(kept, flat, -np.inf), axis=1)
        return np.asarray(total - np.log(np.maximum(count, 1)))
    return np.asarray(np.where(kept, flat, 0.0).sum(axis=1) / np.maximum(count, 1))


# ------------------------------------------------------------------------------------- log weights of one teacher [B]
def log_variance(logits: Float, space: str = "probs") -> Float:
    """Return ln Var over the classes of each sample (Fed-ET eq. 3), population variance; -inf where it is 0.

    Args:
        logits: [..., B, C].
        space: 'probs' for the variance of the softmax (Fed-ET), 'logits' for that of the logits (as FedGO describes).
    """
    values = softmax(logits) if space == "probs" else logits - logits.max(axis=-1, keepdims=True)
    width = np.abs(values).max(axis=-1, keepdims=True)  # taken off first: the square of a large logit overflows
    with np.errstate(divide="ignore", under="ignore"):
        spread = (values / np.where(width > 0, width, 1.0)).var(axis=-1)
        return np.asarray(np.log(spread) + 2.0 * np.log(np.where(width > 0, width, 1.0)[..., 0]))


def entropy(logits: Float) -> Float:
    """Return the natural-log entropy [...] of softmax(logits [..., C]), between 0 and ln C."""
    logs = log_softmax(logits)
    return np.asarray(-(np.exp(logs) * logs).sum(axis=-1) + 0.0)


def log_entropy_weight(logits: Float, tau: float = 1.0) -> Float:
    """Return -H(softmax f) / tau for logits f [..., C] (FedHKT and FedDS as compared by FedGO; tau in the exponential).

    A tau near 0 leaves the surest teachers alone.
    """
    with np.errstate(over="ignore"):
        return np.asarray(-entropy(logits) / tau)


def log_odds(score: ArrayLike, link: str = "double_sigmoid") -> Float:
    """Return ln Phi of discriminator scores of any shape (FedGO Def. 3.5, App. E.2).

    Args:
        score: a before any sigmoid; for link 'prob' the probability D.
        link: 'double_sigmoid': D = sigmoid(sigmoid(a)), so ln Phi = sigmoid(a), between 0 and 1. 'sigmoid': ln Phi = a,
            clipped to +-ln((1 - CLIP) / CLIP). 'prob': D is given, clipped to [CLIP, 1 - CLIP].

    Raises:
        PartError: non_finite, out_of_range (a probability outside [0, 1]).
    """
    values = finite("discriminator scores", np.asarray(score, dtype=np.float64))
    if link == "double_sigmoid":
        small = np.exp(-np.abs(values))  # in (0, 1]: no overflow on either side
        return np.asarray(np.where(values >= 0, 1.0 / (1.0 + small), small / (1.0 + small)))
    if link == "sigmoid":
        bound = np.log1p(-CLIP) - np.log(CLIP)
        return np.asarray(np.clip(values, -bound, bound))
    inside = np.clip(probabilities("discriminator probability", values), CLIP, 1.0 - CLIP)
    return np.asarray(np.log(inside) - np.log1p(-inside))


def log_probability(score: ArrayLike, link: str = "sigmoid") -> Float:
    """Return ln D of discriminators, of the scores' shape (DaFKD); -inf for one that rejects a sample.

    Args:
        score: a before any sigmoid; for link 'prob' the probability D.
        link: 'sigmoid', as DaFKD has it; 'double_sigmoid', D = sigmoid(sigmoid(a)), as FedGO compares it; or 'prob'.

    Raises:
        PartError: non_finite, out_of_range (a probability outside [0, 1]).
    """
    values = finite("discriminator scores", np.asarray(score, dtype=np.float64))
    if link == "prob":
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(probabilities("discriminator probability", values)))
    if link == "double_sigmoid":
        values = log_odds(values)
    return np.asarray(np.minimum(values, 0.0) - np.log1p(np.exp(-np.abs(values))))


# ------------------------------------------------------------------------------------ a recipe's choice, one teacher
def log_weights(weigh: parts.Weigh, num_samples: float, logits: Float, scores: Float | None) -> Float:
    """Return one teacher's log weights [B] under a recipe's weighting; `normalise` over teachers makes weights of them.

    Args:
        weigh: the recipe's choice.
        num_samples: n_k; a client with 0 is no teacher: its weight is 0, and nothing of it is looked at.
        logits: the teacher's outputs [B, C], or of several positions [B, P..., C], NaN at those that are none.
        scores: its client's discriminator scores a [B], for the weightings that read them.

    Raises:
        PartError: bad_weight (n_k), non_finite, out_of_range; bad_option when scores are needed and missing.
        PluginFault: the rule of another package failed, or returned no log weights.
    """
    if not (np.isfinite(num_samples) and num_samples >= 0):
        raise PartError("bad_weight", f"a number of samples is {num_samples}; it must be finite, at least 0")
    if num_samples == 0:
        return np.full(len(logits), -np.inf)
    rule: LogWeights = implements.of(weigh)
    with theirs(weigh):
        found = rule(weigh, num_samples, logits, scores)
    return found if type(weigh).is_own() else _sound(weigh, found, len(logits))


def _sound(weigh: parts.Weigh, found: Any, size: int) -> Float:
    """Return the log weights [B] that a package's rule gave.

    Raises:
        PluginFault: they are of another shape, no floats, NaN or +inf.
    """
    if not isinstance(found, np.ndarray) or found.dtype.kind != "f" or found.shape != (size,):
        given = f"{found.dtype} {list(found.shape)}" if isinstance(found, np.ndarray) else type(found).__name__
        raise fault(weigh, f"returned {given}, and log weights are floats of shape [{size}], one a sample")
    if np.isnan(found).any() or np.isposinf(found).any():
        raise fault(weigh, "returned NaN or +inf, as of the logarithm of a negative weight; -inf is no weight")
    return found


def of_clients(weigh: parts.Weigh, clients: Sequence[tuple[float, Float | None]], size: int) -> dict[int, Float]:
    """Return what a group's clients count together: ln sum_k w_k [B] by the number of the factor that counts clients.

    A group of clients k with data p_k has n = sum n_k and p = sum n_k p_k / n, so the weight n Phi that odds give it is
    sum n_k Phi_k: that of its clients together (FedGO Thm 3.6), as is its number of samples.

    Args:
        weigh: the recipe's choice.
        clients: n_k and the discriminator's scores a [B], where they are read, of each; without one, -inf.
        size: B.

    Raises:
        PartError: as `log_weights`.
    """
    nothing = np.zeros((size, 1))
    return {
        number: _log_sum([log_weights(factor, *(n, nothing, scores)) for n, scores in clients], size)
        for number, factor in enumerate(weigh.factors_of)
        if factor.counts_clients
    }


def _log_sum(rows: Sequence[Float], size: int) -> Float:
    """Return ln sum_k exp(row_k) [B], -inf where all are."""
    return np.asarray(np.logaddexp.reduce([np.full(size, -np.inf), *rows], axis=0))


def log_weights_of_group(weigh: parts.Weigh, logits: Float, counted: Mapping[int, Float]) -> Float:
    """Return a group's log weights [B]: of its own outputs [B, C], and of what its clients count (`of_clients`)."""
    rows = [
        counted[number] if factor.counts_clients else log_weights(factor, 1, logits, None)
        for number, factor in enumerate(weigh.factors_of)
    ]
    return rows[0] if len(rows) == 1 else _together(rows)


LogWeights = Callable[[Any, float, Float, Float | None], Float]
"""(choice, n_k, logits [B, C], scores [B] or None) -> log weights [B]."""


def _needed(weigh: parts.WeighChoice, scores: Float | None) -> Float:
    if scores is None:
        raise PartError("bad_option", f"the weighting {weigh.kind!r} reads discriminator scores, and there are none")
    return scores


@implements(parts.WeighUniform)
def _uniform(_: parts.WeighUniform, num_samples: float, logits: Float, scores: Float | None) -> Float:
    return np.zeros(len(logits))


@implements(parts.WeighSamples)
def _samples(_: parts.WeighSamples, num_samples: float, logits: Float, scores: Float | None) -> Float:
    return np.full(len(logits), np.log(num_samples))


@implements(parts.WeighVariance)
def _variance(weigh: parts.WeighVariance, num_samples: float, logits: Float, scores: Float | None) -> Float:
    return over_positions(log_variance(logits, weigh.space), of_logs=True)


@implements(parts.WeighEntropy)
def _entropy(weigh: parts.WeighEntropy, num_samples: float, logits: Float, scores: Float | None) -> Float:
    if logits.ndim == 2:
        return log_entropy_weight(logits, weigh.tau)
    with np.errstate(over="ignore"):
        return np.asarray(-over_positions(entropy(logits), of_logs=False) / weigh.tau)


@implements(parts.WeighDafkd)
def _dafkd(weigh: parts.WeighDafkd, num_samples: float, logits: Float, scores: Float | None) -> Float:
    return log_probability(_needed(weigh, scores), weigh.link)


@implements(parts.WeighOdds)
def _odds(weigh: parts.WeighOdds, num_samples: float, logits: Float, scores: Float | None) -> Float:
    return np.asarray(np.log(num_samples) + log_odds(_needed(weigh, scores), weigh.link))


@implements(parts.WeighBalancedOdds)
def _balanced_odds(choice: parts.WeighBalancedOdds, num_samples: float, logits: Float, scores: Float | None) -> Float:
    """Return n_k Phi^beta: what is balanced, which takes all clients (`worker.parts.balance`)."""
    return np.asarray(np.log(num_samples) + choice.sharpness * log_odds(_needed(choice, scores), "sigmoid"))


@implements(parts.WeighProduct)
def _product(weigh: parts.WeighProduct, num_samples: float, logits: Float, scores: Float | None) -> Float:
    """Sum the factors' logarithms; what each factor's weights are divided by is the same for all teachers."""
    return _together([log_weights(factor, num_samples, logits, scores) for factor in weigh.factors])


_ZERO, _LEAST = -1e7, -1e5
"""A factor's ln 0, and the least that any other logarithm counts: of so many factors none makes up for a 0."""


def _together(rows: Sequence[Float]) -> Float:
    """Return the sum of factors' log weights [B] of one teacher.

    A factor that is 0 for all teachers says nothing of a sample: the others decide, as all would count alike by it
    alone. Where each teacher has some factor 0, those count for which the fewest are. So ln 0 is a number here, the
    same for every factor, which `normalise` takes off again.
    """
    stacked = np.stack(rows)
    return np.asarray(np.where(np.isneginf(stacked), _ZERO, np.maximum(stacked, _LEAST)).sum(axis=0))
