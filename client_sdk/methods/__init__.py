"""What a device does in a round beyond plain training: one class per objective of `contract.local`."""

import importlib
import pkgutil
from collections.abc import Mapping

from torch import Tensor, nn

from client_sdk.methods.base import Method, Outcome, Work, implements
from contract.local import LocalPlan

for _module in pkgutil.iter_modules(__path__):  # each notes its classes
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["Method", "Outcome", "Work", "build", "goes_on"]


def build(work: Work) -> Method:
    """Return the method of the plan's objective; the module still has the weights as they were sent."""
    return implements.of(work.plan.objective)(work.plan.objective, work)


def goes_on(plan: LocalPlan, module: nn.Module, memory: Mapping[str, Tensor]) -> bool:
    """Whether the plan's objective trains a model of the device's own, which it has: the round's is then not read."""
    return implements.of(plan.objective).goes_on(module, memory)
