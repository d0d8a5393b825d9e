"""FedUV: outputs that vary as one-hot ones do, features spread evenly over space (Son et al. 2024, eq. 4 to 7)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from client_sdk.objectives.checks import finite, option
from contract.errors import RuleError


@dataclass(frozen=True)
class Spread:
    """FedUV's two terms, scalars.

    Attributes:
        loss: std_weight * std + unif_weight * unif.
        std: mean over classes of relu(gamma - standard deviation over the batch of the probabilities).
        unif: mean over pairs of exp(-||f_i - f_j||^2 / median).
        gamma: standard deviation of a column of the C x C identity; 0 with one class.
    """

    loss: Tensor
    std: Tensor
    unif: Tensor
    gamma: float


def spread(logits: Tensor, features: Tensor, std_weight: float = 2.5, unif_weight: float = 0.5) -> Spread:
    """Return FedUV's regularisers, to be added to the cross-entropy. A batch of one has no spread: both are 0.

    Standard deviations divide by B - 1. The median is the lower one of the squared distances that are not 0; it gets no
    gradient. Where all features coincide, unif is 1.

    Args:
        logits: [B, C].
        features: [B, d].
        std_weight: FedGO E.2 takes 2.5.
        unif_weight: FedGO E.2 takes 0.5.

    Raises:
        RuleError: schema_mismatch, non_finite, bad_option.
    """
    option("std_weight", std_weight)
    option("unif_weight", unif_weight)
    if logits.ndim != 2 or features.ndim != 2 or len(logits) != len(features):
        raise RuleError("schema_mismatch", f"logits {list(logits.shape)} and features {list(features.shape)}: [B, …]")
    finite("logits or features", logits, features)
    gamma = _ideal(logits.shape[1])
    if len(logits) < 2:
        zero = (logits.sum() + features.sum()) * 0.0
        return Spread(zero, zero, zero, gamma)
    std = torch.relu(gamma - _deviation(torch.softmax(logits, dim=1))).mean()
    unif = _uniformity(features)
    return Spread(std_weight * std + unif_weight * unif, std, unif, gamma)


def _ideal(classes: int) -> float:
    """Return the deviation of a one-hot column, one 1 among C - 1 zeros: sqrt(1 / C)."""
    if classes < 1:
        raise RuleError("too_few_classes", "there are no classes")
    return float(classes**-0.5) if classes > 1 else 0.0


def _deviation(probs: Tensor) -> Tensor:
    variance = probs.var(dim=0, correction=1)
    moving = variance > 0  # the root has no gradient at 0
    return torch.where(moving, torch.where(moving, variance, torch.ones_like(variance)).sqrt(), variance)


def _uniformity(features: Tensor) -> Tensor:
    first, second = torch.triu_indices(len(features), len(features), offset=1, device=features.device)
    squares = (features[first] - features[second]).square().sum(dim=1)
    apart = squares.detach()[squares.detach() > 0]
    bandwidth = apart.median() if len(apart) else torch.ones((), dtype=features.dtype, device=features.device)
    return torch.exp(-squares / bandwidth).mean()
