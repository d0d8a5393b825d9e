"""What a device minimises in a round: one file per objective, found by the `kind` in the local plan."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from client_sdk.objectives.fedprox import fedprox
from client_sdk.objectives.sgd import sgd

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""(module, logits [B, C], labels [B]) -> scalar loss"""

OBJECTIVES: dict[str, Callable[[Any, nn.Module], Loss]] = {"sgd": sgd, "fedprox": fedprox}


def build(options: Any, module: nn.Module) -> Loss:
    """Return the loss for a plan's objective; `module` still has the weights as they were sent."""
    return OBJECTIVES[options.kind](options, module)
