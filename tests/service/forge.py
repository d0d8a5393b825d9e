"""Safetensors files that may lie."""

import json
import struct
from typing import Any

import numpy as np

from contract.tensors import DTYPES, dtype_name

Arrays = dict[str, np.ndarray]
SPECS: dict[str, tuple[str, tuple[int, ...]]] = {
    "conv.weight": ("F32", (4, 1, 3, 3)),
    "bn.weight": ("F32", (4,)),
    "bn.running_mean": ("F32", (4,)),
    "bn.running_var": ("F32", (4,)),
    "bn.num_batches_tracked": ("I64", ()),
    "fc.weight": ("F32", (3, 4)),
    "fc.bias": ("F32", (3,)),
}


class Forge:
    """Writes safetensors files with code of its own, so that they can be wrong in every way."""

    specs = SPECS

    @staticmethod
    def arrays(seed: int = 0) -> Arrays:
        """Return plausible weights."""
        numbers = np.random.default_rng(seed)
        made = {}
        for name, (dtype, shape) in SPECS.items():
            values = numbers.integers(0, 9, shape) if dtype == "I64" else np.abs(numbers.standard_normal(shape)) * 0.1
            made[name] = np.asarray(values, DTYPES[dtype])
        return made

    @staticmethod
    def raw(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
        """Return length prefix + header + data; `length` overrides the claim, bytes go in as they are."""
        head = header if isinstance(header, bytes) else json.dumps(header).encode()
        head += b" " * (-(8 + len(head)) % 8)
        return struct.pack("<Q", len(head) if length is None else length) + head + data

    @staticmethod
    def layout(arrays: Arrays, metadata: dict[str, str] | None = None) -> tuple[dict[str, Any], bytes]:
        """Return the header and the data of a sound file."""
        header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
        data = b""
        for name, array in arrays.items():
            offsets = [len(data), len(data) + array.nbytes]
            header[name] = {"dtype": dtype_name(array), "shape": list(array.shape), "data_offsets": offsets}
            data += array.tobytes()
        return header, data

    def pack(self, arrays: Arrays, metadata: dict[str, str] | None = None) -> bytes:
        """Return a sound file."""
        return self.raw(*self.layout(arrays, metadata))
