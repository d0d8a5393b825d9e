"""A data set that is handed on as it is: the device reads it only where the plan has it do so."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from client_sdk import data, fitting
from client_sdk.data import Samples
from client_sdk.errors import DatasetError, UsageError
from client_sdk.named import Inputs
from contract.wire.federations import Task


class Handed(Samples):
    """Samples of a device whose training is its user's own: a number, and what was passed.

    Args:
        opens: reads what was passed as `client_sdk.data.load` does.
        size: how many samples there are.
        classes: names of the classes in the order of the labels, where they are known.
    """

    def __init__(self, opens: Callable[[], Samples], size: int, classes: Sequence[str] | None = None):
        super().__init__(size, classes=None if classes is None else [str(name) for name in classes])
        self._opens, self._opened = opens, None

    _opened: Samples | None

    def check(self, task: Task) -> None:
        """Note the task; only names of classes are held against it."""
        fitting.check_classes(self.classes, task.classes)
        self.task = task

    def opened(self, what: str) -> Samples:
        """Return the samples as the device reads them, checked against the task.

        Args:
            what: why they are read, for the message.

        Raises:
            UsageError: they cannot be read so.
        """
        assert self.task is not None
        if self._opened is None:
            try:
                samples = self._opens()
                samples.check(self.task)
            except DatasetError as error:
                raise UsageError(
                    f"train: {what} has the device read the data set itself, whatever trains: {error}"
                ) from error
            self._opened = samples
        return self._opened if self.dtype is None else self._opened.given_as(self.dtype)

    def given_as(self, dtype: torch.dtype) -> Samples:
        """Return these samples with floating inputs of another dtype."""
        made = Handed(self._opens, self.size, self.classes)
        made.task, made.dtype, made._opened = self.task, dtype, self._opened
        return made

    def steps(self, size: int) -> int | None:
        """Return None: nobody knows how many steps a function takes."""
        return None

    def batches(self, size: int, order: torch.Generator, device: torch.device) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield an epoch as `Samples.batches` does."""
        return self.opened(_PLAN).batches(size, order, device)

    def read(
        self, rows: list[Tensor], device: torch.device, seed: int = 0, *, trained: bool = False
    ) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield batches as `Samples.read` does."""
        return self.opened(_PLAN).read(rows, device, seed, trained=trained)

    def __len__(self) -> int:
        return self.size


_PLAN = "this federation"


def handed(
    dataset: Any, num_samples: int | None, classes: Sequence[str] | None, opens: Callable[[], Samples]
) -> Handed:
    """Take in what a function of the user's is handed.

    Args:
        num_samples: how many there are, where the data set has no length.

    Raises:
        DatasetError, UsageError: nobody knows how many samples there are, or there are none.
    """
    known = data.class_names(dataset)
    if num_samples is None:
        try:
            num_samples = _length(dataset)
        except Exception as error:
            raise UsageError(
                f"num_samples: a {type(dataset).__name__} has no length; pass num_samples=, how many samples it has"
            ) from error
    if isinstance(num_samples, bool) or num_samples < 1:
        raise DatasetError("dataset", f"has {num_samples} samples; a device needs at least 1 to take part")
    return Handed(opens, int(num_samples), known if classes is None else classes)


def _length(dataset: Any) -> int:
    if isinstance(dataset, Mapping) and not hasattr(dataset, "column_names"):  # a dict of columns
        return len(next(iter(dataset.values())))
    return len(dataset[0]) if _is_pair(dataset) else len(dataset)


def _is_pair(dataset: Any) -> bool:
    return isinstance(dataset, (tuple, list)) and len(dataset) == 2 and hasattr(dataset[0], "__len__")
