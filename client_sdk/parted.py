"""Networks of which devices train a part: which, what of it stays on this device, and the whole network at the end."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from client_sdk.errors import ModelMismatch
from contract.nn import codec
from contract.outputs import check_place
from contract.partition import Partition, PatternError, partition
from contract.tensors import Header, TensorError, TensorFile, TensorWriter, dtype_name
from contract.updates import KEPT
from contract.whole import WholeFile, require_base
from contract.wire.federations import ModelRef, Prototype


def partition_of(module: nn.Module, prototype: Prototype | None) -> Partition | None:
    """Return how a prototype's network is parted; None where devices train and send all of it.

    Raises:
        ModelMismatch: the patterns are none of this network's.
    """
    if prototype is None or not prototype.parted:
        return None
    try:
        return partition(prototype.parts, codec.manifest(module))
    except PatternError as error:
        raise ModelMismatch(f"model: prototype {prototype.name!r}: {error}; tell the operator") from error


def sent_header(header: Header, parts: Partition | None) -> Header:
    """Return a network's header without the tensors that are never sent."""
    if parts is None:
        return header
    return Header({name: header.tensors[name] for name in parts.shared}, header.metadata)


def check_base(path: Path, base: ModelRef | None) -> None:
    """Refuse a model that came without its base, or with another one's.

    Raises:
        ModelMismatch: says so.
    """
    try:
        with TensorFile(path) as file:
            require_base(file.header, None if base is None else base.digest)
    except TensorError as error:
        raise ModelMismatch(f"model: {error.detail}; tell the operator") from error


def load_kept(module: nn.Module, memory: Mapping[str, Tensor], names: Collection[str]) -> None:
    """Put what this device has kept to itself into its network; what it has not stays as it was sent first."""
    state = codec.unwrap(module).state_dict(keep_vars=True)
    with torch.no_grad():
        for name in names:
            own = memory.get(KEPT + name)
            if own is not None and own.shape == state[name].shape:
                state[name].copy_(own)


def write_whole(moving: Path, base: Path, memory: Mapping[str, Tensor], target: Path) -> None:
    """Write the whole network to a file, one tensor in memory at a time: the model, its base and, in place of first
    values, what this device kept.
    """
    check_place(target)
    partial = target.with_name(f"{target.name}.part")
    with WholeFile(moving, base) as file:
        infos = {name: (info.dtype, info.shape) for name, info in file.header.tensors.items()}
        own = {name: memory[KEPT + name] for name in infos if KEPT + name in memory}
        with TensorWriter(partial, infos, file.header.metadata) as writer:
            for name, (dtype, shape) in infos.items():
                kept = codec.state_arrays({name: own[name]})[name] if name in own else None
                fits = kept is not None and (dtype_name(kept), kept.shape) == (dtype, shape)
                writer.write(name, kept if kept is not None and fits else file.read(name))
    os.replace(partial, target)
