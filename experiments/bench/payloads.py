"""What devices of the bench send: a model's tensors plus a constant of the device's own, without any training."""

import io
import json
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from contract.tensors import Array, write_file

CHUNK = 1 << 20
SIZES = {"tiny": "20 KB", "S": "1 MB", "M": "45 MB", "wide": "64 MB"}
"""The models of the bench by name: an MLP, a larger one, ResNet-18, and one large tensor."""


@cache
def shapes(size: str) -> dict[str, tuple[int, ...]]:
    """Return a model's tensors, name -> shape; all are float32, but for counters of batches."""
    if size == "tiny":
        return {"hidden.weight": (64, 64), "hidden.bias": (64,), "head.weight": (10, 64), "head.bias": (10,)}
    if size == "S":
        found = {"first.weight": (320, 480), "first.bias": (320,), "second.weight": (320, 320), "second.bias": (320,)}
        return {**found, "head.weight": (10, 320), "head.bias": (10,)}
    if size == "wide":
        return {"weight": (16_000_000 // 1000, 1000)}
    import torch

    from contract.nn.registry import build
    from contract.wire.federations import Task

    task = Task.model_validate({"num_classes": 10, "input": {"shape": [3, 32, 32]}})
    with torch.device("meta"):
        return {name: tuple(value.shape) for name, value in build("resnet-18", {}, task=task).state_dict().items()}


def model(size: str) -> dict[str, Array]:
    """Return a first model: seeded noise, which nobody can compress."""
    rng = np.random.default_rng(0)
    noise = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes(size).items()}
    made: dict[str, Array] = {}
    for name, drawn in noise.items():
        if name.endswith("num_batches_tracked"):
            made[name] = np.array(1)
        else:
            made[name] = np.abs(drawn) if name.endswith("running_var") else drawn  # a variance below 0 is refused
    return made


def shift(number: int) -> np.float32:
    """Return what device `number` adds to each value."""
    return np.float32(1e-4 * (number + 1))


def samples(number: int) -> int:
    """Return how many samples device `number` says it has."""
    return 100 + number


@dataclass(frozen=True)
class Payload:
    """A device's tensors, ready to be sent as often as it takes: the header apart, for it names the round's model."""

    tensors: Mapping[str, Any]
    values: bytes

    @classmethod
    def of(cls, base: Mapping[str, Array], number: int) -> "Payload":
        """Return what device `number` sends of a model."""
        held, header, start = io.BytesIO(), {}, 0
        for name, values in base.items():
            mine = np.asarray(values + shift(number) if values.dtype.kind == "f" else values)
            kind = {"f": "F32", "i": "I64"}[mine.dtype.kind]
            header[name] = {"dtype": kind, "shape": list(mine.shape), "data_offsets": [start, start + mine.nbytes]}
            held.write(mine.tobytes())
            start += mine.nbytes
        return cls(header, held.getvalue())

    def head(self, metadata: Mapping[str, str]) -> bytes:
        """Return the header of a safetensors file."""
        raw = json.dumps({"__metadata__": dict(metadata), **self.tensors}, separators=(",", ":")).encode()
        raw += b" " * (-len(raw) % 8)
        return struct.pack("<Q", len(raw)) + raw

    def chunks(self, head: bytes) -> Iterator[bytes]:
        """Yield the file in pieces."""
        yield head
        view = memoryview(self.values)
        for start in range(0, len(view), CHUNK):
            yield bytes(view[start : start + CHUNK])


def write_model(size: str, path: Path) -> dict[str, Array]:
    """Write the first model and return it."""
    arrays = model(size)
    write_file(path, arrays)
    return arrays


def check_mean(path: Path, base: Mapping[str, Array], clients: int) -> None:
    """Hold a closed round's model against what it must be.

    Raises:
        RuntimeError: naming the tensor; both sides must do the same work to be compared.
    """
    found = load_file(path)
    total = sum(map(samples, range(clients)))
    mean = math.fsum(float(shift(number)) * samples(number) for number in range(clients)) / total
    for name, values in base.items():
        wanted = values + mean if values.dtype.kind == "f" else values
        if not np.allclose(found[name], wanted, rtol=1e-5, atol=1e-5):
            raise RuntimeError(f"the model of a round is not the mean of its updates: {name}")
