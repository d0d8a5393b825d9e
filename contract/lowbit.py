"""One bit a weight: binarisation, its packed form on the wire and back (FedDF 4.3, App. C.2). numpy only.

A weight [out, ...] becomes ``scale[out] * sign(w)``. On the wire: `BITS` + name, U8 [(numel + 7) // 8], the signs in
C order, eight a byte, lowest bit first, 1 for +; and `SCALE` + name, F32 [out]. Bits after the last sign are 0.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.errors import RuleError
from contract.tensors import DTYPES, Header, TensorFile, TensorWriter
from contract.updates import BITS, MODEL_KEYS, SCALE

Array = NDArray[Any]


@dataclass(frozen=True)
class Binary:
    """A binarised weight.

    Attributes:
        binary: scale * sign [out, ...], in the weight's dtype.
        scale: mean |w| of each output channel [out], in the weight's dtype; float32 for 16-bit weights.
        memory: what rounding lost, w + memory - binary [out, ...]; to be added next time (error feedback).
    """

    binary: Array
    scale: Array
    memory: Array


def binarize(weight: Array, memory: Array | None = None) -> Binary:
    """Return alpha_o sign(w), alpha_o = mean |w_o| over an output channel, sign(0) = +1 (FedDF 4.3; XNOR-Net eq. 6).

    Args:
        weight: floats [out, ...]; not changed.
        memory: the residual of the last time, of the same shape; it is added first.

    Raises:
        RuleError: schema_mismatch (no axes, or the memory has another shape), non_finite.
    """
    weight = np.asarray(weight)
    dtype = weight.dtype
    if weight.ndim == 0:
        raise RuleError("schema_mismatch", "a weight needs an axis of output channels; this is a single number")
    if memory is not None and np.shape(memory) != weight.shape:
        raise RuleError("schema_mismatch", f"memory {np.shape(memory)} does not go with weight {weight.shape}")
    wide = weight.astype(np.float64)
    if memory is not None:
        wide = wide + np.asarray(memory).astype(np.float64)
    channels = math.prod(weight.shape[1:])
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.abs(wide).reshape(len(wide), channels).sum(axis=1)  # no -1: it has no meaning for an empty weight
        scale = (total / max(channels, 1)).astype(dtype if dtype.itemsize >= 4 else np.float32)
    if not np.isfinite(scale).all():
        raise RuleError("non_finite", "the weight or its memory has NaN or infinity, or is too large for a mean")
    shaped = scale.reshape(-1, *[1] * (weight.ndim - 1))
    binary = np.where(wide >= 0, shaped, -shaped).astype(dtype)
    return Binary(binary, scale, (wide - binary.astype(np.float64)).astype(dtype))


def pack(binary: Array) -> NDArray[np.uint8]:
    """Return the signs of an array as U8 [(numel + 7) // 8]; 1 for values >= 0.

    Raises:
        RuleError: non_finite (NaN has no sign).
    """
    values = np.asarray(binary)
    if np.isnan(values.astype(np.float64)).any():
        raise RuleError("non_finite", "NaN has no sign")
    return np.packbits(values.reshape(-1) >= 0, bitorder="little")


def unpack(bits: Array, scale: Array, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    """Return scale * sign, of `shape` [out, ...] and `dtype`: the inverse of `pack`.

    Raises:
        RuleError: schema_mismatch (bits or scale of another length), out_of_range (a negative scale, or a bit set after
            the last sign), non_finite (the scale).
    """
    numel = math.prod(shape)
    if not shape or bits.dtype != np.uint8 or bits.shape != ((numel + 7) // 8,) or scale.shape != (shape[0],):
        raise RuleError("schema_mismatch", f"bits {bits.shape} and scale {scale.shape} do not make a weight {shape}")
    if not np.isfinite(scale).all():
        raise RuleError("non_finite", "a scale is NaN or infinity")
    if (scale < 0).any():
        raise RuleError("out_of_range", "a scale is negative; it is a mean of absolute values")
    signs = np.unpackbits(bits, bitorder="little")
    if signs[numel:].any():
        raise RuleError("out_of_range", "bits are set after the last sign")
    shaped = scale.reshape(-1, *[1] * (len(shape) - 1))
    return np.where(signs[:numel].reshape(shape) == 1, shaped, -shaped).astype(dtype)


def unpack_file(path: Path, output: Path, base: Header) -> None:
    """Write a binary update as an ordinary one: the tensors of `base`, one in memory at a time.

    Tensors that are neither in `base` nor bits and scales of one are left out.

    Raises:
        RuleError: schema_mismatch (a tensor is missing or has another shape), and as `unpack`.
    """
    infos = {name: (info.dtype, info.shape) for name, info in base.tensors.items()}
    metadata = {key: value for key, value in base.metadata.items() if key in MODEL_KEYS}
    with TensorFile(path) as file, TensorWriter(output, infos, metadata) as writer:
        for name, info in base.tensors.items():
            writer.write(name, _restored(file, name, info.shape, info.dtype))


def _restored(file: TensorFile, name: str, shape: tuple[int, ...], dtype: str) -> Array:
    there = file.header.tensors
    if name in there:
        if (there[name].dtype, there[name].shape) != (dtype, shape):
            raise RuleError("schema_mismatch", f"tensor {name!r} is not {dtype} {list(shape)}")
        return file.read(name)
    if BITS + name not in there or SCALE + name not in there:
        raise RuleError("schema_mismatch", f"the update has neither tensor {name!r} nor its bits and scale")
    try:
        return unpack(file.read(BITS + name), file.read(SCALE + name), shape, DTYPES[dtype])
    except RuleError as error:
        raise RuleError(error.code, f"tensor {name!r}: {error.detail}") from error
