"""The server's unlabelled samples where they are of another domain: another set's, or the same ones changed."""

import numpy as np

from contract.wire.federations import Task
from potstill.samples import Inputs, Samples
from potstill.simulate.config import SimulationError
from potstill.simulate.settings import ServerTransform


def drawn(inputs: Inputs, size: int, generator: np.random.Generator) -> Samples:
    """Return `size` inputs of another set, at random; the labels, which nobody knows, are zeros.

    Raises:
        SimulationError: it has fewer.
    """
    if size > len(inputs):
        raise SimulationError(
            f"server_samples: {size} are asked for, server_data has {len(inputs)}; ask for fewer by --server-samples"
        )
    chosen = np.sort(generator.permutation(len(inputs))[:size])
    return Samples(inputs[chosen], np.zeros(size, np.int64))


def changed(samples: Samples, how: ServerTransform) -> Samples:
    """Return images [N, C, H, W] in [0, 1], each changed: `invert` is 1 - x, `rotate` a quarter turn to the left."""
    turned = 1 - samples.inputs if how == "invert" else np.rot90(samples.inputs, axes=(2, 3))
    return Samples(np.ascontiguousarray(turned, samples.inputs.dtype), samples.labels)


def check_inputs(inputs: Inputs, task: Task) -> None:
    """Refuse inputs that the task's networks do not take.

    Raises:
        SimulationError: another shape or kind; the message has both.
    """
    kind, shape = "int64" if inputs.dtype.kind == "i" else "float32", list(inputs.shape[1:])
    if (kind, shape) != (task.input.dtype, task.input.shape):
        raise SimulationError(
            f"server_data: its inputs are {kind} {shape}, the clients' are {task.input.dtype} {task.input.shape}; "
            "take a set of the same shape"
        )


def check_transform(how: ServerTransform, task: Task) -> None:
    """Refuse a change of what are no images, or of images that it does not fit.

    Raises:
        SimulationError: names what the inputs are.
    """
    shape = task.input.shape
    if len(shape) != 3 or task.input.dtype != "float32":
        raise SimulationError(f"server_transform: {how} changes images; the inputs are {task.input.dtype} {shape}")
    if how == "rotate" and shape[1] != shape[2]:
        raise SimulationError(f"server_transform: a quarter turn needs square images; these are {shape[1]}x{shape[2]}")
