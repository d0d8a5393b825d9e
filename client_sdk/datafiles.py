"""Data sets in files: ``.npz`` and ``.safetensors`` with inputs and labels."""

import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from client_sdk.errors import DatasetError
from contract.tensors import TensorError

_NAMES = (("inputs", "labels"), ("x", "y"))


def read_file(path: Path) -> tuple[Any, Any]:
    """Return inputs and labels of a file.

    Raises:
        DatasetError: it is of another kind, cannot be read, or lacks one of them.
    """
    kind = path.suffix.lower()
    if kind not in (".npz", ".safetensors"):
        raise DatasetError("dataset", f"{path}: files end in .npz or .safetensors, with inputs and labels (or x and y)")
    try:
        return _read_npz(path) if kind == ".npz" else _read_safetensors(path)
    except KeyError as error:
        there = error.args[0]
        raise DatasetError(
            "dataset", f"{path}: has {there}; it needs 'inputs' and 'labels' (or 'x' and 'y')"
        ) from error
    except (OSError, EOFError, ValueError, TensorError, zipfile.BadZipFile, zlib.error) as error:
        raise DatasetError("dataset", f"{path}: cannot be read: {error}") from error


def _pair(names: Collection[str]) -> tuple[str, str]:
    """Return how this file calls samples and labels; KeyError with what there is instead."""
    for inputs, labels in _NAMES:
        if inputs in names and labels in names:
            return inputs, labels
    raise KeyError(", ".join(sorted(names)) or "nothing")


def _read_npz(path: Path) -> tuple[Any, Any]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        if not hasattr(arrays, "files"):
            raise ValueError("this is a single array, not an archive of inputs and labels")
        inputs, labels = _pair(arrays.files)
        return arrays[inputs], arrays[labels]


def _read_safetensors(path: Path) -> tuple[Any, Any]:
    from contract.nn.codec import read_tensor
    from contract.tensors import TensorFile

    with TensorFile(path) as file:
        inputs, labels = _pair(file.names)
        return read_tensor(file, inputs), read_tensor(file, labels)
