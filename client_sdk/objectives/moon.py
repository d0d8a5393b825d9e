"""MOON: features near the global model's and away from the previous local model's (Li et al. 2021, eq. 3)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from client_sdk.objectives.checks import finite, option, same_shape


def contrast(z: Tensor, z_global: Tensor, z_previous: Tensor, mu: float = 1.0, tau: float = 0.5) -> Tensor:
    """Return mu mean_x -ln( e^(s_g / tau) / (e^(s_g / tau) + sum_j e^(s_j / tau)) ), s cosine similarities, a scalar.

    It is added to the cross-entropy. At a device's first participation its previous model is the global one: mu ln 2.

    Args:
        z: features of the model in training [B, d].
        z_global: features by the model as it was sent [B, d]; gets no gradient.
        z_previous: by the P previous local models [P, B, d]; get no gradient; none of them: the loss is 0.
        mu: weight; the paper takes 1 or 5.
        tau: temperature.

    Raises:
        RuleError: schema_mismatch, non_finite, bad_option.
    """
    option("mu", mu)
    option("tau", tau, positive=True)
    same_shape("features", z, z_global, *z_previous)
    finite("features", z, z_global, z_previous)
    if not len(z):
        return z.sum()
    others = [z_global.detach(), *z_previous.detach()]
    similarities = torch.stack([_cosine(z, other) for other in others], dim=1) / tau
    return mu * F.cross_entropy(similarities, torch.zeros(len(z), dtype=torch.int64, device=z.device))


def _cosine(one: Tensor, two: Tensor) -> Tensor:
    return (_unit(one) * _unit(two)).sum(dim=1)


def _unit(rows: Tensor) -> Tensor:
    """Return rows of length 1, scaled by their largest value first so that no square overflows; zeros stay zeros."""
    peak = rows.detach().abs().amax(dim=1, keepdim=True)
    scaled = rows / torch.where(peak > 0, peak, torch.ones_like(peak))
    norm = scaled.square().sum(dim=1, keepdim=True)
    return scaled / torch.where(norm > 0, norm, torch.ones_like(norm)).sqrt()
