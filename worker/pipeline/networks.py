"""Networks of a job: built by name, loaded, run over a data set in eval mode. B = 256 samples at a time."""

import math
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from contract import targets
from contract.measures import main_figure, meter
from contract.nn import frozen
from contract.nn.codec import load_state, read_tensor
from contract.nn.graphs.building import inspect_graph
from contract.nn.losses import normalised
from contract.nn.registry import build, initialise
from contract.tensors import TensorError, TensorFile
from contract.wire.federations import Task
from worker.parts.arrays import Float
from worker.parts.schedules import batches_of
from worker.specs import JobFailure, NetworkRef

BATCH = 256
_AT_ONCE = 2**22
"""Outputs of a batch at most, where a sample has many."""


def batch_of(task: Task) -> int:
    """Return how many samples go through a network at once: fewer where each is labelled at many positions."""
    return max(1, min(BATCH, _AT_ONCE // math.prod(task.output_shape))) if task.positions else BATCH


def build_network(network: NetworkRef, task: Task, device: str, *, seed: int = 0, owner: str) -> nn.Module:
    """Return the network with the weights of its file, or those drawn from `seed` where it has none.

    Raises:
        JobFailure: bad_option (architecture, options or input do not fit), schema_mismatch (the file's tensors do not).
    """
    try:
        if network.weights is None:
            module = initialise(network.architecture, network.options, task, seed)
        else:
            module = build(network.architecture, network.options, task=task)
    except ValueError as error:
        raise JobFailure("bad_option", f"{owner}: {error}") from error
    if network.weights is not None:
        try:
            load_state(module, network.weights, network.base)
        except TensorError as error:
            raise JobFailure("schema_mismatch", f"{owner}: {error.detail}") from error
    if len(task.input.shape) == 3:  # images: twice as fast for convolutions on a CPU, and as deterministic
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module.to(device)


def inspect(networks: Iterable[str]) -> None:
    """Find what is wrong with networks that are documents, before a device has trained.

    Raises:
        JobFailure: bad_option, naming node and operator.
    """
    for name in networks:
        try:
            inspect_graph(name)
        except ValueError as error:
            raise JobFailure("bad_option", f"network {name}: {error}") from error


def read_inputs(path: Path, task: Task, what: str) -> Tensor:
    """Return a data set's inputs [N, *task.input.shape] as networks read them.

    Raises:
        JobFailure: schema_mismatch when there is no such tensor, it is empty, or its samples have another shape.
    """
    with TensorFile(path) as file:
        if "inputs" not in file.header.tensors:
            raise JobFailure("schema_mismatch", f"the {what} data set has no tensor 'inputs'")
        inputs = read_tensor(file, "inputs")
    if list(inputs.shape[1:]) != task.input.shape or len(inputs) == 0:
        shape = list(inputs.shape)
        raise JobFailure("schema_mismatch", f"{what} inputs are {shape}; wanted are [N, *{task.input.shape}], N > 0")
    return normalised(inputs, task.input)


def read_labels(path: Path, what: str, task: Task) -> Tensor:
    """Return a data set's labels [N, *task.label_shape], of classifications int64.

    Raises:
        JobFailure: bad_option when it has none, some that are not the task's, or none that counts.
    """
    with TensorFile(path) as file:
        if "labels" not in file.header.tensors:
            raise JobFailure("bad_option", f"the {what} data set has no labels; give one with a tensor 'labels'")
        labels = read_tensor(file, "labels")
    try:
        made = targets.conform(labels.numpy(), task)
        targets.check_labelled(made, task)
    except ValueError as error:
        raise JobFailure("bad_option", f"the {what} data set: {error}") from error
    return torch.from_numpy(made)


def outputs(
    module: nn.Module, inputs: Tensor, device: str, *, owner: str, batch: int = BATCH, rows: slice = slice(None)
) -> Iterator[tuple[int, Float]]:
    """Yield (start, outputs) of the network in eval mode for each batch of inputs [N, ...], as float64 on the CPU.

    `rows` are those that are asked, from the first of a batch on; others are not.

    Raises:
        JobFailure: architecture_failed when the forward pass raises, non_finite when its values are not finite.
    """
    module.eval()
    first, last, _ = rows.indices(len(inputs))
    for start in range(first, last, batch):
        given = inputs[start : min(start + batch, last)].to(device)
        if given.ndim == 4:
            given = given.contiguous(memory_format=torch.channels_last)
        values = forward(module, given, owner)
        if not np.isfinite(values).all():
            raise JobFailure(
                "non_finite",
                f"{owner}: the network gives NaN or infinity on server data (samples from {start} on); "
                "look at its training (learning rate, loss)",
            )
        yield start, values


def forward(module: nn.Module, batch: Tensor, owner: str) -> Float:
    """Return the network's outputs for one batch as float64 on the CPU, without a graph."""
    try:
        with torch.inference_mode():
            return np.asarray(module(batch).float().cpu().numpy(), dtype=np.float64)
    except torch.cuda.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, IndexError) as error:
        if "allocate memory" in str(error):
            raise
        raise JobFailure("architecture_failed", f"{owner}: the forward pass failed: {error}") from error


def moving(network: NetworkRef) -> frozenset[str] | None:
    """Return the tensors of a parted network that rounds move; None: it is whole, and all move."""
    if network.base is None or network.weights is None:
        return None
    with TensorFile(network.weights) as file:
        return frozenset(file.names)


def recalibrate(module: nn.Module, inputs: Tensor, device: str, moving: Collection[str] | None = None) -> None:
    """Compute BatchNorm statistics anew: one pass over inputs [N, ...], the mean over its batches (FedBE, for SWA).

    Only BatchNorm is in train mode. A last batch of one sample, which has no variance, is left out; where there is no
    other sample, the statistics stay, and so do those that are not among the `moving` tensors.
    """
    still = frozen.still_norms(module, moving)
    norms = [each for each in module.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
    norms = [each for each in norms if each.track_running_stats and each not in still]
    if not norms or len(inputs) == 1:
        return
    module.eval()
    before = [(each.momentum, each.num_batches_tracked.clone()) for each in norms]  # type: ignore[union-attr]
    for norm in norms:
        norm.train()
        norm.reset_running_stats()
        norm.momentum = None  # the cumulative mean
    with torch.no_grad():
        for index in range(batches_of(len(inputs), BATCH)):
            batch = inputs[index * BATCH : (index + 1) * BATCH].to(device)
            module(batch.contiguous(memory_format=torch.channels_last) if batch.ndim == 4 else batch)
    for norm, (momentum, tracked) in zip(norms, before, strict=True):
        norm.momentum, norm.num_batches_tracked = momentum, tracked
        norm.eval()


def measure(
    module: nn.Module, inputs: Tensor, labels: Tensor, task: Task, device: str, *, owner: str
) -> dict[str, Any]:
    """Return a network's figures on labelled data (`contract.measures`).

    Raises:
        JobFailure: as `outputs`; schema_mismatch where nothing is labelled, or for outputs of another shape.
    """
    found = meter(task)
    for start, values in outputs(module, inputs, device, owner=owner, batch=batch_of(task)):
        check_shape(values, task, owner)
        found.add(values, labels[start : start + len(values)].numpy())
    try:
        return found.figures()
    except ValueError as error:
        raise JobFailure("schema_mismatch", f"{owner}: {error}") from error


def main_measure(module: nn.Module, inputs: Tensor, labels: Tensor, task: Task, device: str, *, owner: str) -> float:
    """Return a network's main figure on labelled data; of classifications by default the accuracy."""
    return main_figure(task, measure(module, inputs, labels, task, device, owner=owner))


def check_shape(values: Float, task: Task, owner: str) -> None:
    """Refuse outputs of another shape than the task's.

    Raises:
        JobFailure: schema_mismatch.
    """
    if values.shape[1:] != task.output_shape:
        wanted = f"a task of kind {task.kind!r} wants {list(task.output_shape)}"
        raise JobFailure("schema_mismatch", f"{owner}: gives {list(values.shape[1:])} of a sample; {wanted}")
