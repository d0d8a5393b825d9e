"""Samples in memory: what data sets are read into, split into and written from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.tensors import write_file

Inputs = NDArray[Any]
Labels = NDArray[Any]
"""Of N samples, as their kind of task has them (`contract.tasks`): class numbers [N], or [N, ...]."""
Strata = NDArray[np.int64]
"""Which of S groups each sample belongs to, [N]: what is split evenly and dealt unevenly."""
Users = NDArray[Any]
"""Whose a sample is, [N]: names or numbers."""


@dataclass(frozen=True)
class Samples:
    """Inputs [N, *shape], float32 in [0, 1] or int64 token ids, labels [N, ...] and, where it is known, users [N].

    `strata` [N] are None where samples are split and dealt by their class numbers.
    """

    inputs: Inputs
    labels: Labels
    users: Users | None = None
    strata: Strata | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Sequence[int]) -> "Samples":
        """Return the samples at these positions."""
        users = None if self.users is None else self.users[indices]
        strata = None if self.strata is None else self.strata[indices]
        return Samples(self.inputs[indices], self.labels[indices], users, strata)

    @property
    def dealt_by(self) -> Strata:
        """What they are split and dealt by."""
        return np.asarray(self.labels if self.strata is None else self.strata, np.int64)

    def save(self, path: Path, labelled: bool = True) -> Path:
        """Write a safetensors file with `inputs` and, if `labelled`, `labels`."""
        inputs = np.ascontiguousarray(self.inputs)
        write_file(path, {"inputs": inputs, "labels": self.labels} if labelled else {"inputs": inputs})
        return path
