"""Networks whose units have changed places."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.chains import Chain

State = dict[str, NDArray[Any]]


def permuted(chain: Chain, state: Mapping[str, NDArray[Any]], seed: int) -> State:
    """Return the network with the units of every layer but the last in another order."""
    draw = np.random.default_rng(seed)
    result: State = {}
    before: NDArray[np.int64] | None = None
    for layer in chain.layers:
        last = layer is chain.layers[-1]
        order = np.arange(layer.units) if last else draw.permutation(layer.units)
        for name, view in layer.tensors.items():
            values = np.take(state[name].reshape(view.shape), order, axis=view.units)
            if view.inputs is not None and before is not None:
                values = np.take(values, before, axis=view.inputs)
            if view.recurrent is not None:
                values = np.take(values, order, axis=view.recurrent)
            result[name] = np.ascontiguousarray(values).reshape(state[name].shape)
        before = order
    return result
