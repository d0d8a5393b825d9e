"""Networks by name: a builder for every row of `contract.architectures.CATALOGUE` that the service can run."""

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from pydantic import ValidationError
from torch import nn

from contract import architectures as catalogue
from contract.wire.federations import Task

OptionsT = TypeVar("OptionsT", bound=catalogue.Options)
Builder = Callable[[Any, Task], nn.Module]

_FAMILIES = "contract.nn.architectures"  # by name: its modules import this one for the decorator
_builders: dict[str, Builder] = {}


def architecture(name: str) -> Callable[[Callable[[OptionsT, Task], nn.Module]], Callable[[OptionsT, Task], nn.Module]]:
    """Register the decorated function as the builder of `name`: (options, task) -> module.

    Raises:
        ValueError: the name has a builder already, or is not in the catalogue.
    """

    def register(builder: Callable[[OptionsT, Task], nn.Module]) -> Callable[[OptionsT, Task], nn.Module]:
        catalogue.find(name)
        if name in _builders:
            raise ValueError(f"architecture {name!r} has a builder already; give yours another name")
        _builders[name] = builder
        return builder

    return register


@functools.cache
def _discover() -> None:
    for module in pkgutil.iter_modules(importlib.import_module(_FAMILIES).__path__):
        importlib.import_module(f"{_FAMILIES}.{module.name}")


def registered() -> frozenset[str]:
    """Return the names that `build` knows."""
    _discover()
    return frozenset(_builders)


def build(name: str, options: Mapping[str, Any], *, task: Task) -> nn.Module:
    """Build a network with weights drawn from torch's global generator; see `initialise` for seeded ones.

    Shapes by role: a classifier maps [B, *input] to logits [B, C]; a discriminator maps [B, *input] to scores a [B]
    before any sigmoid; a generator maps noise z [B, latent] to [B, *input] with values in [-1, 1].

    Raises:
        ValueError: unknown name, options that do not fit it, or an input it is not made for.
    """
    entry = catalogue.find(name)
    if name not in registered():
        raise ValueError(f"architecture {name!r} is known by its tensors only; the service cannot run it")
    try:
        parsed = entry.options.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "options"
        raise ValueError(f"architecture {name!r}: option {where!r}: {first['msg']}") from error
    return _builders[name](parsed, task)


def initialise(name: str, options: Mapping[str, Any], task: Task, seed: int) -> nn.Module:
    """Build a network whose first weights depend on `seed` alone; torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build(name, options, task=task)
