"""A data set that can only be gone through, with a length that was declared: an epoch is one way through it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from client_sdk import fitting, forms, named, sources, workers
from client_sdk.data import Samples, cut
from client_sdk.errors import DatasetError, PotstillError
from client_sdk.named import Inputs

_LOOK_AT = 256


def stream(
    source: Iterable[Any], columns: forms.Columns | None, size: int, cache: bool, how: sources.Reading
) -> Samples:
    """Take in an iterable that gives `size` samples whenever it is gone through; `cache` holds what it gives now.

    Raises:
        DatasetError: a sample cannot be read, or there are fewer.
    """
    count = size if cache else min(size, _LOOK_AT)
    with _items(source, columns, 0, replace(how.plain(), workers=0)) as items:
        inputs, labels = items.take(count, 0, size)
    if cache:
        return Samples(size, inputs, labels, how=how)
    first, not_finite = named.changed(inputs, lambda value: value[:1]), named.first_not_finite(inputs)
    looked = sources.Looked(list(range(count)), labels, first, not_finite, whole=False)
    return Stream(size, source=(source, columns), looked=looked, how=how)


class Stream(Samples):
    """Samples in the order in which an iterable gives them, which is anew for each epoch.

    Nothing is shuffled but by the iterable itself. What it draws at random is seeded by epoch and batch, as a
    `Dataset`'s is by epoch and sample.
    """

    def some(self, count: int) -> Samples:
        """Return the first samples, at most `count` of them, in memory."""
        count = min(count, self.size)
        inputs, labels = next(
            self._stored([torch.arange(count)], torch.device("cpu"), 0, replace(self.how.plain(), workers=0))
        )
        return Samples(count, inputs, labels, None, self.task, self.classes, None, self.dtype, self.how)

    def batches(self, size: int, order: torch.Generator, device: torch.device) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield one epoch in the iterable's order; what it draws at random follows from `order`."""
        seed = sources.seed_of(order)
        torch.rand(1, generator=order)  # the next epoch's seed is another one
        yield from self.read(cut(torch.arange(self.size), size), device, seed, trained=True)

    def _stored(
        self, rows: list[Tensor], device: torch.device, seed: int, how: sources.Reading
    ) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield batches of the first samples, in their order.

        Raises:
            DatasetError: others are asked for; there are fewer than were declared; a sample does not fit.
        """
        if rows and not torch.equal(torch.cat(rows), torch.arange(sum(map(len, rows)))):
            raise DatasetError(
                "dataset",
                "samples are drawn at random here (local.privacy, or the objective), and an iterable data set has an "
                "order of its own; pass a map-style Dataset",
            )
        assert self.task is not None
        source, columns = self.source
        with _items(source, columns, seed, how) as items:
            for index in rows:
                which = index.tolist()
                inputs, labels = items.take(len(which), which[0], self.size)
                x, y = fitting.conform(inputs, labels, self.task, which)
                yield named.changed(x, lambda value: value.to(device)), y.to(device)


class _Items:
    """The items of one way through an iterable, read a batch at a time under generators of its own."""

    def __init__(self, source: Iterable[Any], columns: forms.Columns | None, seed: int, how: sources.Reading):
        self._made: Callable[[Any, int], Any] = partial(_made, columns=columns, how=how)
        self._seed, self._how = seed, how
        self._items: Iterator[Any]
        with sources.generators_kept():
            sources.seed_all(seed, 0)
            if how.workers:
                shared = workers.items(source, seed, how.workers, self._made)
                self._items, self._made = (item for _, item in shared), workers.as_it_is
            else:
                self._items = iter(source)

    def take(self, count: int, at: int, size: int) -> tuple[Inputs, Tensor]:
        """Return inputs [count, *shape] and labels [count, ...] of the next items; `at` of `size` were there before."""
        found: list[Any] = []
        with sources.generators_kept():
            sources.seed_all(self._seed, at + 1)
            for row in range(at, at + count):
                try:
                    item = next(self._items)
                except StopIteration:
                    raise DatasetError(
                        "dataset",
                        f"ended after {row} of the {size} samples that were declared; pass num_samples={row}, or "
                        "let it give as many in every epoch",
                    ) from None
                except PotstillError:
                    raise
                except Exception as error:
                    raise DatasetError(
                        "dataset", f"sample {row} cannot be read: {type(error).__name__}: {error}"
                    ) from error
                found.append(self._made(item, row))
            return sources.batch(found, range(at, at + count), self._how)

    def close(self) -> None:
        """End a generator that was not read to its end."""
        close = getattr(self._items, "close", None)
        if close is not None:
            close()


def _made(item: Any, row: int, columns: forms.Columns | None, how: sources.Reading) -> Any:
    """Return an item as the pair of its tensors, or what `collate` is given of it."""
    if columns is not None and isinstance(item, Mapping):
        item = forms.pair(item, columns, row)
    return item if how.collate is not None else sources.augmented(sources.item(item, row), row, how)


@contextmanager
def _items(
    source: Iterable[Any], columns: forms.Columns | None, seed: int, how: sources.Reading = sources.PLAIN
) -> Iterator[_Items]:
    """Yield one way through a source."""
    items = _Items(source, columns, seed, how)
    try:
        yield items
    finally:
        items.close()
