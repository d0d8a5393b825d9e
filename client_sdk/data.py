"""A device's data set: taken in, checked against the task, cut into batches.

Taken are a torch `Dataset` of ``(x, y)``, a pair of arrays, or a path: ``.npz`` with `x` and `y`, ``.safetensors``
with `inputs` and `labels`. Up to 1 GiB is held in memory; a larger `Dataset`, and one that answers the same index
differently each time (random augmentation), is read through a `DataLoader`, batch by batch, in a seeded order.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from client_sdk.errors import DatasetError
from contract.tensors import TensorError
from contract.wire.federations import Task

MATERIALISE_BYTES = 1 << 30
_READ_BATCH = 256
_FORMS = "pass a torch Dataset of (x, y), a pair of arrays (x, y), or a path to a .npz or .safetensors file"


@dataclass
class Samples:
    """N samples: `inputs` [N, *shape] and `labels` [N] in memory, or a `source` to read them from.

    `task` is None until `check` has passed; from then on batches have the task's dtypes. `classes` are the names of the
    classes in the order of the labels, where they are known.
    """

    size: int
    inputs: Tensor | None = None
    labels: Tensor | None = None
    source: Any = None
    task: Task | None = None
    classes: list[str] | None = None

    def __len__(self) -> int:
        return self.size

    def check(self, task: Task) -> None:
        """Refuse samples that are not what `task` asks for, before anything is trained.

        A data set that is read batch by batch is checked by its first sample here, and by each batch as it comes.

        Raises:
            DatasetError: naming the field, the value and the remedy.
        """
        _check_classes(self.classes, task.classes)
        if self.inputs is not None and self.labels is not None:
            self.inputs, self.labels = _conform(self.inputs, self.labels, task)
        else:
            _conform(*_stack([self.source[0]]), task)
        self.task = task

    def batches(self, size: int, order: torch.Generator, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield one epoch of ``(inputs [B, *shape], labels [B])`` on `device`, shuffled by `order`.

        Every sample comes once. A last batch of one joins the batch before it: BatchNorm has no statistics for one.
        """
        yield from self.read(cut(torch.randperm(self.size, generator=order), size), device)

    def steps(self, size: int) -> int:
        """Return how many batches an epoch has."""
        return len(cut(torch.arange(self.size), size))

    def read(self, rows: list[Tensor], device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield ``(inputs [B, *shape], labels [B])`` on `device` for each row of indices [B]."""
        if self.inputs is not None and self.labels is not None:
            inputs, labels = self.inputs.to(device), self.labels.to(device)
            for index in rows:
                index = index.to(device)
                yield inputs[index], labels[index]
            return
        assert self.task is not None
        loader = DataLoader(self.source, batch_sampler=[row.tolist() for row in rows], collate_fn=_stack)
        for x, y in loader:
            x, y = _conform(x, y, self.task)
            yield x.to(device), y.to(device)


def cut(order: Tensor, size: int) -> list[Tensor]:
    """Cut indices [N] into batches of `size`; a remainder of one joins the batch before it."""
    rows = [order[at : at + size] for at in range(0, len(order), size)]
    if len(rows) > 1 and size > 1 and len(rows[-1]) == 1:
        rows[-2:] = [torch.cat(rows[-2:])]
    return rows


def load(dataset: Any, classes: Sequence[str] | None = None) -> Samples:
    """Take in what the user passed to `train_and_push`. Needs no network and no task.

    Args:
        dataset: the data.
        classes: names of the classes in the order of the labels; by default those that a torch data set knows.

    Raises:
        DatasetError: it is empty, has another form, or inputs and labels do not belong together.
    """
    samples = _load(dataset)
    if classes is not None:
        samples.classes = [str(name) for name in classes]
    return samples


def _load(dataset: Any) -> Samples:
    if isinstance(dataset, Samples):
        return dataset
    if isinstance(dataset, (str, Path)):
        dataset = _read_file(Path(dataset))
    if isinstance(dataset, (tuple, list)):
        if len(dataset) != 2:
            raise DatasetError("dataset", f"a {type(dataset).__name__} of {len(dataset)} is no pair (x, y); {_FORMS}")
        return _paired(_tensor(dataset[0], "inputs"), _tensor(dataset[1], "labels"))
    if isinstance(dataset, IterableDataset):
        raise DatasetError("dataset", "an IterableDataset has no length and no order; pass a map-style Dataset")
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise DatasetError("dataset", f"cannot read a {type(dataset).__name__}; {_FORMS}")
    samples = _from_source(dataset)
    samples.classes = _names(dataset)
    return samples


def _names(dataset: Any) -> list[str] | None:
    """Return the names of the classes that a torch data set knows (torchvision's `classes`), also inside a `Subset`."""
    while not hasattr(dataset, "classes") and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    names = getattr(dataset, "classes", None)
    if isinstance(names, (list, tuple)) and names and all(isinstance(name, str) for name in names):
        return list(names)
    return None


def _check_classes(mine: list[str] | None, wanted: list[str] | None) -> None:
    """Refuse labels that mean something else than those of the other devices, before anything is trained."""
    if wanted is None or mine == wanted:
        return
    shown = f"the federation's are {_short(wanted)}"
    if mine is None:
        raise DatasetError("classes", f"{shown}; pass classes=[...], the names in the order of your labels")
    raise DatasetError(
        "classes",
        f"yours are {_short(mine)}, {shown}; renumber your labels to that order, then pass classes=[...] in that order",
    )


def _short(names: list[str]) -> str:
    return ", ".join(names[:20]) + (f", … ({len(names)})" if len(names) > 20 else "")


def _empty() -> DatasetError:
    return DatasetError("dataset", "is empty: a device needs at least 1 sample to take part")


def _from_source(source: Any) -> Samples:
    size = len(source)
    if size == 0:
        raise _empty()
    first, again = _stack([source[0]]), _stack([source[0]])
    constant = all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    if not constant or first[0].nbytes * size > MATERIALISE_BYTES:
        return Samples(size, source=source)
    starts = range(0, size, _READ_BATCH)
    batches = [_stack([source[row] for row in range(at, min(at + _READ_BATCH, size))]) for at in starts]
    return _paired(torch.cat([inputs for inputs, _ in batches]), torch.cat([labels for _, labels in batches]))


def _paired(inputs: Tensor, labels: Tensor) -> Samples:
    if inputs.ndim == 0 or len(inputs) == 0:
        raise _empty()
    if labels.ndim != 1:
        raise DatasetError(
            "labels",
            f"have shape {list(labels.shape)}; one whole number per sample is needed, shape [{len(inputs)}]"
            + ("; one-hot labels become that by argmax(1)" if labels.ndim == 2 and labels.shape[1] > 1 else ""),
        )
    if len(inputs) != len(labels):
        raise DatasetError("labels", f"there are {len(labels)} labels for {len(inputs)} inputs; pair them one to one")
    return Samples(len(inputs), inputs, labels)


def _tensor(values: Any, field: str) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach().to("cpu")
    try:
        array = np.asarray(values)
        if array.dtype.byteorder == ">":
            array = array.astype(array.dtype.newbyteorder("<"))
        return torch.from_numpy(np.ascontiguousarray(array))
    except (TypeError, ValueError) as error:
        raise DatasetError(field, f"cannot be turned into one array of numbers: {error}") from error


def _stack(pairs: list[Any]) -> tuple[Tensor, Tensor]:
    """Turn samples ``(x, y)`` into inputs [B, *shape] and labels [B]."""
    inputs, labels = [], []
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise DatasetError("dataset", f"an item is a {type(pair).__name__}, not a pair (x, y) of input and label")
        inputs.append(_tensor(pair[0], "inputs"))
        labels.append(_tensor(pair[1], "labels"))
    if len({(tuple(x.shape), x.dtype) for x in inputs}) > 1:
        raise DatasetError("inputs", "samples differ in shape or type; bring them to one shape in the Dataset")
    if any(y.numel() != 1 for y in labels):
        raise DatasetError("labels", "a label has several values; one whole number per sample is needed")
    return torch.stack(inputs), torch.stack([y.reshape(()) for y in labels])


_NAMES = (("inputs", "labels"), ("x", "y"))


def _read_file(path: Path) -> tuple[Any, Any]:
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
    except (OSError, ValueError, TensorError) as error:
        raise DatasetError("dataset", f"{path}: cannot be read: {error}") from error


def _pair(names: Collection[str]) -> tuple[str, str]:
    """Return how this file calls samples and labels; KeyError with what there is instead."""
    for inputs, labels in _NAMES:
        if inputs in names and labels in names:
            return inputs, labels
    raise KeyError(", ".join(sorted(names)) or "nothing")


def _read_npz(path: Path) -> tuple[Any, Any]:
    with np.load(path, allow_pickle=False) as arrays:
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


def _conform(inputs: Tensor, labels: Tensor, task: Task) -> tuple[Tensor, Tensor]:
    """Return the samples in the task's dtypes, or say what is wrong with them."""
    _check_shape(inputs, task)
    wanted = task.input.dtype
    if wanted == "float32":
        if not inputs.is_floating_point():
            raise DatasetError(
                "inputs",
                f"are {_dtype(inputs)}, wanted is float32. They are not rescaled silently: convert them as all "
                "devices of the federation do, for bytes of an image usually x.astype('float32') / 255",
            )
        inputs = inputs.to(torch.float32)
        if not torch.isfinite(inputs).all():
            row = int((~torch.isfinite(inputs)).flatten(1).any(1).nonzero()[0])
            raise DatasetError("inputs", f"sample {row} has a value that is NaN or infinite; repair or drop it")
    else:
        if inputs.is_floating_point() or inputs.is_complex() or inputs.dtype == torch.bool:
            raise DatasetError("inputs", f"are {_dtype(inputs)}, wanted are whole numbers (int64), such as token ids")
        inputs = inputs.to(torch.int64)
    return inputs, _conform_labels(labels, task)


def _check_shape(inputs: Tensor, task: Task) -> None:
    have, want = list(inputs.shape[1:]), task.input.shape
    if have == want:
        return
    same_size = inputs[0].numel() == torch.Size(want).numel()
    channels_last = len(have) == 3 and [have[2], have[0], have[1]] == want
    if channels_last:
        remedy = "the channels come last: use x.permute(0, 3, 1, 2) (numpy: transpose)"
    elif same_size:
        remedy = f"reshape them: x.reshape(-1, {', '.join(map(str, want))})"
    else:
        remedy = "resize or crop them as all devices of the federation do"
    raise DatasetError("inputs", f"one sample has shape {have}, wanted is {want}; {remedy}")


def _conform_labels(labels: Tensor, task: Task) -> Tensor:
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise DatasetError("labels", f"are {_dtype(labels)}, wanted are whole numbers; use y.astype('int64')")
    labels = labels.to(torch.int64)
    wrong = (labels < 0) | (labels >= task.num_classes)
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise DatasetError(
            "labels",
            f"sample {row} has label {int(labels[row])}; the federation's {task.num_classes} classes are "
            f"0 to {task.num_classes - 1}; map your classes to these numbers",
        )
    return labels


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
