"""Posteriors over global models, built from the clients' models; members are drawn from them. float64.

FedBE (Chen and Chao 2021) eq. 5 to 7: diagonal Gaussian and Dirichlet; SWAG (Maddox et al. 2019) as in FedDF Table 7.
Shapes: m clients; a model [...] of any shape. Draws are keyed by (seed, round, member, tensor or client name): a retry
draws the same numbers, and a sampled model never has to be kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contract.seeds import derive_seed
from worker.parts.arrays import Float, finite, floats, option, stacked
from worker.parts.errors import PartError
from worker.parts.fuse import contributors, shares


# --------------------------------------------------------------------------------------------------------------- draws
def draws(seed: int, round_index: int, member: int, name: str) -> np.random.Generator:
    """Return the generator of one member's numbers for one tensor (or client): Philox, keyed by what they are for."""
    key = derive_seed(seed, "round", round_index, "posterior", member, name)
    return np.random.Generator(np.random.Philox(key=key))


def draw_log_gamma(
    seed: int, round_index: int, member: int, clients: Sequence[str], alpha: float
) -> NDArray[np.float64]:
    """Return ln gamma_k [m] of independent Gamma(alpha, 1) numbers; normalised, Dirichlet(alpha) (FedBE eq. 6).

    Each client's number depends on its own name alone. The logarithm is drawn directly, as ln G(alpha + 1) + ln U /
    alpha, so that a small alpha does not underflow.

    Raises:
        PartError: bad_option (alpha not positive).
    """
    option("alpha", alpha, open_low=True)
    result = np.empty(len(clients))
    for index, client in enumerate(clients):
        random = draws(seed, round_index, member, client)
        result[index] = np.log(random.standard_gamma(alpha + 1.0)) + np.log1p(-random.random()) / alpha
    return result


# ------------------------------------------------------------------------------------------------------------ Gaussian
@dataclass(frozen=True)
class Gaussian:
    """A diagonal Gaussian: mean and variance, of the model's shape."""

    mean: Float
    var: Float


def weighted_mean(parts: Float, values: Float) -> Float:
    """Return sum_i p_i w_i for parts [m] that sum to 1 and values [m, ...]; equal values give exactly their value."""
    return np.asarray(values[0] + np.tensordot(parts, values - values[0], axes=1))


def weighted_variance(parts: Float, values: Float, mean: Float) -> Float:
    """Return sum_i p_i (w_i - mean)^2 [...] for parts [m], values [m, ...] and their mean [...]: the second pass."""
    return np.asarray(np.tensordot(parts, (values - mean) ** 2, axes=1))


def gaussian_posterior(models: Sequence[ArrayLike], num_samples: Sequence[float]) -> Gaussian:
    """Return mu = sum p_i w_i and var = sum p_i (w_i - mu)^2, p_i = n_i / sum n, in two passes (FedBE eq. 5).

    Args:
        models: w_i, one array [...] a client, all of one shape.
        num_samples: n_i [m]; a client with 0 is not looked at. One client: the variance is 0.

    Raises:
        PartError: bad_weight, no_positive_weight, schema_mismatch, non_finite (also when the variance overflows).
    """
    if len(models) != len(num_samples):
        raise PartError("schema_mismatch", f"{len(models)} models but {len(num_samples)} numbers of samples")
    kept = contributors(num_samples)
    parts, values = np.asarray(shares([num_samples[i] for i in kept])), stacked("model", models, kept)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = weighted_mean(parts, values)
        var = weighted_variance(parts, values, mean)
    return Gaussian(finite("mean", mean), finite("variance", var))


def gaussian_sample(
    mean: ArrayLike, var: ArrayLike, noise: ArrayLike, scale: float = 1.0, floor: ArrayLike | None = None
) -> Float:
    """Return max(mu + scale sqrt(var) eps, floor) (FedBE eq. 5 with scale 1).

    Args:
        mean: mu [...].
        var: [...], at least 0.
        noise: eps [...], standard normal numbers.
        scale: at least 0; 0 gives the mean.
        floor: least values, [...] or one number: a sampled running variance must not be negative. None: no
            floor.

    Raises:
        PartError: bad_option (scale), bad_variance (negative), non_finite, schema_mismatch.
    """
    option("the scale of a sample", scale)
    centre, spread = finite("mean", floats("mean", mean)), finite("variance", floats("variance", var))
    eps = finite("noise", floats("noise", noise))
    if not centre.shape == spread.shape == eps.shape:
        raise PartError("schema_mismatch", f"mean {centre.shape}, variance {spread.shape} and noise {eps.shape} differ")
    if (spread < 0).any():
        raise PartError("bad_variance", "a variance is negative")
    sample = centre + scale * np.sqrt(spread) * eps
    if floor is None:
        return finite("sample", np.asarray(sample))
    least = finite("floor", floats("floor", floor))
    if least.shape not in ((), sample.shape):
        raise PartError("schema_mismatch", f"floor {least.shape} does not go with a sample {sample.shape}")
    return finite("sample", np.asarray(np.maximum(sample, least)))


