"""Networks by name: a builder for every row of `contract.architectures.CATALOGUE` that the service can run."""

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from torch import nn

from contract import architectures as catalogue
from contract.faults import faults_of
from contract.networks.document import PREFIX
from contract.nn.classifier import Projected
from contract.nn.graphs.building import build_graph, initialise_graph
from contract.nn.seeding import global_seed
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
    """Return the names that `build` knows: potstill's own and those of installed packages."""
    _discover()
    return frozenset(_builders) | {entry.name for entry in catalogue.CATALOGUE.values() if entry.builder is not None}


def _builder(entry: catalogue.Entry) -> Builder:
    """Return what builds a row of the catalogue: a registered function, or the one that a package's row names."""
    if entry.builder is None:
        _discover()
        if entry.name not in _builders:
            raise ValueError(f"architecture {entry.name!r} is known by its tensors only; the service cannot run it")
        return _builders[entry.name]
    module, _, attribute = entry.builder.partition(":")
    try:
        found: Builder = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"architecture {entry.name!r}: builder {entry.builder!r} cannot be loaded: {error}") from error
    return found


def build(name: str, options: Mapping[str, Any], *, task: Task) -> nn.Module:
    """Build a network to load weights into; see `initialise` for first weights that are meant to be used.

    Shapes by role: a classifier maps [B, *input] to logits [B, C]; a discriminator maps [B, *input] to scores a [B]
    before any sigmoid, or to probabilities [B] with the option output = probability; a generator maps noise z
    [B, latent] to [B, *input] with values in [-1, 1].

    potstill's classifiers also have `features(x)` [B, d] and `head`, with forward(x) == head(features(x)).

    Raises:
        ValueError: unknown name, options that do not fit it, an input it is not made for, or a package's builder that
            cannot be loaded or makes no network.
    """
    if name.startswith(PREFIX):
        return build_graph(name)
    return initialise(name, options, task, 0)


def _build(name: str, options: Mapping[str, Any], task: Task) -> nn.Module:
    entry = catalogue.find(name)
    builder = _builder(entry)
    try:
        parsed = entry.read(options)
    except ValidationError as error:
        field, message = faults_of(error, options)[0]
        raise ValueError(f"architecture {name!r}: option {field or 'options'!r}: {message}") from error
    built = builder(parsed, task)
    if not isinstance(built, nn.Module):
        raise ValueError(f"architecture {name!r}: builder {entry.builder!r} made a {type(built).__name__}, no Module")
    projection = getattr(parsed, "projection", None)
    return built if projection is None else Projected(built, projection)


def initialise(name: str, options: Mapping[str, Any], task: Task, seed: int) -> nn.Module:
    """Build a network whose first weights depend on `seed` alone; torch's global generator is left as it was.

    A network that is a document (`contract.networks`) has those that it is registered with, whatever the seed.

    Raises:
        ValueError: as `build`; a document was registered without weights.
    """
    if name.startswith(PREFIX):
        return initialise_graph(name)
    with global_seed(seed):
        return _build(name, options, task)
