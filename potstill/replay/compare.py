"""Where two tensor files differ."""

from pathlib import Path

import numpy as np

from contract.tensors import TensorError, TensorFile


def difference(expected: Path, made: Path) -> str:
    """Return in words the first tensor that differs, by name, and by how much at most; files with one content differ
    in nothing but their metadata.
    """
    try:
        with TensorFile(expected) as one, TensorFile(made) as other:
            return _between(one, other)
    except TensorError as error:
        return f"cannot be compared: {error.detail}"


def _between(one: TensorFile, other: TensorFile) -> str:
    unlike = sorted(set(one.names) ^ set(other.names))
    if unlike:
        return f"tensor {unlike[0]!r} is in one of them only"
    for name in sorted(one.names):
        info, twin = one.header.tensors[name], other.header.tensors[name]
        if (info.dtype, info.shape) != (twin.dtype, twin.shape):
            return f"tensor {name!r}: {info.dtype} {list(info.shape)} became {twin.dtype} {list(twin.shape)}"
        before, after = one.read(name), other.read(name)
        if before.tobytes() != after.tobytes():
            apart = np.abs(before.astype(np.float64) - after.astype(np.float64))
            count = f"{int((apart > 0).sum())} of {apart.size} values"
            return f"tensor {name!r}: max |difference| {np.max(apart):.3g}, {count}"
    return "the same tensors, other metadata or order"
