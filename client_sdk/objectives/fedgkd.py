"""FedGKD: stay near the mean of the last global models, by their outputs (Yao et al. 2021, eq. 5)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from client_sdk.objectives.checks import option, same_shape


def distance(student_logits: Tensor, teacher_logits: Tensor, gamma: float = 0.001, tau: float = 3.0) -> Tensor:
    """Return gamma/2 tau^2 mean_x KL(softmax(teacher / tau) || softmax(student / tau)), a scalar.

    It is added to the cross-entropy, from the second round on. The teacher gets no gradient.

    Args:
        student_logits: [B, C].
        teacher_logits: [B, C], of the mean of the last M global models, in eval mode.
        gamma: FedGO E.2 takes 0.001.
        tau: temperature.

    Raises:
        RuleError: schema_mismatch, bad_option.
    """
    option("gamma", gamma)
    option("tau", tau, positive=True)
    same_shape("logits of student and teacher", student_logits, teacher_logits)
    log_q = F.log_softmax(student_logits / tau, dim=1)
    log_p = F.log_softmax(teacher_logits.detach() / tau, dim=1)
    return gamma / 2 * tau**2 * (torch.exp(log_p) * (log_p - log_q)).sum(dim=1).mean()
