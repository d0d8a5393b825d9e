"""Networks of which a part is trained: what is frozen keeps its weights, and its running statistics."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from torch import nn

from contract.nn.codec import unwrap


class TiedNames(ValueError):
    """One parameter has two names, of which one is frozen and one is not."""


@contextmanager
def frozen_but(module: nn.Module, moving: Collection[str] | None) -> Iterator[None]:
    """Freeze a network's parameters but for some tensors' names; afterwards each is as before. None freezes nothing.

    Raises:
        TiedNames: one parameter has two names, of which one is frozen and one is not.
    """
    stay = [] if moving is None else _frozen(module, moving)
    before = [value.requires_grad for value in stay]
    try:
        for value in stay:
            value.requires_grad_(False)
        yield
    finally:
        for value, trained in zip(stay, before, strict=True):
            value.requires_grad_(trained)


def _frozen(module: nn.Module, moving: Collection[str]) -> list[nn.Parameter]:
    names: dict[int, str] = {}
    found = []
    for name, value in unwrap(module).named_parameters(remove_duplicate=False):
        other = names.setdefault(id(value), name)
        if (other in moving) != (name in moving):
            raise TiedNames(f"{other!r} and {name!r} are one parameter, and one of the names is frozen; name both")
        if name not in moving and other == name:
            found.append(value)
    return found


def frozen_parts(module: nn.Module) -> list[nn.Module]:
    """Return the parts of a network whose parameters are all frozen, with all in them."""
    frozen = [part for part in module.modules() if part is not module and _is_frozen(part)]
    return list(dict.fromkeys(part for whole in frozen for part in whole.modules()))


def _is_frozen(part: nn.Module) -> bool:
    parameters = list(part.parameters())
    return bool(parameters) and not any(parameter.requires_grad for parameter in parameters)


def still_norms(module: nn.Module, moving: Collection[str] | None) -> list[nn.Module]:
    """Return the layers whose running statistics are not among the tensors that move, whatever of their weights."""
    if moving is None:
        return []
    norms = [
        (name, part)
        for name, part in unwrap(module).named_modules()
        if isinstance(part, nn.modules.batchnorm._NormBase) and getattr(part, "running_mean", None) is not None
    ]
    return [part for name, part in norms if f"{name}.running_mean".lstrip(".") not in moving]
