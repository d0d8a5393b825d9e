"""FedProx's objective: stay near the model as it was sent (Li et al. 2020, eq. 2; FedDF, App. B)."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional

from contract.local import FedProxObjective


def fedprox(options: FedProxObjective, module: nn.Module) -> Callable[[nn.Module, Tensor, Tensor], Tensor]:
    """Return cross-entropy + mu/2 * ||w - w_sent||^2, over the parameters that are trained; buffers are no part of w.

    The gradient of the second term is mu * (w - w_sent): zero in the first step.
    """
    sent = [parameter.detach().clone() for parameter in _trained(module)]

    def loss(module: nn.Module, logits: Tensor, labels: Tensor) -> Tensor:
        distance = logits.new_zeros(())
        for now, before in zip(_trained(module), sent, strict=True):
            distance = distance + (now - before).square().sum()
        return functional.cross_entropy(logits, labels) + options.mu / 2 * distance

    return loss


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]
