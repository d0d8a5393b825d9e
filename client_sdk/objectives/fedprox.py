"""FedProx's objective: stay near the model as it was sent (Li et al. 2020, eq. 2; FedDF, App. B)."""

from collections.abc import Sequence

from torch import Tensor

from client_sdk.objectives.checks import same_shape


def proximal(now: Sequence[Tensor], sent: Sequence[Tensor], mu: float) -> Tensor:
    """Return mu/2 * ||w - w_sent||^2 over the parameters that are trained; buffers are no part of w.

    Its gradient is mu * (w - w_sent): zero in the first step.

    Raises:
        RuleError: schema_mismatch.
    """
    distance = now[0].new_zeros(())
    for one, before in zip(now, sent, strict=True):
        same_shape("a parameter and the one that was sent", one, before)
        distance = distance + (one - before).square().sum()
    return mu / 2 * distance
