"""The method of another package's objective: what its code does wrong ends training in the package's name."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from client_sdk.methods.base import Method, Outcome, Work
from client_sdk.packaged import told
from contract.choices import Choice
from contract.guard import fault

_HOOKS = ("frozen", "asks", "before", "after", "penalty", "loss")


def made(cls: type[Method], options: Any, work: Work) -> Method:
    """Return the method of an objective; that of a package with every hook guarded.

    Raises:
        PackageFailed: it cannot be made; later, a hook raises an error or returns what it may not.
    """
    if type(options).is_own():
        return cls(options, work)
    with told(options):
        method = cls(options, work)
    for name in _HOOKS:
        setattr(method, name, _guarded(options, name, getattr(method, name)))
    return method


def _guarded(options: Choice, name: str, hook: Callable[..., Any]) -> Callable[..., Any]:
    def call(*given: Any) -> Any:
        with told(options):
            found = hook(*given)
            _check(options, name, found, given)
        return found

    return call


def _check(options: Choice, name: str, found: Any, given: tuple[Any, ...]) -> None:
    """Refuse what a hook may not return: a loss or a penalty that is no scalar, or NaN of what is finite."""
    if name == "after" and not isinstance(found, Outcome):
        raise fault(options, f"returned {type(found).__name__} from after(), and an Outcome is wanted")
    if name not in ("loss", "penalty") or (name == "penalty" and found is None):
        return
    if not isinstance(found, Tensor) or found.ndim:
        what = f"shape {list(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise fault(options, f"returned {what} from {name}(), and a scalar tensor is wanted")
    if bool(torch.isnan(found)) and all(_sound(each) for each in given):
        raise fault(options, f"returned NaN from {name}() of finite numbers")


def _sound(value: Any) -> bool:
    return not (isinstance(value, Tensor) and value.is_floating_point()) or bool(torch.isfinite(value).all())
