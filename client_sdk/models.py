"""The network that a device trains: from the assignment's architecture, or the user's own module."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from client_sdk.errors import ModelMismatch, PotstillError
from contract import architectures
from contract.nn import codec, registry
from contract.tensors import Header, TensorError, compare
from contract.whole import WholeFile
from contract.wire.federations import Prototype, Task

UserModel = nn.Module | Callable[[], nn.Module]


def make(prototype: Prototype, task: Task, model: UserModel | None) -> nn.Module:
    """Return the network to train, without any wrapper.

    Args:
        model: the user's own module, or a function that makes one; None for the prototype's architecture.

    Raises:
        ModelMismatch: the architecture is not one that can be built here, or what was passed is no module that can be
            trained and sent.
    """
    if model is not None:
        return make_own(model)
    if prototype.architecture in architectures.CATALOGUE and not architectures.is_server_side(prototype.architecture):
        raise ModelMismatch(
            f"model: prototype {prototype.name!r} is a network of its users' own ({prototype.architecture}); "
            "pass your module as model="
        )
    try:
        return registry.build(prototype.architecture, prototype.options, task=task)
    except ValueError as error:
        raise ModelMismatch(f"model: {error}; update potstill, or pass your module as model=") from error


def make_own(model: UserModel) -> nn.Module:
    """Return the user's own network, without any wrapper.

    Raises:
        ModelMismatch: what was passed is no module that can be trained and sent.
    """
    made = codec.unwrap(_made(model))
    _check_whole(made)
    return made


_FORMS = "pass a torch.nn.Module, or a function without arguments that makes one"


def _made(model: Any) -> nn.Module:
    if isinstance(model, nn.Module):
        return model
    if isinstance(model, Mapping):
        raise ModelMismatch(f"model: a {type(model).__name__} has weights and no network; {_FORMS}")
    if isinstance(model, (str, Path)):
        raise ModelMismatch(f"model: {str(model)!r} is no network, and files are not loaded here; {_FORMS}")
    if not callable(model):
        raise ModelMismatch(f"model: a {type(model).__name__} is no network; {_FORMS}")
    name = getattr(model, "__name__", type(model).__name__)
    try:
        made = model()
    except PotstillError:
        raise
    except Exception as error:
        raise ModelMismatch(f"model: {name}() failed: {type(error).__name__}: {error}; {_FORMS}") from error
    if not isinstance(made, nn.Module):
        raise ModelMismatch(f"model: {name}() gave a {type(made).__name__}, not a torch.nn.Module")
    return made


def _check_whole(module: nn.Module) -> None:
    """Refuse a module whose state has no values yet, or cannot be sent."""
    for name, value in [*module.named_parameters(), *module.named_buffers()]:
        if is_lazy(value):
            raise ModelMismatch(
                f"model: {name!r} is lazy and has no shape yet; call the module once with a batch", (name,)
            )
        if value.is_meta:
            remedy = "module.to_empty(device='cpu') gives it memory"
            raise ModelMismatch(f"model: {name!r} is on the meta device and has no values; {remedy}", (name,))
        if value.dtype == torch.float16 and value.requires_grad:
            raise ModelMismatch(
                f"model: {name!r} is float16, in which small steps vanish and large ones overflow; pass "
                "module.float(), or module.bfloat16()",
                (name,),
            )
    for name, value in _state(module).items():
        if name.rpartition(".")[2] == "_extra_state":
            raise ModelMismatch(
                f"model: {name!r} is extra state, which is no tensor of the model and cannot be averaged; leave out "
                "get_extra_state",
                (name,),
            )
        if not isinstance(value, torch.Tensor):
            what = f"{name!r} of its state is a {type(value).__name__} and no tensor"
            raise ModelMismatch(f"model: {what}; quantised and packed modules cannot be trained", (name,))
        if not codec.can_store(value):
            kind = str(value.dtype).removeprefix("torch.")
            raise ModelMismatch(f"model: {name!r} is {kind}, which cannot be sent; pass it as float32", (name,))


def _state(module: nn.Module) -> dict[str, Any]:
    try:
        return dict(module.state_dict())
    except Exception as error:
        raise ModelMismatch(f"model: its state_dict() failed: {type(error).__name__}: {error}") from error


def check_tensors(module: nn.Module, expected: Header) -> None:
    """Hold a module's tensors against those of the federation's model.

    Raises:
        ModelMismatch: naming the first tensors that differ.
    """
    try:
        compare(codec.manifest(module), expected)
    except TensorError as error:
        raise _mismatch(error) from error


def load(module: nn.Module, path: Path, base: Path | None = None) -> None:
    """Check the module tensor by tensor against a downloaded model, then copy the weights in.

    Args:
        module: the network.
        path: the model.
        base: the tensors that rounds do not move, where the model has the others alone.

    Raises:
        ModelMismatch: naming the first tensors that differ.
    """
    try:
        with WholeFile(path, base) as file:
            compare(codec.manifest(module), file.header)
        codec.load_state(module, path, base)
    except TensorError as error:
        raise _mismatch(error) from error


def load_part(module: nn.Module, path: Path) -> None:
    """Copy what a downloaded model has into a module that may have more, which stays.

    Raises:
        ModelMismatch: naming the first tensors that differ.
    """
    try:
        codec.load_part(module, path)
    except TensorError as error:
        raise _mismatch(error) from error


def _mismatch(error: TensorError) -> ModelMismatch:
    names = [name for what in ("mismatched", "missing", "unknown") for name in error.members.get(what, ())]
    shown = f" First tensors that differ: {', '.join(names[:5])}." if len(names) > 1 else ""
    return ModelMismatch(f"model: {error.detail}{shown}", tuple(names))
