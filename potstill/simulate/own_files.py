"""Data sets in files of one's own: .npz and .safetensors, with labels of any kind of task."""

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contract.tasks import TaskKind
from contract.tensors import TensorError, TensorFile
from potstill.samples import Inputs, Samples
from potstill.simulate import kinds
from potstill.simulate.config import SimulationError
from potstill.simulate.loaded import Loaded, with_strata

if TYPE_CHECKING:
    from client_sdk import data

_NOTHING: Mapping[str, NDArray[Any]] = MappingProxyType({})


def read(path: Path, kind: TaskKind | None = None) -> Loaded:
    """Return a file of one's own: .npz with x and y, .safetensors with inputs and labels, as devices take them.

    An array `users` [N] beside them says whose each sample is, an array `strata` [N] what they are dealt by.

    Args:
        path: the file.
        kind: of its task; by default what its labels can only be of.

    Raises:
        DatasetError: the file has another form.
        SimulationError: its inputs are no float32 and no whole numbers, its labels are not of the kind, it has one
            class, or `users` or `strata` do not fit.
    """
    from client_sdk import data

    beside = read_arrays(path, ("users", "strata"), "data")
    return loaded_of(data.load(path), path.stem, str(path), kind, beside)


def loaded_of(
    samples: "data.Samples",
    name: str,
    where: str,
    kind: TaskKind | None = None,
    beside: Mapping[str, NDArray[Any]] = _NOTHING,
) -> Loaded:
    """Return a data set of samples as devices take them.

    Args:
        samples: the data.
        name: of the set.
        where: they are from, for messages.
        kind: of its task; by default what its labels can only be of.
        beside: `users` [N] and `strata` [N], where they are known.

    Raises:
        SimulationError: as `read`.
    """
    from client_sdk import named

    assert samples.labels is not None
    if isinstance(samples.inputs, named.Named):
        raise SimulationError(
            f"{where}: {', '.join(samples.inputs)} are several inputs, and a simulation's networks are built by name, "
            "which take one; write one array `inputs` [N, ...], of rows of numbers their columns side by side"
        )
    assert samples.inputs is not None
    inputs, labels = samples.inputs.numpy(), samples.labels.numpy()
    if inputs.dtype == np.uint8:
        raise SimulationError(f"{where}: inputs are bytes; write them as float32, for images x / 255")
    inputs = inputs.astype(np.float32 if inputs.dtype.kind == "f" else np.int64)
    kind = kind or kinds.seen(inputs, labels, f"data: {where}")
    if kind == "classification" and np.unique(labels).size < 2:
        raise SimulationError(f"{where}: labels are to be whole numbers from 0 on, of two classes at least")
    numbers, task = kinds.checked(inputs, labels, kind, f"data: {where}")
    users, given = (_one_each(beside.get(each), each, where, len(labels)) for each in ("users", "strata"))
    loaded = Loaded(name, task.num_classes, Samples(inputs, numbers, users), kind=kind)
    if given is not None:
        numbered = np.unique(given, return_inverse=True)[1].astype(np.int64)
        return replace(loaded, train=replace(loaded.train, strata=numbered), dealt_by="stratum")
    return loaded if kind == "classification" else with_strata(loaded)


def _one_each(found: NDArray[Any] | None, name: str, where: str, count: int) -> NDArray[Any] | None:
    if found is not None and (found.shape != (count,) or found.dtype.kind not in "iuU"):
        raise SimulationError(
            f"data: {where}: {name} are {found.dtype} {list(found.shape)}; give a name or a whole number for each of "
            f"the {count} samples"
        )
    return found


def inputs_of(path: Path) -> Inputs:
    """Return the inputs [M, *shape] of a file that needs no labels.

    Raises:
        SimulationError: it has none, or they are no finite numbers.
    """
    found = read_arrays(path, ("inputs", "x"), "server_data")
    return unlabelled(next(iter(found.values()), None), str(path))


def unlabelled(inputs: NDArray[Any] | None, where: str) -> Inputs:
    """Return inputs [M, *shape] that need no labels, as float32 or int64.

    Raises:
        SimulationError: there are none, or they are no finite numbers.
    """
    if inputs is None or inputs.ndim < 2 or not len(inputs):
        raise SimulationError(f"server_data: {where}: needs an array `inputs` (or `x`), a row a sample")
    if inputs.dtype == np.uint8:
        raise SimulationError(f"server_data: {where}: inputs are bytes; write them as float32, for images x / 255")
    if inputs.dtype.kind not in "fi" or not np.isfinite(inputs).all():
        raise SimulationError(f"server_data: {where}: inputs are to be finite numbers, float32 or token ids")
    return inputs.astype(np.float32 if inputs.dtype.kind == "f" else np.int64)


def read_arrays(path: Path, names: Sequence[str], field: str) -> dict[str, NDArray[Any]]:
    """Return those of the named arrays that a .npz or .safetensors file has.

    Raises:
        SimulationError: it cannot be read; the message begins with `field`.
    """
    try:
        if path.suffix.lower() == ".npz":
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as arrays:
                there = getattr(arrays, "files", ())
                return {name: np.asarray(arrays[name]) for name in names if name in there}
        with TensorFile(path) as file:
            return {name: np.asarray(file.read(name)) for name in names if name in file.names}
    except (OSError, EOFError, ValueError, TensorError, zipfile.BadZipFile, zlib.error) as error:
        raise SimulationError(f"{field}: {path}: cannot be read: {error}") from error
