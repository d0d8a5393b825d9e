"""FedAvg's objective: cross-entropy on the device's own labels (McMahan et al. 2017, Algorithm 1, ClientUpdate)."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional

from contract.local import SgdObjective


def sgd(options: SgdObjective, module: nn.Module) -> Callable[[nn.Module, Tensor, Tensor], Tensor]:
    """Return the mean cross-entropy of logits [B, C] and labels [B]."""

    def loss(module: nn.Module, logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits, labels)

    return loss
