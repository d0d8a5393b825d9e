"""A user's values as tensors on the CPU; what is none gets a sentence that says what to pass instead."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from client_sdk.errors import DatasetError


def tensor(values: Any, field: str, row: int | None = None) -> Tensor:
    """Return values as a dense tensor that nobody else writes to; its numbers are as they were.

    Args:
        values: a tensor, an array, a frame, nested lists, an image, a number.
        field: what they are, ``inputs`` or ``labels``.
        row: the sample that they are of; None for all of them.

    Raises:
        DatasetError: they are no numbers, or not one array of them.
    """
    if isinstance(values, Tensor):
        return _dense(values, field, row)
    if isinstance(values, (list, tuple)) and values and all(isinstance(value, Tensor) for value in values):
        return _stacked(values, field, row)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DatasetError(field, f"{_of(row)}cannot be turned into one array of numbers: {error}") from error
    _check_numbers(array, field, row)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.writeable:
        array = array.copy()  # torch has no tensors that cannot be written to
    try:
        return torch.from_numpy(np.ascontiguousarray(array))
    except (TypeError, ValueError) as error:
        raise DatasetError(field, f"{_of(row)}cannot be turned into one array of numbers: {error}") from error


def _of(row: int | None) -> str:
    return "" if row is None else f"sample {row}: "


def _holds(row: int | None) -> str:
    return "hold" if row is None else f"sample {row} holds"


def _dense(value: Tensor, field: str, row: int | None) -> Tensor:
    kinds = (
        (value.is_meta, "a tensor on the meta device, which has no values; pass one on the CPU"),
        (value.is_nested, "a nested tensor; pad its rows to one length: torch.nested.to_padded_tensor"),
        (value.is_quantized, "a quantised tensor; pass x.dequantize()"),
        (value.layout != torch.strided, "a sparse tensor; pass x.to_dense()"),
    )
    for found, what in kinds:
        if found:
            raise DatasetError(field, f"{_holds(row)} {what}")
    if value.is_complex():
        raise _complex(field, row)
    return value.detach().to("cpu")


def _complex(field: str, row: int | None) -> DatasetError:
    remedy = "pass torch.view_as_real(x), or real and imaginary parts as channels"
    return DatasetError(field, f"{_holds(row)} complex numbers; {remedy}")


def _stacked(values: Sequence[Tensor], field: str, row: int | None) -> Tensor:
    parts = [_dense(value, field, row) for value in values]
    for number, part in enumerate(parts):
        if part.shape != parts[0].shape or part.dtype != parts[0].dtype:
            raise DatasetError(
                field,
                f"{_of(row)}cannot be turned into one array of numbers: number {number} is {_kind(part)}, "
                f"number 0 {_kind(parts[0])}",
            )
    return torch.stack(parts)


def _kind(value: Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"


def _check_numbers(array: NDArray[Any], field: str, row: int | None) -> None:
    kind, holds = array.dtype.kind, _holds(row)
    first = array.flat[0] if array.size else None
    if kind in "US" or (kind == "O" and isinstance(first, (str, bytes))):
        text = first.decode(errors="replace") if isinstance(first, bytes) else str(first)
        are_classes = field == "labels" and not _is_number(text)
        number = "number your classes 0, 1, …" if are_classes else "turn them into numbers"
        raise DatasetError(field, f"{holds} words, such as {text!r}; {number} as all devices of the federation do")
    if kind == "O":
        raise DatasetError(
            field,
            f"{holds} Python objects ({type(first).__name__}), which cannot be turned into one array of numbers; for "
            "columns of a frame x.to_numpy('float32'), for a sparse matrix x.toarray(), for rows of different lengths "
            "pad them",
        )
    if kind in "Mm":
        raise DatasetError(field, f"{holds} dates; turn them into numbers as all devices of the federation do")
    if kind == "V":
        raise DatasetError(field, f"{holds} records with named fields; pass one array of numbers")
    if kind == "c":
        raise _complex(field, row)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
