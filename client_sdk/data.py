"""A device's data set: taken in, checked against the task, cut into batches.

Taken are a torch `Dataset` of ``(x, y)``, a pair of arrays, or a path: ``.npz`` with `x` and `y`, ``.safetensors``
with `inputs` and `labels`. Arrays, files and torch's own sets of tensors are held in memory. Any other `Dataset` is
read anew in each epoch, because nothing but its code says whether it gives the same sample twice; `cache` holds what
one reading gave.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset

from client_sdk import arrays, fitting, named, sources, workers
from client_sdk.datafiles import read_file
from client_sdk.errors import DatasetError
from client_sdk.named import Inputs, Named
from contract.nn.losses import normalised
from contract.wire.federations import Task

_READ_BATCH = 256
_FORMS = "pass a torch Dataset of (x, y), a pair of arrays (x, y), or a path to a .npz or .safetensors file"


@dataclass
class Samples:
    """N samples: `inputs` [N, *shape] and `labels` [N, ...] in memory, or a `source` to read them from.

    Inputs may be several by name (`client_sdk.named`); the first of them is then what the task describes.

    `task` is None until `check` has passed; from then on samples have the task's dtypes, and batches those that
    networks read (`contract.nn.losses.normalised`). `classes` are the names of the classes in the order of the labels,
    where they are known. `looked` is what was seen of a source; `labels` are there too when that was all of it.
    `dtype` is that of batches of floating inputs, float32 where none is named.
    """

    size: int
    inputs: Inputs | None = None
    labels: Tensor | None = None
    source: Any = None
    task: Task | None = None
    classes: list[str] | None = None
    looked: sources.Looked | None = None
    dtype: torch.dtype | None = None
    how: sources.Reading = sources.PLAIN

    def __len__(self) -> int:
        return self.size

    @property
    def names(self) -> list[str]:
        """The names of the inputs, where there are several."""
        first = self.inputs if self.looked is None else self.looked.first
        return list(first) if isinstance(first, Named) else []

    def check(self, task: Task) -> None:
        """Refuse samples that are not what `task` asks for, before anything is trained.

        A source is held to it by what was seen of it, and again by each batch as it is read.

        Raises:
            DatasetError: naming the field, the value and the remedy.
        """
        fitting.check_classes(self.classes, task.classes)
        if self.inputs is not None and self.labels is not None:
            self.inputs, self.labels = fitting.conform(self.inputs, self.labels, task)
            fitting.check_labelled(self.labels, task)
        elif self.looked is not None:
            fitting.conform_inputs(self.looked.first, task)
            labels = fitting.conform_labels(self.looked.labels, task, self.looked.rows)
            if self.looked.not_finite is not None:
                raise fitting.not_finite(self.looked.not_finite)
            self.labels = labels if self.looked.whole else None
            if self.labels is not None:
                fitting.check_labelled(self.labels, task)
        self.task = task

    def given_as(self, dtype: torch.dtype) -> "Samples":
        """Return the same samples with floating inputs of another dtype: a network's own."""
        inputs = self.inputs
        if inputs is not None and not self._changes:
            inputs = named.floating(inputs, lambda value: value.to(dtype))
        return replace(self, inputs=inputs, dtype=dtype)

    def part(self, rows: Tensor) -> "Samples":
        """Return the samples of some rows [M], in that order; those of a source are still read when they are needed."""
        if self.source is not None:
            labels = None if self.labels is None else self.labels[rows]
            return replace(self, size=len(rows), source=Subset(self.source, rows.tolist()), labels=labels, looked=None)
        assert self.inputs is not None and self.labels is not None
        inputs = named.changed(self.inputs, lambda value: value[rows])
        return replace(self, size=len(rows), inputs=inputs, labels=self.labels[rows])

    def some(self, count: int) -> "Samples":
        """Return at most `count` of the samples, spread over them, in memory; they were checked."""
        rows = torch.arange(self.size)[:: max(1, self.size // count)][:count]
        inputs, labels = next(self._stored([rows], torch.device("cpu"), 0, self.how.plain()))
        return replace(self, size=len(rows), inputs=inputs, labels=labels, source=None, looked=None)

    def batches(self, size: int, order: torch.Generator, device: torch.device) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield one epoch of ``(inputs [B, *shape], labels [B])`` on `device`, shuffled by `order`.

        Every sample comes once. A last batch of one joins the batch before it: BatchNorm has no statistics for one.
        What a source draws at random follows from `order`, too.
        """
        seed = sources.seed_of(order)
        yield from self.read(cut(torch.randperm(self.size, generator=order), size), device, seed, trained=True)

    def steps(self, size: int) -> int | None:
        """Return how many batches an epoch has; None where nobody knows."""
        return len(cut(torch.arange(self.size), size))

    def read(
        self, rows: list[Tensor], device: torch.device, seed: int = 0, *, trained: bool = False
    ) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield ``(inputs [B, *shape], labels [B, ...])`` on `device`, as networks read them, for each row of indices.

        Args:
            seed: of what a source draws at random, with the index of each sample.
            trained: they are trained on, and so augmented.
        """
        for inputs, labels in self._stored(rows, device, seed, self.how if trained else self.how.plain()):
            if self._changes:
                assert self.task is not None
                inputs = _normalised(inputs, self.task)
            if self.dtype is not None:
                inputs = named.floating(inputs, partial(Tensor.to, dtype=self.dtype))
            yield inputs, labels

    @property
    def _changes(self) -> bool:
        """Whether networks read something else than what is stored."""
        spec = None if self.task is None else self.task.input
        return spec is not None and (spec.normalisation is not None or spec.dtype != spec.read_as)

    def _stored(
        self, rows: list[Tensor], device: torch.device, seed: int, how: sources.Reading
    ) -> Iterator[tuple[Inputs, Tensor]]:
        if self.inputs is not None and self.labels is not None and how.augment is None:
            inputs, labels = named.changed(self.inputs, lambda value: value.to(device)), self.labels.to(device)
            for index in rows:
                yield named.changed(inputs, partial(_rows, index.to(device))), labels[index.to(device)]
            return
        assert self.task is not None
        source, which = self.source, [index.tolist() for index in rows]
        if self.inputs is not None and self.labels is not None:
            source, how = _Rows(self.inputs, self.labels), replace(how, collate=None)
        found: Iterator[tuple[Inputs, Tensor]] = (
            workers.read(source, which, seed, how)
            if how.workers
            else (sources.read(source, each, seed, how) for each in which)
        )
        for each, (inputs, labels) in zip(which, found, strict=True):
            x, y = fitting.conform(inputs, labels, self.task, each)
            yield named.changed(x, lambda value: value.to(device)), y.to(device)


def _rows(index: Tensor, value: Tensor) -> Tensor:
    return value[index]


def _normalised(inputs: Inputs, task: Task) -> Inputs:
    """Return inputs as networks read them; of several the first is what the task describes."""
    if isinstance(inputs, Tensor):
        return normalised(inputs, task.input)
    first = next(iter(inputs))
    return Named({**inputs, first: normalised(inputs[first], task.input)})


def cut(order: Tensor, size: int) -> list[Tensor]:
    """Cut indices [N] into batches of `size`; a remainder of one joins the batch before it."""
    rows = [order[at : at + size] for at in range(0, len(order), size)]
    if len(rows) > 1 and size > 1 and len(rows[-1]) == 1:
        rows[-2:] = [torch.cat(rows[-2:])]
    return rows


def load(
    dataset: Any,
    classes: Sequence[str] | None = None,
    *,
    cache: bool = False,
    how: sources.Reading = sources.PLAIN,
) -> Samples:
    """Take in what the user passed to `train_and_push`. Needs no network and no task.

    Args:
        dataset: the data.
        classes: names of the classes in the order of the labels; by default those that a torch data set knows.
        cache: hold what a `Dataset` gives now, for all epochs and rounds.
        how: how samples of a `Dataset` are read.

    Raises:
        DatasetError: it is empty, has another form, a sample cannot be read, or inputs and labels do not belong
            together.
    """
    samples = _load(dataset, cache, how.plain())
    if classes is not None:
        samples.classes = [str(name) for name in classes]
    return samples


def _load(dataset: Any, cache: bool, how: sources.Reading) -> Samples:
    if isinstance(dataset, Samples):
        return dataset
    if isinstance(dataset, (str, Path)):
        dataset = read_file(Path(dataset))
    if isinstance(dataset, (tuple, list)):
        if len(dataset) != 2:
            raise DatasetError("dataset", f"a {type(dataset).__name__} of {len(dataset)} is no pair (x, y); {_FORMS}")
        return _pair(*dataset)
    _refuse_others(dataset)
    held = None if how.collate is not None else _tensors(dataset)
    samples = _from_source(dataset, cache, how) if held is None else _paired(*held)
    samples.classes = class_names(dataset)
    return samples


def _refuse_others(dataset: Any) -> None:
    """Refuse what is no map-style `Dataset`, saying how to pass what is in it."""
    kind = type(dataset).__name__
    if isinstance(dataset, type):
        raise DatasetError(
            "dataset", f"{dataset.__name__} is a class; pass one of its objects, {dataset.__name__}(...)"
        )
    if isinstance(dataset, DataLoader):
        raise DatasetError("dataset", "a DataLoader has cut batches already; pass its data set, loader.dataset")
    if isinstance(dataset, (np.ndarray, Tensor)):
        raise DatasetError("dataset", f"one {kind} is no pair; pass (x, y), inputs and labels")
    if isinstance(dataset, bytes) or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise DatasetError("dataset", f"cannot read a {kind}; {_FORMS}")


def _tensors(dataset: Any) -> tuple[Tensor, Tensor] | None:
    """Return inputs and labels of torch's own sets of tensors, also inside its own subsets and concatenations.

    A class that is made from one of them may do anything in ``__getitem__``, so it is read like any other.
    """
    if type(dataset) is TensorDataset and len(dataset.tensors) == 2:
        inputs, labels = dataset.tensors
        return arrays.tensor(inputs, "inputs"), arrays.tensor(labels, "labels")
    if type(dataset) is Subset and (held := _tensors(dataset.dataset)) is not None:
        rows = [int(row) for row in dataset.indices]
        if all(-len(held[0]) <= row < len(held[0]) for row in rows):  # else reading it says which one is not there
            return held[0][rows], held[1][rows]
    if type(dataset) is ConcatDataset:
        parts = [_tensors(part) for part in dataset.datasets]
        whole = [part for part in parts if part is not None]
        if len(whole) == len(parts) and len({(x.shape[1:], x.dtype, y.shape[1:], y.dtype) for x, y in whole}) == 1:
            return torch.cat([x for x, _ in whole]), torch.cat([y for _, y in whole])
    return None


def class_names(dataset: Any) -> list[str] | None:
    """Return the names of the classes that a torch data set knows (torchvision's `classes`), also inside a `Subset`."""
    while not hasattr(dataset, "classes") and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    names = getattr(dataset, "classes", None)
    if isinstance(names, (list, tuple)) and names and all(isinstance(name, str) for name in names):
        return list(names)
    return None


def _empty() -> DatasetError:
    return DatasetError("dataset", "is empty: a device needs at least 1 sample to take part")


def _from_source(source: Any, cache: bool, how: sources.Reading = sources.PLAIN) -> Samples:
    try:
        size = len(source)
    except Exception as error:
        what = f"its length cannot be told: {type(error).__name__}: {error}"
        raise DatasetError("dataset", f"{what}; pass a map-style Dataset with __len__ and __getitem__") from error
    if size == 0:
        raise _empty()
    if not cache:
        looked = sources.look(source, size, how)
        return Samples(size, source=source, looked=looked)
    rows = [range(at, min(at + _READ_BATCH, size)) for at in range(0, size, _READ_BATCH)]
    parts = [sources.read(source, each, 0, how) for each in rows]
    return _paired(named.joined([inputs for inputs, _ in parts], torch.cat), torch.cat([labels for _, labels in parts]))


class _Rows:
    """A pair of arrays too large to be copied whole, such as a file mapped into memory, read row by row."""

    def __init__(self, inputs: Any, labels: Tensor):
        self._inputs, self._labels = inputs, labels

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, row: int) -> tuple[Any, Tensor]:
        inputs = self._inputs
        if isinstance(inputs, Named):
            return Named({name: value[row] for name, value in inputs.items()}), self._labels[row]
        return inputs[row], self._labels[row]


def _pair(x: Any, y: Any) -> Samples:
    if isinstance(x, np.ndarray) and not x.flags.writeable and x.nbytes > sources.LOOK_BYTES:
        labels = arrays.tensor(y, "labels")
        _check_pair(len(x), labels)
        return _from_source(_Rows(x, labels), cache=False)
    return _paired(named.taken(x), arrays.tensor(y, "labels"))


def _paired(inputs: Inputs, labels: Tensor) -> Samples:
    if any(value.ndim == 0 or len(value) == 0 for _, value in named.parts(inputs)):
        raise _empty()
    _check_pair(named.count(inputs), labels)
    return Samples(named.count(inputs), inputs, labels)


def _check_pair(size: int, labels: Tensor) -> None:
    if labels.ndim == 0:
        raise DatasetError("labels", f"are one number for {size} inputs; pair them one to one")
    if size != len(labels):
        raise DatasetError("labels", f"there are {len(labels)} labels for {size} inputs; pair them one to one")
