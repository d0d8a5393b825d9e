"""Modules to safetensors files and back, through `contract.tensors`: no pickle, one tensor at a time."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import torch
from torch import Tensor, nn

from contract.tensors import BUFFERS_KEY, Array, Header, TensorError, TensorFile, TensorInfo, compare, write_file
from contract.whole import WholeFile

_DTYPES: dict[torch.dtype, str] = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}


def unwrap(module: nn.Module) -> nn.Module:
    """Return the network inside wrappers that prefix its tensors' names (DataParallel, DDP, torch.compile)."""
    while True:
        inner = getattr(module, "_orig_mod", None)
        if inner is None and isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            inner = module.module
        if not isinstance(inner, nn.Module):
            return module
        module = inner


def buffer_names(module: nn.Module) -> list[str]:
    """Return the names of the state's tensors that are buffers and not parameters."""
    inner = unwrap(module)
    buffers = {name for name, _ in inner.named_buffers(remove_duplicate=False)}
    return [name for name in inner.state_dict() if name in buffers]


def can_store(tensor: Tensor) -> bool:
    """Whether a file has a dtype for this tensor, and it is a dense one."""
    return tensor.dtype in _DTYPES and tensor.layout == torch.strided


def _to_array(name: str, tensor: Tensor) -> Array:
    if tensor.dtype not in _DTYPES:
        raise TensorError("tensors", f"tensor {name!r}: dtype {tensor.dtype} cannot be stored", tensor=name)
    held = tensor.detach().to("cpu").contiguous()
    if held.dtype == torch.bfloat16:  # numpy knows it only through ml_dtypes: pass the bits
        return held.view(torch.int16).numpy().view(ml_dtypes.bfloat16).copy()  # type: ignore[no-any-return]
    return np.array(held.numpy(), order="C", copy=True)


def _from_array(array: Array) -> Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def read_tensor(file: TensorFile, name: str) -> Tensor:
    """Return one tensor of an open file, in memory of its own."""
    return _from_array(file.read(name))


def state_arrays(state: Mapping[str, Tensor]) -> dict[str, Array]:
    """Return a state dict as numpy arrays, each a contiguous copy: tied tensors are written out once each."""
    return {name: _to_array(name, tensor) for name, tensor in state.items()}


def digests(state: Mapping[str, Tensor]) -> str:
    """Return the digests of a state's values for a file's metadata (`contract.tensors.DIGESTS_KEY`).

    They are made from the tensors and not from what was written, value by value in C order, so that whoever reads the
    file can tell whether it holds what was meant.
    """
    found = {}
    for name, tensor in state.items():
        values = tensor.detach().to("cpu").reshape(-1)
        if values.numel():
            found[name] = hashlib.sha256(values.contiguous().view(torch.uint8).numpy().data).hexdigest()
    return json.dumps(found)


def save_state(
    source: nn.Module | Mapping[str, Tensor], path: Path | str, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a module's state, or a state dict, in its order.

    A module's buffer names go into the metadata; those of a bare state dict must be in `metadata` already.
    """
    notes = dict(metadata or {})
    if isinstance(source, nn.Module):
        notes.setdefault(BUFFERS_KEY, json.dumps(buffer_names(source)))
        source = unwrap(source).state_dict()
    write_file(path, state_arrays(source), notes)


def manifest(module: nn.Module) -> Header:
    """Return the header that a file of this module's state has, as far as names, dtypes and shapes go."""
    infos: dict[str, TensorInfo] = {}
    end = 0
    for name, tensor in unwrap(module).state_dict().items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        infos[name] = TensorInfo(_DTYPES.get(tensor.dtype, str(tensor.dtype)), tuple(tensor.shape), begin, end)
    return Header(infos, {BUFFERS_KEY: json.dumps(buffer_names(module))})


def load_state(module: nn.Module, path: Path | str, base: Path | None = None) -> None:
    """Copy a file's tensors into a module; both must have exactly the same names, shapes and dtypes.

    One tensor is in memory at a time beside the module's own, which keep their device.

    Args:
        module: the network.
        path: its file, or that of the tensors that rounds move.
        base: the file of the others.

    Raises:
        TensorError: a file is not sound, or is not of this network; the module is unchanged then.
    """
    inner = unwrap(module)
    with WholeFile(Path(path), base) as file, torch.no_grad():
        compare(file.header, manifest(inner))
        for name, tensor in inner.state_dict(keep_vars=True).items():
            tensor.copy_(_from_array(file.read(name)))


def load_part(module: nn.Module, path: Path | str) -> None:
    """Copy a file's tensors into a module that may have others beside, which stay.

    Raises:
        TensorError: the file is not sound, or holds what the module has not; the module is unchanged then.
    """
    inner = unwrap(module)
    with TensorFile(path) as file, torch.no_grad():
        own = manifest(inner)
        compare(file.header, Header({name: own.tensors[name] for name in file.names if name in own.tensors}))
        state = inner.state_dict(keep_vars=True)
        for name in file.names:
            state[name].copy_(read_tensor(file, name))
