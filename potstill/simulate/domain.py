"""Samples that differ otherwise than by class: the server's of another domain, or skewed; clients' images in turn."""

from dataclasses import replace

import numpy as np

from contract.wire.federations import Task
from potstill.samples import Inputs, Samples
from potstill.simulate.config import SimulationError
from potstill.simulate.settings import ImageTransform

VARIANTS: dict[ImageTransform, int] = {"invert": 2, "rotate": 4}
"""How many different images a change makes of one, itself included."""


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


def changed(samples: Samples, how: ImageTransform) -> Samples:
    """Return images [N, C, H, W] in [0, 1], each changed: `invert` is 1 - x, `rotate` a quarter turn to the left."""
    turned = 1 - samples.inputs if how == "invert" else np.rot90(samples.inputs, axes=(2, 3))
    return replace(samples, inputs=np.ascontiguousarray(turned, samples.inputs.dtype))


def variant(samples: Samples, how: ImageTransform, number: int) -> Samples:
    """Return images changed `number` times, modulo `VARIANTS`: what client `number` has, its feature skew."""
    for _ in range(number % VARIANTS[how]):
        samples = changed(samples, how)
    return samples


def mixed(samples: Samples, how: ImageTransform, generator: np.random.Generator) -> Samples:
    """Return images of which each variant has an even share, at random: what is not of one client."""
    numbers = generator.permutation(np.arange(len(samples)) % VARIANTS[how])
    inputs = samples.inputs.copy()
    for number in range(VARIANTS[how]):
        chosen = np.flatnonzero(numbers == number)
        inputs[chosen] = variant(samples.take(chosen.tolist()), how, number).inputs
    return replace(samples, inputs=inputs)


def skewed(samples: Samples, share: float, generator: np.random.Generator) -> Samples:
    """Return samples of which half of the strata, drawn at random, keep this share, at least one each."""
    known, kept = np.unique(samples.dealt_by), np.ones(len(samples), bool)
    for stratum in generator.permutation(known)[: len(known) // 2]:
        places = generator.permutation(np.flatnonzero(samples.dealt_by == stratum))
        kept[places[max(1, round(share * len(places))) :]] = False
    return samples.take(np.flatnonzero(kept).tolist())


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


def check_transform(how: ImageTransform, task: Task, field: str = "server_transform") -> None:
    """Refuse a change of what are no images, or of images that it does not fit.

    Raises:
        SimulationError: names the field and what the inputs are.
    """
    shape = task.input.shape
    if len(shape) != 3 or task.input.dtype != "float32":
        raise SimulationError(f"{field}: {how} changes images; the inputs are {task.input.dtype} {shape}")
    if how == "rotate" and shape[1] != shape[2]:
        raise SimulationError(f"{field}: a quarter turn needs square images; these are {shape[1]}x{shape[2]}")
