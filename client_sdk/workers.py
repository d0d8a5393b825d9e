"""Batches of a source read by other processes, in the order in which they are wanted and the same bit for bit."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from client_sdk import sources
from client_sdk.errors import DatasetError

_Batch = tuple[Tensor, Tensor] | tuple[str, str]


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
) -> Iterator[tuple[Tensor, Tensor]]:
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
    batches = iter(loader)
    while True:
        try:
            one, other = next(batches)
        except StopIteration:
            return
        except Exception as error:
            raise DatasetError(
                "num_workers", f"the processes that read failed: {type(error).__name__}: {error}; pass num_workers=0"
            ) from error
        if isinstance(one, str):
            raise DatasetError(one, other)
        yield one, other
