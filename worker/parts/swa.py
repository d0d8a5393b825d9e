"""Stochastic weight averaging: the equal-weight mean of snapshots (Izmailov et al. 2018; FedBE 5.1). float64."""

from collections.abc import Mapping

import numpy as np

from contract.tensors import Array
from worker.parts.arrays import Float, finite
from worker.parts.errors import PartError


class RunningMean:
    """The mean of snapshots of a whole state, taken one at a time.

    Floating tensors are averaged in float64; the others are the last snapshot's. BatchNorm's running statistics must be
    computed anew afterwards: they belong to no average of weights.
    """

    def __init__(self) -> None:
        self.count = 0
        self._means: dict[str, Float] = {}
        self._last: dict[str, Array] = {}

    def add(self, state: Mapping[str, Array]) -> None:
        """Take a snapshot; the arrays are copied.

        Raises:
            PartError: schema_mismatch (other tensors than before), non_finite.
        """
        layout = {name: (array.shape, array.dtype) for name, array in state.items()}
        if self.count and layout != {name: (array.shape, array.dtype) for name, array in self._last.items()}:
            raise PartError("schema_mismatch", "a snapshot has other tensors than the one before")
        self._last = {name: array.copy() for name, array in state.items()}
        self.count += 1
        for name, array in state.items():
            if array.dtype.kind in "iub":
                continue
            wide = finite(f"tensor {name!r}", array.astype(np.float64))
            if name in self._means:
                self._means[name] += (wide - self._means[name]) / self.count
            else:
                self._means[name] = wide

    def state(self) -> dict[str, Array]:
        """Return what `restore` needs, together with `count`."""
        means = {f"mean.{name}": array for name, array in self._means.items()}
        return means | {f"last.{name}": array for name, array in self._last.items()}

    def restore(self, count: int, state: Mapping[str, Array]) -> None:
        """Go on from a state that `state` gave."""
        self.count = count
        self._means = {name[5:]: array for name, array in state.items() if name.startswith("mean.")}
        self._last = {name[5:]: array for name, array in state.items() if name.startswith("last.")}

    def result(self) -> dict[str, Array]:
        """Return the mean, in the snapshots' dtypes.

        Raises:
            PartError: nothing_collected.
        """
        if not self.count:
            raise PartError("nothing_collected", "no snapshot was taken; train longer, or start earlier")
        return {
            name: self._means[name].astype(array.dtype) if name in self._means else array.copy()
            for name, array in self._last.items()
        }
