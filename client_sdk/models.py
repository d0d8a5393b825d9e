"""The network that a device trains: from the assignment's architecture, or the user's own module."""

from collections.abc import Callable
from pathlib import Path

from torch import nn

from client_sdk.errors import ModelMismatch
from contract import architectures
from contract.nn import codec, registry
from contract.tensors import TensorError, TensorFile, compare
from contract.wire.federations import Prototype, Task

UserModel = nn.Module | Callable[[], nn.Module]


def make(prototype: Prototype, task: Task, model: UserModel | None) -> nn.Module:
    """Return the network to train, without any wrapper.

    Args:
        model: the user's own module, or a function that makes one; None for the prototype's architecture.

    Raises:
        ModelMismatch: the architecture is not one that can be built here.
    """
    if model is not None:
        made = model if isinstance(model, nn.Module) else model()
        if not isinstance(made, nn.Module):
            raise ModelMismatch(f"model: gave a {type(made).__name__}, not a torch.nn.Module")
        return codec.unwrap(made)
    entry = architectures.CATALOGUE.get(prototype.architecture)
    if entry is not None and not entry.server_side:
        raise ModelMismatch(
            f"model: prototype {prototype.name!r} is a network of its users' own ({prototype.architecture}); "
            "pass your module as model="
        )
    try:
        return registry.build(prototype.architecture, prototype.options, task=task)
    except ValueError as error:
        raise ModelMismatch(f"model: {error}; update potstill, or pass your module as model=") from error


def load(module: nn.Module, path: Path) -> None:
    """Check the module tensor by tensor against a downloaded model, then copy the weights in.

    Raises:
        ModelMismatch: naming the first tensors that differ.
    """
    try:
        with TensorFile(path) as file:
            compare(codec.manifest(module), file.header)
        codec.load_state(module, path)
    except TensorError as error:
        names = [
            *error.members.get("mismatched", ()),
            *error.members.get("missing", ()),
            *error.members.get("unknown", ()),
        ]
        shown = f" First tensors that differ: {', '.join(names[:5])}." if len(names) > 1 else ""
        raise ModelMismatch(f"model: {error.detail}{shown}", tuple(names)) from error
