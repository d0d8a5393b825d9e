"""Training as arrays and notes, and back, bit for bit: optimisers, generators of randomness, networks."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from contract.nn.codec import state_arrays
from contract.tensors import Array

Arrays = dict[str, Array]


def prefixed(prefix: str, arrays: Mapping[str, Array]) -> Arrays:
    """Return arrays with a prefix before each name."""
    return {prefix + name: array for name, array in arrays.items()}


def optimizer_arrays(optimizer: torch.optim.Optimizer) -> tuple[Arrays, dict[str, Any]]:
    """Return what an optimiser remembers of each parameter: tensors as arrays, anything else as notes.

    Learning rates are not among them: they follow from the step.
    """
    tensors: dict[str, Tensor] = {}
    notes: dict[str, Any] = {}
    for index, held in optimizer.state_dict()["state"].items():
        for name, value in held.items():
            if isinstance(value, Tensor):
                tensors[f"{index}.{name}"] = value
            else:
                notes[f"{index}.{name}"] = value
    return state_arrays(tensors), notes


def restore_optimizer(optimizer: torch.optim.Optimizer, arrays: Mapping[str, Array], notes: Mapping[str, Any]) -> None:
    """Give a fresh optimiser of the same parameters its memory back.

    Moments get their parameter's memory layout: another one may sum in another order, and differ in the last bit.
    """
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    state: dict[int, dict[str, Any]] = {}
    for key, value in {**arrays, **notes}.items():
        index, _, name = key.partition(".")
        if isinstance(value, np.ndarray):
            tensor = torch.from_numpy(value)
            like = parameters[int(index)]
            if tensor.shape == like.shape:
                tensor = torch.empty_like(like, dtype=tensor.dtype, requires_grad=False).copy_(tensor)
            value = tensor
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def module_arrays(module: nn.Module) -> Arrays:
    """Return a network's parameters and buffers."""
    return state_arrays(module.state_dict())


def restore_module(module: nn.Module, arrays: Mapping[str, Array]) -> None:
    """Copy a network's tensors into one of the same architecture, which keeps its memory layout and device."""
    with torch.no_grad():
        for name, tensor in module.state_dict(keep_vars=True).items():
            tensor.copy_(torch.from_numpy(arrays[name]))


def generator_array(generator: torch.Generator) -> Array:
    """Return the state of a generator of random numbers, uint8."""
    return np.asarray(generator.get_state().numpy())


def restore_generator(generator: torch.Generator, array: Array) -> None:
    """Put a generator back to a state."""
    generator.set_state(torch.from_numpy(array))


def global_arrays(device: torch.device) -> Arrays:
    """Return the states of torch's own generators: the CPU's and, if it is in use, the accelerator's."""
    found = {"cpu": np.asarray(torch.get_rng_state().numpy())}
    if device.type == "cuda":
        found["cuda"] = np.asarray(torch.cuda.get_rng_state(device).numpy())
    return found


def restore_global(device: torch.device, arrays: Mapping[str, Array]) -> None:
    """Put torch's own generators back to a state."""
    torch.set_rng_state(torch.from_numpy(arrays["cpu"]))
    if device.type == "cuda":
        torch.cuda.set_rng_state(torch.from_numpy(arrays["cuda"]), device)
