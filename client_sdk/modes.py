"""Which parts of a network train, and which rest in evaluation mode because their owner put them there."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from torch import nn

from contract.nn.frozen import frozen_parts, still_norms


def resting(module: nn.Module, moving: Collection[str] | None = None) -> list[nn.Module]:
    """Return the parts that stay in evaluation mode while the others train.

    Those are the parts that their owner put into ``eval()``, the parts whose parameters are all frozen, and BatchNorm
    whose statistics are not among the `moving` tensors (None: all move). A network that is in evaluation mode as a
    whole, as loaders of pretrained ones leave it, says nothing about its parts.
    """
    set_aside = [part for part in module.modules() if module.training and not part.training]
    return list(dict.fromkeys([*set_aside, *frozen_parts(module), *still_norms(module, moving)]))


@contextmanager
def training(module: nn.Module, moving: Collection[str] | None = None) -> Iterator[None]:
    """Put a network into training mode, but for what rests; afterwards each part is in the mode that it had.

    The network's own ``train()`` is called: one that keeps parts of it in evaluation mode is heeded.
    """
    rest = resting(module, moving)
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