# ----------------------------------------------------------------------------------------------------------- Dirichlet
@dataclass(frozen=True)
class Combination:
    """A convex combination of the clients' models.

    Attributes:
        model: sum_i c_i w_i.
        coefficients: c_i [m], sum 1; 0 for a client that does not count.
    """

    model: Float
    coefficients: Float


def coefficients(num_samples: Sequence[float], log_gamma: ArrayLike) -> Float:
    """Return c_i = gamma_i n_i / sum_j gamma_j n_j [m] from ln gamma (-inf for 0), whatever their size (FedBE eq. 7).

    Raises:
        PartError: bad_weight (a weight negative, NaN or infinite), no_positive_weight, schema_mismatch.
    """
    logs = floats("gamma", log_gamma, 1)
    if len(logs) != len(num_samples):
        raise PartError("schema_mismatch", f"{len(num_samples)} numbers of samples but {len(logs)} gammas")
    contributors(num_samples)
    if np.isnan(logs).any() or np.isposinf(logs).any():
        raise PartError("bad_weight", "a gamma is negative or not finite")
    with np.errstate(divide="ignore"):
        logs = logs + np.log(np.asarray(num_samples, dtype=np.float64))
    if np.isneginf(logs).all():
        raise PartError("no_positive_weight", "no client has both samples and a positive gamma")
    raw = np.exp(logs - logs.max())
    return np.asarray(raw / raw.sum())


def dirichlet_combination(models: Sequence[ArrayLike], num_samples: Sequence[float], gamma: ArrayLike) -> Combination:
    """Return w = sum gamma_i n_i w_i / sum gamma_i n_i (FedBE eq. 6 and 7); equal gammas give the weighted average.

    Args:
        models: w_i, one array a client, all of one shape; those with coefficient 0 are not looked at.
        num_samples: n_i.
        gamma: [m], at least 0; their scale does not matter.

    Raises:
        PartError: as `coefficients`; schema_mismatch, non_finite.
    """
    weights = floats("gamma", gamma, 1)
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise PartError("bad_weight", "a gamma is negative or not finite")
    if len(models) != len(weights):
        raise PartError("schema_mismatch", f"{len(models)} models but {len(weights)} gammas")
    with np.errstate(divide="ignore"):
        parts = coefficients(num_samples, np.log(weights))
    kept = [int(i) for i in np.flatnonzero(parts > 0)]
    values = stacked("model", models, kept)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = weighted_mean(parts[kept], values)
    return Combination(finite("combination", mean), parts)


# ---------------------------------------------------------------------------------------------------------------- SWAG
@dataclass(frozen=True)
class Swag:
    """What SWAG keeps: mean and diagonal variance [...], deviations from the running mean [m, ...]."""

    mean: Float
    var: Float
    deviations: Float


def swag_moments(values: Float) -> Swag:
    """Return SWAG's moments of models [m, ...] in their order, with uniform weights (Maddox et al. 2019, section 3).

    Deviation i is w_i minus the mean of w_1 to w_i, so the first is 0.

    Raises:
        PartError: no_participants.
    """
    if len(values) == 0:
        raise PartError("no_participants", "there is no model")
    parts = np.full(len(values), 1.0 / len(values))
    mean = weighted_mean(parts, values)
    counts = np.arange(1, len(values) + 1).reshape(-1, *[1] * (values.ndim - 1))
    running = values[0] + np.cumsum(values - values[0], axis=0) / counts
    return Swag(mean, weighted_variance(parts, values, mean), values - running)


def swag_sample(swag: Swag, diagonal: Float, low_rank: Float, scale: float = 1.0) -> Float:
    """Return mu + sqrt(scale) (sqrt(var) z1 + Dev^T z2 / sqrt(m - 1)); SWAG's eq. 1 is scale 0.5.

    Args:
        swag: the moments.
        diagonal: z1, standard normal, of the model's shape.
        low_rank: z2, standard normal [m]: the same for every tensor of one sample.
        scale: at least 0.

    Raises:
        PartError: bad_option (scale), schema_mismatch.
    """
    option("the scale of a sample", scale)
    if diagonal.shape != swag.mean.shape or low_rank.shape != swag.deviations.shape[:1]:
        raise PartError("schema_mismatch", "z1 has the shape of the model, z2 one number a model")
    sample = np.sqrt(swag.var) * diagonal
    if len(low_rank) > 1:
        sample = sample + np.tensordot(low_rank, swag.deviations, axes=1) / np.sqrt(len(low_rank) - 1)
    return np.asarray(swag.mean + np.sqrt(scale) * sample)
