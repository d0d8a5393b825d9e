"""Fed-ET's targets and loss (Cho et al. 2022, eq. 2 to 10). Targets in numpy float64, the loss in torch.

Shapes: m clients, B samples, C classes; s_k = softmax(f_k).
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from contract.measures import softmax
from worker.parts.arrays import Float, finite, option
from worker.parts.errors import PartError

TIE = 1e-12
"""Shares of the consensus that are this near are a tie, which the lowest class wins: not the last bit of a sum."""


@dataclass(frozen=True)
class Targets:
    """What the server's model learns from.

    Attributes:
        consensus: sum_k alpha_k s_k [B, C].
        label: its argmax [B], int64 (eq. 4); ties go to the lowest class.
        div_mask: whether client k's own argmax differs from the label [m, B], bool (eq. 7).
        div_target: sum of alpha_k s_k over those clients [B, C] (eq. 8), not normalised again.
        div_mass: its sum over classes [B], below 1.
    """

    consensus: Float
    label: NDArray[np.int64]
    div_mask: NDArray[np.bool_]
    div_target: Float
    div_mass: Float


def targets(logits: Float, weights: Float) -> Targets:
    """Return consensus label and diversity target of clients' logits.

    Args:
        logits: [m, B, C].
        weights: alpha [m, B], Var_c(s_k) / sum Var (eq. 3) or those of another weighting.

    Raises:
        PartError: schema_mismatch, non_finite.
    """
    if logits.ndim != 3 or logits.shape[:2] != weights.shape or logits.shape[2] == 0:
        raise PartError("schema_mismatch", f"logits {logits.shape} do not go with weights {weights.shape}")
    probs = softmax(finite("logits", logits))
    parts = finite("weights", weights)[:, :, None] * probs
    consensus = parts.sum(axis=0)
    label = (consensus >= consensus.max(axis=1, keepdims=True) - TIE).argmax(axis=1)
    mask = probs.argmax(axis=2) != label
    diverse = (parts * mask[:, :, None]).sum(axis=0)
    return Targets(consensus, label, mask, diverse, diverse.sum(axis=1))


def terms(server_logits: Tensor, label: Tensor, div_target: Tensor) -> tuple[Tensor, Tensor]:
    """Return per sample -ln q_label [B] and sum_c d_c (ln d_c - ln q_c) [B].

    q is the server's softmax, d the diversity target.

    The second is mass KL(d / mass || q) + mass ln mass: its gradient is mass q - d, and it may be negative. It is 0
    where nobody differs.

    Raises:
        PartError: schema_mismatch.
    """
    if server_logits.ndim != 2 or server_logits.shape != div_target.shape or label.shape != server_logits.shape[:1]:
        raise PartError(
            "schema_mismatch", f"server logits {list(server_logits.shape)}, target {list(div_target.shape)} differ"
        )
    log_q = F.log_softmax(server_logits, dim=1)
    cross_entropy = -log_q.gather(1, label[:, None]).squeeze(1)
    return cross_entropy, (torch.xlogy(div_target, div_target) - div_target * log_q).sum(dim=1)


def loss(server_logits: Tensor, label: Tensor, div_target: Tensor, diversity: float = 0.05) -> Tensor:
    """Return mean_x [-ln q_label + lambda sum_c d_c (ln d_c - ln q_c)], a scalar (Fed-ET eq. 9 and 10).

    Args:
        server_logits: [B, C].
        label: consensus labels [B], int64.
        div_target: d [B, C].
        diversity: lambda; Table 4: 0.05 for images, 0.5 for text; 0 turns the term off.

    Raises:
        PartError: schema_mismatch, bad_option (lambda), non_finite.
    """
    option("the weight of the diversity term", diversity)
    if not torch.isfinite(server_logits).all():
        raise PartError("non_finite", "server logits: NaN or infinity")
    cross_entropy, divergence = terms(server_logits, label, div_target)
    return (cross_entropy + diversity * divergence).mean()
