"""A data set that is read item by item: each read is seeded, so that what it draws at random can be drawn again.

Augmentation draws from the generators of Python, numpy and torch. They are seeded by round, epoch and item before an
item is read, and are afterwards as they were.
"""

import hashlib
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from client_sdk import arrays, forms, named
from client_sdk.errors import DatasetError, PotstillError
from client_sdk.named import Inputs, Named
from contract.nn.seeding import turn
from contract.seeds import derive_seed

LOOK_BYTES = 1 << 30
"""Of a data set above this size some samples are looked at before the device joins, of others all."""
LOOK_SECONDS = 60.0
"""So long a device looks at samples before it joins."""
_LOOK_AT = 256
_READ_BATCH = 64
NOT_A_PAIR = "not a pair (x, y) of input and label"


@dataclass(frozen=True)
class Looked:
    """What was seen of a source before anything is trained.

    Attributes:
        rows: which samples.
        labels: theirs, as they are [rows, ...].
        first: the first sample's input, [1, *shape].
        not_finite: the first sample with a NaN or an infinite value.
        whole: whether these are all samples.
    """

    rows: list[int]
    labels: Tensor
    first: Inputs
    not_finite: int | None
    whole: bool


def seed_of(order: torch.Generator) -> int:
    """Return a seed for what `order` orders next, without drawing from it."""
    state = order.get_state().numpy().tobytes()
    return int.from_bytes(hashlib.sha256(state).digest()[:8], "big") >> 1


@contextmanager
def generators_kept() -> Iterator[None]:
    """Leave the process's generators of random numbers as they were before."""
    with turn:
        before = random.getstate(), np.random.get_state(), torch.get_rng_state()
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])
            torch.set_rng_state(before[2])


def seed_all(seed: int, row: int) -> None:
    """Seed the generators of Python, numpy and torch for what follows from a seed and a number."""
    own = derive_seed(seed, "item", row)
    random.seed(own)
    np.random.seed(own & 0xFFFFFFFF)
    torch.default_generator.manual_seed(own)


@dataclass(frozen=True)
class Reading:
    """How samples are read beyond ``source[row]``.

    Attributes:
        collate: makes (inputs [B, ...], labels [B, ...]), or a dict of the two, of a list of B items as they are.
        augment: makes another input of the shape of a sample's, when it is trained on; of several a dict of them.
        workers: processes that read beside the training.
    """

    collate: Callable[[list[Any]], Any] | None = None
    augment: Callable[[Any], Any] | None = None
    workers: int = 0

    def plain(self) -> "Reading":
        """Return how samples are read that are not trained on."""
        return replace(self, augment=None)


PLAIN = Reading()


def read(source: Any, rows: Sequence[int], seed: int, how: Reading = PLAIN) -> tuple[Inputs, Tensor]:
    """Return ``(inputs [B, *shape], labels [B, ...])`` of these rows, as they are.

    Raises:
        DatasetError: naming the sample that is not there, cannot be read, or is no pair like the others.
    """
    found: list[Any] = []
    with generators_kept():
        for row in rows:
            seed_all(seed, row)
            raw = _raw(source, row)
            found.append(raw if how.collate is not None else augmented(item(raw, row), row, how))
        if how.collate is not None:
            seed_all(seed, rows[0])
        return batch(found, rows, how)


def batch(found: list[Any], rows: Sequence[int], how: Reading) -> tuple[Inputs, Tensor]:
    """Return ``(inputs [B, *shape], labels [B, ...])`` of pairs, or of raw items where a `collate` makes these.

    Raises:
        DatasetError: as `read`.
    """
    if how.collate is None:
        return stacked(found, rows)
    inputs, labels = _collated(found, rows, how.collate)
    if how.augment is None:
        return inputs, labels
    each = (named.changed(inputs, partial(torch.select, dim=0, index=at)) for at in range(len(labels)))
    return stacked([augmented((x, y), row, how) for row, x, y in zip(rows, each, labels, strict=True)], rows)


def stacked(pairs: Sequence[tuple[Inputs, Tensor]], rows: Sequence[int]) -> tuple[Inputs, Tensor]:
    """Return pairs of input and label as ``(inputs [B, *shape], labels [B, ...])``.

    Raises:
        DatasetError: naming the first row that is not like the first one.
    """
    (first, first_label), at = pairs[0], rows[0]
    for row, (inputs, label) in zip(rows, pairs, strict=True):
        _check_alike(inputs, row, first, at)
        if label.shape != first_label.shape:
            raise DatasetError(
                "labels",
                f"sample {row} has labels of shape {list(label.shape)}, sample {at} of {list(first_label.shape)}; "
                "bring them to one shape, for classes to one whole number a sample",
            )
    return named.joined([inputs for inputs, _ in pairs], torch.stack), torch.stack([label for _, label in pairs])


def _collated(items: list[Any], rows: Sequence[int], collate: Callable[[list[Any]], Any]) -> tuple[Inputs, Tensor]:
    try:
        batch = collate(items)
    except Exception as error:
        raise DatasetError(
            "collate", f"failed on {len(items)} items from sample {rows[0]} on: {type(error).__name__}: {error}"
        ) from error
    if isinstance(batch, Mapping):
        batch = forms.pair(batch, None, rows[0])
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise DatasetError("collate", f"returned a {type(batch).__name__}; return (inputs, labels) of all items")
    inputs, labels = named.taken(batch[0], rows[0]), arrays.tensor(batch[1], "labels", rows[0])
    for name, part in (*named.parts(inputs), ("labels", labels)):
        if part.ndim == 0 or len(part) != len(items):
            raise DatasetError(
                "collate", f"returned {name} of shape {list(part.shape)} for {len(items)} items; one row each is needed"
            )
    return inputs, labels


