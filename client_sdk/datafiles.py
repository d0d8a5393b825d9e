"""Data sets in files: ``.npz`` and ``.safetensors`` with inputs, one or several by name, and labels."""

import zipfile
import zlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from client_sdk import forms
from client_sdk.errors import DatasetError
from contract.tensors import TensorError

_NAMES = (("inputs", "labels"), ("x", "y"))


def read_file(path: Path, columns: forms.Columns | None = None) -> tuple[Any, Any]:
    """Return inputs, or a dict of several, and labels of a file.

    Without `columns` these are `inputs` and `labels`, or `x` and `y`, whatever lies beside them; in a file without
    such a pair one array has a label's name (`client_sdk.forms.LABELS`) and each other is an input of its name, in the
    order of the archive, or of names in a safetensors file, which keeps none.

    Raises:
        DatasetError: it is of another kind, cannot be read, or it is not plain which are inputs and labels.
    """
    kind = path.suffix.lower()
    if kind not in (".npz", ".safetensors"):
        raise DatasetError("dataset", f"{path}: files end in .npz or .safetensors, with inputs and labels (or x and y)")
    try:
        return _read_npz(path, columns) if kind == ".npz" else _read_safetensors(path, columns)
    except (OSError, EOFError, ValueError, TensorError, zipfile.BadZipFile, zlib.error) as error:
        raise DatasetError("dataset", f"{path}: cannot be read: {error}") from error


def _meant(names: Collection[str], columns: forms.Columns | None, path: Path) -> forms.Columns:
    """Return which arrays are inputs and labels.

    Raises:
        DatasetError: with what there is instead.
    """
    plain = next((pair for pair in _NAMES if set(pair) <= set(names)), None)
    if columns is None and plain is not None:
        return plain
    if columns is None and (len(names) < 2 or not set(forms.LABELS) & set(names)):
        there = ", ".join(sorted(names)) or "nothing"
        raise DatasetError(
            "dataset",
            f"{path}: has {there}; it needs 'inputs' and 'labels' (or 'x' and 'y'), or inputs by their names beside "
            "'labels'; or pass columns=, such as columns=('image', 'digit')",
        )
    return forms.pick(list(names), columns, str(path))


def _taken(
    names: Collection[str], columns: forms.Columns | None, path: Path, read: Callable[[str], Any]
) -> tuple[Any, Any]:
    """Return inputs and labels; no array is read that is neither."""
    inputs, label = _meant(names, columns, path)
    wanted = list(inputs.values()) if isinstance(inputs, Mapping) else forms.names_of(inputs)
    return forms.arrays_of({name: read(name) for name in dict.fromkeys([*wanted, label])}, (inputs, label))


def _read_npz(path: Path, columns: forms.Columns | None) -> tuple[Any, Any]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        if not hasattr(arrays, "files"):
            raise ValueError("this is a single array, not an archive of inputs and labels")
        return _taken(arrays.files, columns, path, arrays.__getitem__)


def _read_safetensors(path: Path, columns: forms.Columns | None) -> tuple[Any, Any]:
    from contract.nn.codec import read_tensor
    from contract.tensors import TensorFile

    with TensorFile(path) as file:
        return _taken(sorted(file.names), columns, path, lambda name: read_tensor(file, name))
