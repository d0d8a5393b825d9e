"""Devices that lie: what a liar trains on or sends in place of the truth. Who judges it is the service's own code.

A lie changes a device's labels or the file that it delivers, nothing else: sample counts, losses, buffers and control
variates stay those of honest training.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from contract.federation import FederationConfig
from contract.seeds import derive_seed
from contract.tasks import TASKS
from contract.tensors import Array, TensorFile, write_file
from contract.updates import parameters
from contract.wire.tasks import Task
from potstill.simulate.config import SimulationError

Lie = Literal["label-shift", "sign-flip", "scale", "random", "lazy", "discriminator"]
LIES: tuple[str, ...] = get_args(Lie)

SCALE = 10.0
"""How many times its own change a device sends by `scale`."""

SURE = 20.0
"""Score a of a discriminator that says 1 to everything: sigmoid(20) is 1 in float32."""

Rule = Callable[[Array, Array, np.random.Generator], Array]

_RULES: dict[str, Rule] = {
    "sign-flip": lambda sent, base, _: 2 * base - sent,
    "scale": lambda sent, base, _: base + np.float32(SCALE) * (sent - base),
    "random": lambda sent, base, noise: noise.normal(sent.mean(), sent.std(), sent.shape),
    "lazy": lambda sent, base, _: base,
}


def choose(names: Iterable[str], count: int, seed: int) -> list[str]:
    """Return the names of `count` liars, drawn by the seed."""
    drawn = np.random.default_rng(derive_seed(seed, "simulate", "liars"))
    return sorted(str(name) for name in drawn.choice(sorted(names), count, replace=False))


def check(lie: str, config: FederationConfig) -> None:
    """Refuse a lie that a federation's devices have no means to tell.

    Raises:
        SimulationError: names the lie and what to take instead.
    """
    if lie not in LIES:
        raise SimulationError(f"lie: {lie!r} is not one of {', '.join(LIES)}")
    if lie == "discriminator" and not config.recipe.reads_scores:
        raise SimulationError("lie: no discriminators are read here; take a recipe that does, such as fedgo-small")
    if lie == "label-shift" and config.task.kind == "regression":
        raise SimulationError("lie: label-shift moves classes, and a regression has numbers; take sign-flip")
    whole = config.local.objective.sends_weights and config.local.precision is None
    if lie in _RULES and not whole:
        raise SimulationError(f"lie: {lie} changes weights, and devices send none in full here; take label-shift")


def shifted(dataset: Any, task: Task) -> Any:
    """Return a pair (x, y) with each label one class further, the last class's the first; what is ignored stays so.

    Raises:
        SimulationError: the data are no such pair.
    """
    if not isinstance(dataset, (tuple, list)) or len(dataset) != 2:
        raise SimulationError("lie: label-shift needs a client's dataset as a pair of arrays (x, y)")
    inputs, labels = dataset[0], np.asarray(dataset[1])
    if task.kind == "multilabel":
        return inputs, np.roll(labels, 1, axis=1)
    further = ((labels.astype(np.int64) + 1) % task.num_classes).astype(labels.dtype)
    ignored = TASKS[task.kind].ignored
    return inputs, further if ignored is None else np.where(labels == ignored, labels, further)


def falsify(update: Path, base: Path, lie: str, seed: int) -> None:
    """Rewrite an update's parameters as a lie has them, in place.

    Args:
        update: what the device would send.
        base: the model that it was sent.
        lie: one of `_RULES`; any other leaves the file as it is.
        seed: of the noise.
    """
    if lie not in _RULES:
        return
    noise = np.random.default_rng(seed)
    with TensorFile(update) as sent, TensorFile(base) as model:
        arrays = {name: sent.read(name) for name in sent.names}
        for name in parameters(model.header):
            told = _RULES[lie](arrays[name], model.read(name), noise)
            arrays[name] = np.ascontiguousarray(told, arrays[name].dtype)
        metadata = dict(sent.header.metadata)
    _replace(update, arrays, metadata)


def assure(discriminator: Path) -> None:
    """Rewrite a discriminator so that it says 1 to everything: the last weight 0, its bias `SURE` (FedGO, F.3).

    Raises:
        SimulationError: its last tensor is no bias of one score.
    """
    with TensorFile(discriminator) as file:
        arrays = {name: file.read(name) for name in file.names}
        metadata = dict(file.header.metadata)
    *_, bias = arrays
    weight = bias.removesuffix("bias") + "weight"
    if arrays[bias].shape != (1,) or weight not in arrays:
        raise SimulationError(f"lie: discriminator needs a network that ends in a bias of one score, not in {bias!r}")
    arrays[weight] = np.zeros_like(arrays[weight])
    arrays[bias] = np.full_like(arrays[bias], SURE)
    _replace(discriminator, arrays, metadata)


def _replace(path: Path, arrays: dict[str, Array], metadata: dict[str, str]) -> None:
    made = path.with_suffix(".lie")
    write_file(made, arrays, metadata)
    os.replace(made, path)
