"""Objectives: what a student minimises. torch; B samples, C classes."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from worker.parts.errors import PartError


def kl(student_logits: Tensor, teacher_logits: Tensor, temperature: float = 1.0, scale_t2: bool = True) -> Tensor:
    """Return T^2 mean_x KL(softmax(teacher / T) || softmax(student / T)), a scalar (Hinton et al.; FedDF at T = 1).

    The gradient with respect to the student's logits is T (q - p) / B; without `scale_t2` it is divided by T^2.

    Args:
        student_logits: [B, C].
        teacher_logits: [B, C]; a constant per row makes no difference.
        temperature: T > 0.
        scale_t2: multiply by T^2 so that gradients keep their size.

    Raises:
        PartError: bad_option (T not positive), schema_mismatch (shapes differ).
    """
    _same_shape(student_logits, teacher_logits)
    if not 0 < temperature < math.inf:
        raise PartError("bad_option", f"the temperature is {temperature}; it must be positive and finite")
    log_p = F.log_softmax(teacher_logits / temperature, dim=1)
    log_q = F.log_softmax(student_logits / temperature, dim=1)
    loss = F.kl_div(log_q, log_p, reduction="batchmean", log_target=True)
    return loss * temperature * temperature if scale_t2 else loss


def soft_cross_entropy(student_logits: Tensor, target: Tensor) -> Tensor:
    """Return mean_x -sum_c y_c ln q_c, a scalar (FedBE section 4); the gradient is that of KL at T = 1.

    Args:
        student_logits: [B, C].
        target: probabilities [B, C].

    Raises:
        PartError: schema_mismatch (shapes differ).
    """
    _same_shape(student_logits, target)
    return -(target * F.log_softmax(student_logits, dim=1)).sum(dim=1).mean()


def require_finite(*values: Tensor) -> None:
    """Refuse NaN and infinity; for data, not for every step: on a GPU the look costs a wait.

    Raises:
        PartError: non_finite.
    """
    if not all(bool(torch.isfinite(value).all()) for value in values):
        raise PartError("non_finite", "logits or targets: NaN or infinity")


def require_probabilities(target: Tensor) -> None:
    """Refuse targets [B, C] outside [0, 1].

    Raises:
        PartError: non_finite, out_of_range.
    """
    require_finite(target)
    if bool(((target < 0) | (target > 1 + 1e-6)).any()):
        raise PartError("out_of_range", "a target probability is outside [0, 1]")


def _same_shape(student: Tensor, other: Tensor) -> None:
    if student.shape != other.shape or student.ndim != 2:
        raise PartError("schema_mismatch", f"student {list(student.shape)} and teacher {list(other.shape)} must match")