def augmented(pair: tuple[Inputs, Tensor], row: int, how: Reading) -> tuple[Inputs, Tensor]:
    """Return a pair with its input augmented, where that is asked for.

    Raises:
        DatasetError: it failed, or made another shape.
    """
    inputs, label = pair
    if how.augment is None:
        return pair
    try:
        made = named.taken(how.augment(named.changed(inputs, torch.clone)), row)
    except PotstillError:
        raise
    except Exception as error:
        raise DatasetError("augment", f"failed on sample {row}: {type(error).__name__}: {error}") from error
    there, found = dict(named.parts(inputs)), dict(named.parts(made))
    if list(found) != list(there):
        raise DatasetError("augment", f"made {', '.join(found)} of sample {row}'s {', '.join(there)}; they are to stay")
    for field, value in there.items():
        if found[field].shape != value.shape:
            what = f"made shape {list(found[field].shape)} of sample {row}'s {list(value.shape)}"
            raise DatasetError("augment", f"{what}; the shape is to stay")
    if isinstance(inputs, Named) and isinstance(made, Named):
        return Named({name: made[name].to(value.dtype) for name, value in inputs.items()}), label
    return found["inputs"].to(there["inputs"].dtype), label


def look(source: Any, size: int, how: Reading = PLAIN) -> Looked:
    """Look at all samples of a source, or at some of one that is large or slow, and remember what matters.

    Raises:
        DatasetError: as `read`.
    """
    first, first_label = read(source, [0], 0, how)
    one = sum(value.nbytes for _, value in named.parts(first))
    whole = (one + first_label.nbytes) * size <= LOOK_BYTES
    rows = list(range(size)) if whole else sorted({step * (size - 1) // (_LOOK_AT - 1) for step in range(_LOOK_AT)})
    ends, seen, found, not_finite = time.monotonic() + LOOK_SECONDS, list[int](), list[Tensor](), None
    for chunk in (rows[at : at + _READ_BATCH] for at in range(0, len(rows), _READ_BATCH)):
        inputs, labels = read(source, chunk, 0, how)
        _check_alike(named.changed(inputs, _first), chunk[0], named.changed(first, _first), 0)
        bad = None if not_finite is not None else named.first_not_finite(inputs)
        not_finite = not_finite if bad is None else chunk[bad]
        seen += chunk
        found.append(labels)
        if time.monotonic() > ends:
            break
    kinds = sorted({str(labels.dtype).removeprefix("torch.") for labels in found})
    if len(kinds) > 1:
        raise DatasetError("labels", f"are of several types: {', '.join(kinds)}; use int(y) for all")
    return Looked(seen, torch.cat(found), first, not_finite, whole and len(seen) == size)


def _raw(source: Any, row: int) -> Any:
    try:
        return source[row]
    except PotstillError:
        raise
    except IndexError as error:
        raise DatasetError(
            "dataset",
            f"sample {row} is not there: reading it raised IndexError ({error}), and len(dataset) says {len(source)}",
        ) from error
    except Exception as error:
        raise DatasetError("dataset", f"sample {row} cannot be read: {type(error).__name__}: {error}") from error


def item(raw: Any, row: int) -> tuple[Inputs, Tensor]:
    """Return input and label of what a source gave.

    Raises:
        DatasetError: it is no pair of numbers.
    """
    inputs, label = _pair(raw, row)
    label = arrays.tensor(label, "labels", row)
    return named.taken(inputs, row), label.reshape(()) if label.numel() == 1 else label


def _pair(item: Any, row: int) -> tuple[Any, Any]:
    if isinstance(item, (tuple, list)) and len(item) == 2:
        return item[0], item[1]
    if isinstance(item, (tuple, list)):
        raise DatasetError(
            "dataset", f"sample {row} has {len(item)} parts, {NOT_A_PAIR}; return the two from the Dataset"
        )
    if isinstance(item, Mapping):
        return forms.pair(item, None, row)
    raise DatasetError("dataset", f"sample {row} is a {type(item).__name__}, {NOT_A_PAIR}")


def _first(value: Tensor) -> Tensor:
    return value[0]


def _check_alike(inputs: Inputs, row: int, first: Inputs, at: int) -> None:
    mine, others = dict(named.parts(inputs)), dict(named.parts(first))
    if mine.keys() != others.keys():
        raise DatasetError(
            "inputs", f"sample {row} has {', '.join(mine)}, sample {at} has {', '.join(others)}; give all the same"
        )
    for field, value in mine.items():
        _check_like(field, value, row, others[field], at)


def _check_like(field: str, value: Tensor, row: int, first: Tensor, at: int) -> None:
    if value.shape == first.shape and value.dtype == first.dtype:
        return
    what, mine, other = "shape", str(list(value.shape)), str(list(first.shape))
    if value.shape == first.shape:
        what, mine, other = "type", str(value.dtype), str(first.dtype)
    raise DatasetError(
        field, f"sample {row} has {what} {mine}, sample {at} has {other}; bring them to one {what} in the Dataset"
    )
