"""Cross-entropy adjusted by the classes' shares on a device (Menon et al. 2021; balanced softmax, Ren et al. 2020)."""

import torch
from torch import Tensor

from client_sdk.objectives.checks import option
from contract.errors import RuleError


def offset(counts: Tensor, weight: float = 0.5, eps: float = 0.1) -> Tensor:
    """Return weight * ln pi [C], float32, with pi(c) = (n_c + eps) / sum_c (n_c + eps); finite for classes that lack.

    Added to the logits while a device trains, it asks of them ln p(y | x) - weight * ln pi(y): a class that the device
    does not hold has a low prior, and its logit need not be pushed down to be right about the others.

    Args:
        counts: samples of each class n_c [C].
        weight: lambda, at least 0.
        eps: above 0.

    Raises:
        RuleError: bad_option, out_of_range (a count below 0).
    """
    option("weight", weight)
    if not eps > 0:
        raise RuleError("bad_option", f"eps is {eps}; it must be above 0, or a class that lacks has no logarithm")
    if len(counts) and int(counts.min()) < 0:
        raise RuleError("out_of_range", "a class has fewer than 0 samples")
    smoothed = counts.to(torch.float64) + eps
    return (weight * (smoothed / smoothed.sum()).log()).to(torch.float32)
