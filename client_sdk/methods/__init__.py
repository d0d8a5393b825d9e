"""What a device does in a round beyond plain training: one class per objective of `contract.local`, in one table."""

from collections.abc import Mapping

from torch import Tensor, nn

from client_sdk.methods.base import Method, Outcome, Work
from client_sdk.methods.features import FedTgp, FedUv
from client_sdk.methods.predictions import DsFl
from client_sdk.methods.scaffold import Scaffold
from client_sdk.methods.teachers import FedGkd, Moon
from client_sdk.methods.weights import FedProx
from contract.local import LocalPlan

METHODS: dict[str, type[Method]] = {
    "sgd": Method,
    "fedprox": FedProx,
    "scaffold": Scaffold,
    "fedgkd": FedGkd,
    "moon": Moon,
    "feduv": FedUv,
    "fedtgp": FedTgp,
    "ds_fl": DsFl,
}

__all__ = ["METHODS", "Method", "Outcome", "Work", "build", "goes_on"]


def build(work: Work) -> Method:
    """Return the method of the plan's objective; the module still has the weights as they were sent."""
    return METHODS[work.plan.objective.kind](work.plan.objective, work)


def goes_on(plan: LocalPlan, module: nn.Module, memory: Mapping[str, Tensor]) -> bool:
    """Whether the plan's objective trains a model of the device's own, which it has: the round's is then not read."""
    return METHODS[plan.objective.kind].goes_on(module, memory)
