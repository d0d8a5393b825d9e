"""Objectives: what a student minimises. torch; B samples, or positions of all samples together, C classes."""

import math

from torch import Tensor
from torch.nn import functional as F

from worker.parts.errors import PartError


def log_softened(logits: Tensor, temperature: float) -> Tensor:
    """Return ln softmax(logits / T) [B, C] of logits [B, C].

    Raises:
        PartError: bad_option (T not positive).
    """
    if not 0 < temperature < math.inf:
        raise PartError("bad_option", f"the temperature is {temperature}; it must be positive and finite")
    return F.log_softmax(logits / temperature, dim=1)


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
    log_p, log_q = log_softened(teacher_logits, temperature), log_softened(student_logits, temperature)
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


def _same_shape(student: Tensor, other: Tensor) -> None:
    if student.shape != other.shape or student.ndim != 2:
        raise PartError("schema_mismatch", f"student {list(student.shape)} and teacher {list(other.shape)} must match")
