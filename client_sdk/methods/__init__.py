"""What a device does in a round beyond plain training: one class per objective of `contract.local`, in one table."""

from client_sdk.methods.base import Method, Outcome, Work
from client_sdk.methods.features import FedTgp, FedUv
from client_sdk.methods.scaffold import Scaffold
from client_sdk.methods.teachers import FedGkd, Moon
from client_sdk.methods.weights import FedProx

METHODS: dict[str, type[Method]] = {
    "sgd": Method,
    "fedprox": FedProx,
    "scaffold": Scaffold,
    "fedgkd": FedGkd,
    "moon": Moon,
    "feduv": FedUv,
    "fedtgp": FedTgp,
}

__all__ = ["METHODS", "Method", "Outcome", "Work", "build"]


def build(work: Work) -> Method:
    """Return the method of the plan's objective; the module still has the weights as they were sent."""
    return METHODS[work.plan.objective.kind](work.plan.objective, work)
