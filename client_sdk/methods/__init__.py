"""What a device does in a round beyond plain training: one class per objective of `contract.local`."""

import importlib
import pkgutil
from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from client_sdk import named
from client_sdk.errors import MissingPackage
from client_sdk.methods import guarded
from client_sdk.methods.base import Method, Outcome, Work, implements
from client_sdk.packaged import told
from contract.local import LocalPlan
from contract.packages import PluginError

for _module in pkgutil.iter_modules(__path__):  # each notes its classes
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["Method", "Outcome", "Work", "build", "check", "goes_on", "reads_samples"]


def build(work: Work) -> Method:
    """Return the method of the plan's objective; the module still has the weights as they were sent.

    Raises:
        DatasetError: as `check`.
        MissingPackage: the objective is of a package that is not installed here.
        PackageFailed: it is of a package whose code fails; its hooks raise the same later.
    """
    check(work.plan, work.samples.names)
    return guarded.made(_of(work.plan), work.plan.objective, work)


def goes_on(plan: LocalPlan, module: nn.Module, memory: Mapping[str, Tensor]) -> bool:
    """Whether the plan's objective trains a model of the device's own, which it has: the round's is then not read.

    Raises:
        MissingPackage: as `build`.
    """
    with told(plan.objective):
        return _of(plan).goes_on(module, memory)


def check(plan: LocalPlan, names: Sequence[str] = ()) -> None:
    """Refuse a plan whose objective cannot be carried out here.

    Args:
        names: of a sample's inputs, where there are several.

    Raises:
        MissingPackage: it is of a package that is not installed here.
        DatasetError: it takes one input a sample.
    """
    if names and not _of(plan).takes_several:
        raise named.several(names, f"objective {plan.objective.kind!r}")
    _of(plan)


def reads_samples(plan: LocalPlan) -> bool:
    """Whether the plan's objective reads samples itself, beside those that are trained on.

    Raises:
        MissingPackage: as `build`.
    """
    with told(plan.objective):
        return _of(plan).reads_samples(plan.objective)


def _of(plan: LocalPlan) -> type[Method]:
    try:
        return implements.of(plan.objective)
    except PluginError as error:
        raise MissingPackage(f"local.objective: {error}") from error
