"""Which parts of a network train, and which rest in evaluation mode because their owner put them there."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


def resting(module: nn.Module) -> list[nn.Module]:
    """Return the parts that stay in evaluation mode while the others train.

    Those are the parts that their owner put into ``eval()``, and the parts whose parameters are all frozen. A network
    that is in evaluation mode as a whole, as loaders of pretrained ones leave it, says nothing about its parts.
    """
    set_aside = [part for part in module.modules() if module.training and not part.training]
    frozen = [part for part in module.modules() if part is not module and _is_frozen(part)]
    return list(dict.fromkeys([*set_aside, *(part for whole in frozen for part in whole.modules())]))


def _is_frozen(part: nn.Module) -> bool:
    parameters = list(part.parameters())
    return bool(parameters) and not any(parameter.requires_grad for parameter in parameters)


@contextmanager
def training(module: nn.Module) -> Iterator[None]:
    """Put a network into training mode, but for what rests; afterwards each part is in the mode that it had.

    The network's own ``train()`` is called: one that keeps parts of it in evaluation mode is heeded.
    """
    rest = resting(module)
    with _modes_kept(module):
        module.train()
        for part in rest:
            part.training = False
        yield


@contextmanager
def evaluation(module: nn.Module) -> Iterator[None]:
    """Put a network into evaluation mode; afterwards each part is in the mode that it had."""
    with _modes_kept(module):
        module.eval()
        yield


@contextmanager
def _modes_kept(module: nn.Module) -> Iterator[None]:
    modes = [(part, part.training) for part in module.modules()]
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
