"""Posteriors over global models, built from the clients' models; members are drawn from them. float64.

FedBE (Chen and Chao 2021) eq. 5 to 7: diagonal Gaussian and Dirichlet; SWAG (Maddox et al. 2019) as in FedDF Table 7.
Shapes: m clients, n values of a block; `worker.parts.posterior_files` drives the rules over files. Draws are keyed by
(seed, round, member, tensor or client name): a retry draws the same numbers, and a sampled model never has to be kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from contract.seeds import derive_seed
from worker.parts.arrays import Float, option
from worker.parts.errors import PartError
from worker.parts.fuse import contributors


# --------------------------------------------------------------------------------------------------------------- draws
def draws(seed: int, round_index: int, member: int, name: str) -> np.random.Generator:
    """Return the generator of one member's numbers for one tensor (or client): Philox, keyed by what they are for."""
    key = derive_seed(seed, "round", round_index, "posterior", member, name)
    return np.random.Generator(np.random.Philox(key=key))


def draw_log_gamma(seed: int, round_index: int, member: int, clients: Sequence[str], alpha: float) -> Float:
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
def weighted_mean(parts: Float, values: Float) -> Float:
    """Return mu = sum_i p_i w_i [n] for parts [m] that sum to 1 and values [m, n] (FedBE eq. 5).

    Equal values give exactly their value.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # whoever writes the result finds what overflows
        return np.asarray(values[0] + np.tensordot(parts, values - values[0], axes=1))


def weighted_variance(parts: Float, values: Float, mean: Float) -> Float:
    """Return sum_i p_i (w_i - mu)^2 [n] for parts [m], values [m, n] and their mean [n] (FedBE eq. 5): the second pass.

    E[w^2] - mu^2 would drown in the rounding of a large mean.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.tensordot(parts, (values - mean) ** 2, axes=1))


def gaussian_sample(mean: Float, var: Float, noise: Float, scale: float, floor: Float | None = None) -> Float:
    """Return max(mu + scale sqrt(var) eps, floor) [n] (FedBE eq. 5 with scale 1).

    Args:
        mean: mu [n].
        var: [n], at least 0.
        noise: eps [n], standard normal numbers.
        scale: at least 0; 0 gives the mean.
        floor: least values, [n] or one number: a sampled running variance must not be negative. None: no floor.

    Raises:
        PartError: bad_option (scale), bad_variance (negative), schema_mismatch.
    """
    option("the scale of a sample", scale)
    if not mean.shape == var.shape == noise.shape:
        raise PartError("schema_mismatch", f"mean {mean.shape}, variance {var.shape} and noise {noise.shape} differ")
    if floor is not None and floor.shape not in ((), mean.shape):
        raise PartError("schema_mismatch", f"floor {floor.shape} does not go with a sample {mean.shape}")
    if (var < 0).any():
        raise PartError("bad_variance", "a variance is negative")
    with np.errstate(over="ignore", invalid="ignore"):
        sample = mean + scale * np.sqrt(var) * noise
    return np.asarray(sample if floor is None else np.maximum(sample, floor))


# ----------------------------------------------------------------------------------------------------------- Dirichlet
def coefficients(num_samples: Sequence[float], log_gamma: Float) -> Float:
    """Return c_i = gamma_i n_i / sum_j gamma_j n_j [m] from ln gamma (-inf for 0), whatever their size (FedBE eq. 7).

    The combination is the average with these weights; equal gammas give that by n_i.

    Raises:
        PartError: bad_weight (a weight negative, NaN or infinite), no_positive_weight, schema_mismatch.
    """
    if log_gamma.shape != (len(num_samples),):
        raise PartError("schema_mismatch", f"{len(num_samples)} numbers of samples but gammas {log_gamma.shape}")
    contributors(num_samples)
    if np.isnan(log_gamma).any() or np.isposinf(log_gamma).any():
        raise PartError("bad_weight", "a gamma is negative or not finite")
    with np.errstate(divide="ignore"):
        logs = log_gamma + np.log(np.asarray(num_samples, dtype=np.float64))
    if np.isneginf(logs).all():
        raise PartError("no_positive_weight", "no client has both samples and a positive gamma")
    raw = np.exp(logs - logs.max())
    return np.asarray(raw / raw.sum())


# ---------------------------------------------------------------------------------------------------------------- SWAG
@dataclass(frozen=True)
class Swag:
    """What SWAG keeps of a block: mean and diagonal variance [n], deviations from the running mean [m, n]."""

    mean: Float
    var: Float
    deviations: Float


def swag_moments(values: Float) -> Swag:
    """Return SWAG's moments of values [m, n] in their order, with uniform weights (Maddox et al. 2019, section 3).

    Deviation i is w_i minus the mean of w_1 to w_i, so the first is 0.
    """
    parts = np.full(len(values), 1.0 / len(values))
    mean = weighted_mean(parts, values)
    counts = np.arange(1, len(values) + 1)[:, None]
    running = values[0] + np.cumsum(values - values[0], axis=0) / counts
    return Swag(mean, weighted_variance(parts, values, mean), values - running)


def swag_sample(swag: Swag, diagonal: Float, low_rank: Float, scale: float = 1.0) -> Float:
    """Return mu + sqrt(scale) (sqrt(var) z1 + Dev^T z2 / sqrt(m - 1)); SWAG's eq. 1 is scale 0.5.

    Args:
        swag: the moments.
        diagonal: z1 [n], standard normal.
        low_rank: z2 [m], standard normal: the same for every tensor of one sample.
        scale: at least 0.
    """
    sample = np.sqrt(swag.var) * diagonal
    if len(low_rank) > 1:
        sample = sample + np.tensordot(low_rank, swag.deviations, axes=1) / np.sqrt(len(low_rank) - 1)
    return np.asarray(swag.mean + np.sqrt(scale) * sample)
