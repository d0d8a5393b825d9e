"""DS-FL on the device: learn the server's targets on the public set; no weights travel (Itahara et al. 2021)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from client_sdk.objectives.checks import same_shape


def predictions(logits: Tensor) -> Tensor:
    """Return what is sent: softmax of the logits [|P|, C] on the public set, float32."""
    return torch.softmax(logits.detach().double(), dim=1).float()


def imitation(logits: Tensor, target: Tensor) -> Tensor:
    """Return mean_x -sum_c y_c ln q_c, a scalar, for logits [B, C] and the server's targets [B, C].

    Raises:
        RuleError: schema_mismatch.
    """
    same_shape("logits and targets", logits, target)
    return -(target * F.log_softmax(logits, dim=1)).sum(dim=1).mean()
