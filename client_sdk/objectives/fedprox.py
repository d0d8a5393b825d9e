"""FedProx's objective: stay near the model as it was sent (Li et al. 2020, eq. 2; FedDF, App. B)."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.nn import functional

from contract.local import FedProxObjective


def proximal(now: Sequence[Tensor], sent: Sequence[Tensor], mu: float) -> Tensor:
    """Return mu/2 * ||w - w_sent||^2 over the parameters that are trained; buffers are no part of w.

    Its gradient is mu * (w - w_sent): zero in the first step.
    """
    distance = now[0].new_zeros(())
    for one, before in zip(now, sent, strict=True):
        distance = distance + (one - before).square().sum()
    return mu / 2 * distance


def fedprox(options: FedProxObjective, module: nn.Module) -> Callable[[nn.Module, Tensor, Tensor], Tensor]:
    """Return (module, logits [B, C], labels [B]) -> cross-entropy + `proximal`; `module` has the weights as sent."""
    sent = [parameter.detach().clone() for parameter in _trained(module)]

    def loss(module: nn.Module, logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits, labels) + proximal(_trained(module), sent, options.mu)

    return loss


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]
