"""Updates made byte by byte for any model; the same every time.

Needs numpy alone: a library that writes sound files cannot write these.
"""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Schema = dict[str, tuple[str, tuple[int, ...]]]
"""Tensor name -> dtype name and shape, in file order."""
Notes = dict[str, str]
"""What the service wants in `__metadata__`."""

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1"}

REFERENCE: Schema = {
    "conv1.weight": ("F32", (8, 1, 3, 3)),
    "conv1.bias": ("F32", (8,)),
    "bn1.weight": ("F32", (8,)),
    "bn1.bias": ("F32", (8,)),
    "bn1.running_mean": ("F32", (8,)),
    "bn1.running_var": ("F32", (8,)),
    "bn1.num_batches_tracked": ("I64", ()),
    "proj.weight": ("F32", (32, 32)),
    "fc.weight": ("F32", (10, 32)),
    "fc.bias": ("F32", (10,)),
}


@dataclass
class Entry:
    """One tensor of a file in the making."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes


def arrays(schema: Schema, seed: int = 0) -> dict[str, np.ndarray]:
    """Return plausible weights."""
    numbers = np.random.default_rng(seed)
    made = {}
    for name, (dtype, shape) in schema.items():
        if dtype[0] in "IU":
            values = np.full(shape, 120 + seed)
        elif "running_var" in name:
            values = numbers.uniform(0.5, 2.0, shape)
        else:
            values = numbers.standard_normal(shape) * 0.1
        made[name] = np.asarray(values).astype(TYPES[dtype]).reshape(shape)
    return made


def entries(schema: Schema, values: dict[str, np.ndarray] | None = None, seed: int = 1) -> list[Entry]:
    """Return the tensors of a sound file."""
    made = arrays(schema, seed) | (values or {})
    return [Entry(name, dtype, shape, made[name].tobytes()) for name, (dtype, shape) in schema.items()]


def head(tensors: list[Entry], notes: Notes | None) -> tuple[dict[str, Any], bytes]:
    """Return header and data of a file."""
    tree: dict[str, Any] = {"__metadata__": dict(notes)} if notes else {}
    data = b""
    for entry in tensors:
        tree[entry.name] = {
            "dtype": entry.dtype,
            "shape": list(entry.shape),
            "data_offsets": [len(data), len(data) + len(entry.data)],
        }
        data += entry.data
    return tree, data


def raw(header: Any, data: bytes = b"", claim: int | None = None) -> bytes:
    """Return a file of a header (JSON or bytes) and data; `claim` overrides the length that it tells."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text) if claim is None else claim) + text + data


def pack(tensors: list[Entry], notes: Notes | None = None) -> bytes:
    """Return a file."""
    return raw(*head(tensors, notes))


def sound(schema: Schema, notes: Notes, values: dict[str, np.ndarray] | None = None, seed: int = 1) -> bytes:
    """Return a correct update."""
    return pack(entries(schema, values, seed), notes)


def matrix(schema: Schema) -> str:
    """Return the first float tensor of two axes or more."""
    return next(name for name, (dtype, shape) in schema.items() if dtype == "F32" and len(shape) >= 2)


def vector(schema: Schema) -> str:
    """Return the first float tensor of one axis."""
    return next(name for name, (dtype, shape) in schema.items() if dtype == "F32" and len(shape) == 1)


def like(schema: Schema, part: str) -> str:
    """Return the first tensor whose name has a part; any vector where there is none."""
    return next((name for name in schema if part in name), vector(schema))


def poked(schema: Schema, notes: Notes, name: str, value: float, at: int = 0) -> bytes:
    """Return a file with one value replaced."""
    values = arrays(schema, 1)
    values[name].reshape(-1)[at] = value
    return sound(schema, notes, values)


def changed(schema: Schema, notes: Notes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """Return a file whose header was changed."""
    tree, data = head(entries(schema), notes)
    change(tree)
    return raw(tree, data)


def replaced(schema: Schema, notes: Notes, name: str, dtype: str, shape: tuple[int, ...], data: bytes) -> bytes:
    """Return a file with one tensor replaced."""
    return pack([Entry(name, dtype, shape, data) if e.name == name else e for e in entries(schema)], notes)
