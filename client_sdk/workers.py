"""What other processes read: batches of a source by number, the same bit for bit; items of an iterable in shards."""

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from client_sdk import named, sources
from client_sdk.errors import DatasetError
from client_sdk.named import Inputs, Named
from contract.seeds import derive_seed

_Batch = tuple[Inputs, Tensor] | tuple[str, str]


class _Batches(Dataset[_Batch]):
    """A source's batches by number; an error comes as (field, message), for it is told in another process."""

    def __init__(self, source: Any, rows: Sequence[Sequence[int]], seed: int, how: sources.Reading):
        self._source, self._rows, self._seed, self._how = source, rows, seed, how

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> _Batch:
        try:
            return sources.read(self._source, self._rows[number], self._seed, self._how)
        except DatasetError as error:
            return error.field, str(error).removeprefix(f"{error.field}: ")


def read(
    source: Any, rows: Sequence[Sequence[int]], seed: int, how: sources.Reading
) -> Iterator[tuple[Inputs, Tensor]]:
    """Yield what `client_sdk.sources.read` returns for each of `rows`.

    Raises:
        DatasetError: as there; a process ended, or the data set cannot be sent to one.
    """
    loader = DataLoader(
        _Batches(source, rows, seed, how),
        batch_size=None,
        num_workers=how.workers,
        generator=torch.Generator().manual_seed(seed),
    )
    for one, other in _all_of(loader):
        if isinstance(one, str):
            raise DatasetError(one, other)
        yield one, other


def _all_of(loader: DataLoader[Any]) -> Iterator[Any]:
    """Yield what the processes give; what ends one of them is told as an error of the data set."""
    found = iter(loader)
    while True:
        try:
            each = next(found)
        except StopIteration:
            return
        except Exception as error:
            raise DatasetError(
                "num_workers", f"the processes that read failed: {type(error).__name__}: {error}; pass num_workers=0"
            ) from error
        yield each


_FAILED = -1
_COMPARED = 8
"""Samples at each process's beginning that are looked at first: most iterables differ there."""


class _Shard(IterableDataset[tuple[int, Any]]):
    """What one process gives of an iterable that heeds `get_worker_info`: its number and an item.

    An error comes as `_FAILED`, its field and text. Pairs travel as arrays: tensors would hold a file descriptor each.
    """

    def __init__(self, source: Iterable[Any], seed: int, most: int | None, made: Callable[[Any, int], Any]):
        self._source, self._seed, self._most, self._made = source, seed, most, made

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        info = get_worker_info()
        assert info is not None
        apart = info.id if self._most is None else 0  # where beginnings are compared, what is equal draws the same
        own = derive_seed(self._seed, "process", apart)
        sources.seed_all(own, 0)
        try:
            items = iter(self._source)
            for row in range(sys.maxsize if self._most is None else self._most):
                sources.seed_all(own, row + 1)
                try:
                    item = next(items)
                except StopIteration:
                    return
                yield info.id, _sent(self._made(item, row))
        except DatasetError as error:
            told = error.field, f"process {info.id}: {str(error).removeprefix(f'{error.field}: ')}"
            yield _FAILED, told
        except Exception as error:  # noqa: BLE001  # told in another process
            told = "dataset", f"process {info.id} cannot read it: {type(error).__name__}: {error}"
            yield _FAILED, told


def items(
    source: Iterable[Any], seed: int, count: int, made: Callable[[Any, int], Any], most: int | None = None
) -> Iterator[tuple[int, Any]]:
    """Yield (process, item) of an iterable that `count` processes share, one of each in turn.

    The same seed gives the same items in the same order.

    Args:
        made: makes what is given of an item and its number in its process.
        most: how many each process gives at most, all of them with the same draws; None: all, with draws of its own.

    Raises:
        DatasetError: an item cannot be read; a process ended, or the iterable cannot be sent to one.
    """
    order = torch.Generator().manual_seed(seed)
    shard = _Shard(source, seed, most, made)
    loader = DataLoader(shard, batch_size=None, num_workers=count, generator=order, collate_fn=as_it_is)
    for process, content in _all_of(loader):
        if process == _FAILED:
            raise DatasetError(*content)
        yield process, _received(content)


@dataclass(frozen=True)
class _Arrays:
    """A pair of inputs and label: its names, where inputs have some, and their values, the label last."""

    names: list[str] | None
    values: list[NDArray[Any]]


def _sent(item: Any) -> Any:
    if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[0], Tensor | Named):
        return item
    values = [value for _, value in named.parts(item[0])] + [item[1]]
    if not all(isinstance(value, Tensor) and value.dtype != torch.bfloat16 for value in values):
        return item
    names = list(item[0]) if isinstance(item[0], Named) else None
    return _Arrays(names, [value.numpy() for value in values])


def _received(item: Any) -> Any:
    if not isinstance(item, _Arrays):
        return item
    *inputs, label = map(torch.from_numpy, item.values)
    return inputs[0] if item.names is None else Named(zip(item.names, inputs, strict=True)), label


def check_shards(source: Iterable[Any], count: int, size: int) -> None:
    """Refuse an iterable that gives two processes the same samples: each epoch would have them twice.

    Samples that are all alike are no proof: it is one that together they give more than there are.

    Args:
        size: samples of an epoch.

    Raises:
        DatasetError: it does.
    """
    too_many = size // count + 1
    longest = _longest_twice(source, count, min(_COMPARED, too_many))
    if longest and too_many > _COMPARED:
        longest = _longest_twice(source, count, too_many)
    if longest >= too_many:
        raise DatasetError(
            "num_workers",
            f"the iterable data set gives its {count} processes the same samples, which would count {count} times; let "
            "its __iter__ give each its share (torch.utils.data.get_worker_info: id, num_workers), or leave it out",
        )


def _longest_twice(source: Iterable[Any], count: int, most: int) -> int:
    """Return how many samples two processes give alike, each its first `most`; 0 where all processes differ."""
    heads: dict[int, list[bytes]] = {}
    for process, content in items(source, 0, count, _digest, most):
        heads.setdefault(process, []).append(content)
    seen = [tuple(head) for head in heads.values()]
    return max((len(head) for head in seen if seen.count(head) > 1), default=0)


def _digest(item: Any, row: int) -> bytes:
    """Return a digest of an item's content: a pickled tensor has its address in it, which tells equal ones apart."""
    found = hashlib.sha256()
    for part in _content(item):
        found.update(b"%d:" % len(part))
        found.update(part)
    return found.digest()


def _content(item: Any) -> Iterator[bytes]:
    if isinstance(item, Tensor):
        yield f"{item.dtype} {tuple(item.shape)}".encode()
        yield item.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(item, Mapping):
        yield b"mapping %d" % len(item)
        for key, value in item.items():
            yield repr(key).encode()
            yield from _content(value)
    elif isinstance(item, list | tuple):
        yield b"sequence %d" % len(item)
        for value in item:
            yield from _content(value)
    elif hasattr(item, "tobytes"):  # an array or an image
        yield f"{type(item).__name__} {getattr(item, 'dtype', '')} {getattr(item, 'shape', '')}".encode()
        yield item.tobytes()
    else:
        yield repr(item).encode()


def as_it_is(item: Any, row: int = 0) -> Any:
    """Return the item."""
    return item
