"""Tensors of every kind, and files of them as bytes."""

import json
import struct
from typing import Any

import ml_dtypes
import numpy as np

from contract.tensors import (
    Header,
    StreamCheck,
)

F32 = np.float32
ARRAYS = {
    "a": np.arange(6, dtype=F32).reshape(2, 3),
    "b.running_var": np.ones(4, F32),
    "n": np.array(7),
    "flag": np.array([True, False]),
    "half": np.ones(3, np.float16),
    "brain": np.ones(3, ml_dtypes.bfloat16),
    "double": np.ones(2, np.float64),
    "empty": np.zeros((0, 4), F32),
}


def raw(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(head) if length is None else length) + head + data


def feed(data: bytes, manifest: Header | None = None, size: int = 0, total: int | None = None) -> Header:
    """Run a stream check over pieces of `size` bytes (0: in one piece)."""
    check = StreamCheck(manifest, total)
    for start in range(0, len(data), size or len(data) or 1):
        check.feed(data[start : start + (size or len(data))])
    return check.finish()
