"""FedMA over a whole network: layer by layer, units are matched and averaged, the next layer's inputs moved along.

Wang et al. 2020, Alg. 1, at a width that stays as it is: a layer has room for as many units as the architecture gives
it. A unit whose tensors are all zero is asleep: it adds nothing to any output, and gradients leave it so. A model with
units that are asleep is thus a narrower network, and its layers can grow, up to the architecture's width, as in the
paper.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contract.chains import Chain, Layer, View
from contract.tensors import Array
from worker.parts.arrays import Float, finite, floats
from worker.parts.errors import PartError
from worker.parts.fedma.matching import Places, Prior, match, mean
from worker.parts.fuse import contributors

Read = Callable[[str, str], Array]
"""(client, name of a tensor) -> its values, of any shape that has as many as the chain's view."""


@dataclass(frozen=True)
class Order:
    """How a client's units of one layer lie in the global one.

    Attributes:
        places: [U], a permutation: the place of each unit; those that are asleep fill what the others leave.
        awake: [U] bool.
    """

    places: Places
    awake: NDArray[np.bool_]


@dataclass(frozen=True)
class FusedLayer:
    """One layer of the global model.

    Attributes:
        tensors: name -> values in float64, in the shape of the chain's view.
        orders: client -> its units.
        size: number of units that are awake, L.
    """

    tensors: dict[str, Float]
    orders: dict[str, Order]
    size: int


def fuse_layers(
    chain: Chain,
    read: Read,
    weights: Mapping[str, float],
    *,
    prior: Prior | None = None,
    sweeps: int = 5,
    frozen: int = 0,
    label_counts: Mapping[str, Array] | None = None,
) -> Iterator[FusedLayer]:
    """Yield the global model's layers, from the first to the last; memory is m times the largest layer.

    Clients that differ in the order of their units alone give the network they share, with the units in the order of
    the first client by name. The order in which clients are given changes nothing, bit for bit.

    Args:
        chain: the network.
        read: called for one layer after the other, for every client that counts.
        weights: client -> n_k, or 1 for FedMA's plain mean; a client of weight 0 is not read.
        prior, sweeps: see `match`.
        frozen: number of layers, from the first, that the clients left as they were sent: averaged unit by unit.
        label_counts: client -> samples of each class [C]; then class c of the last layer is averaged by them (Alg. 1),
            and by `weights` where no client has one.

    Raises:
        PartError: no_positive_weight, bad_weight, schema_mismatch, non_finite, bad_counts, bad_option.
    """
    names = sorted(weights)
    names = [names[index] for index in contributors([weights[name] for name in names])]
    before: dict[str, Order] = {}
    for index, layer in enumerate(chain.layers):
        tensors = {name: _tensors(layer, name, read, before.get(name)) for name in names}
        last = index == len(chain.layers) - 1
        if last or index < frozen:
            orders = {name: Order(np.arange(layer.units), _awake(layer, tensors[name]) | last) for name in names}
        else:
            orders = _matched(layer, tensors, prior, sweeps)
        counted: Mapping[str, float | Float] = {name: weights[name] for name in names}
        if last and label_counts is not None:
            counted = _by_class(names, label_counts, counted, layer.units)
        fused = _average(layer, tensors, orders, counted)
        size = int(np.logical_or.reduce([_at_places(order) for order in orders.values()]).sum())
        yield FusedLayer(fused, orders, size)
        before = orders


def _tensors(layer: Layer, client: str, read: Read, before: Order | None) -> dict[str, Array]:
    """Return a client's tensors of a layer as the chain sees them, their inputs in the global order."""
    found = {}
    for name, view in layer.tensors.items():
        values = read(client, name)
        if values.size != np.prod(view.shape, dtype=np.int64):
            raise PartError("schema_mismatch", f"{client!r}: tensor {name!r} is {values.shape}, not {view.shape}")
        values = values.reshape(view.shape)
        finite(f"{client!r}, tensor {name!r}", values)
        if view.inputs is not None and before is not None:
            values = _moved(values, view.inputs, before)
        found[name] = values
    return found


def _moved(values: Array, axis: int, order: Order) -> Array:
    """Return values with the columns of a layer's units at their places, zero for those that are asleep."""
    result = np.zeros_like(values)
    np.moveaxis(result, axis, 0)[order.places[order.awake]] = np.moveaxis(values, axis, 0)[order.awake]
    return result


def _rows(view: View, values: Array) -> Array:
    """Return a tensor unit by unit, [U, D]."""
    return np.moveaxis(values, view.units, 0).reshape(view.shape[view.units], -1)


def _awake(layer: Layer, tensors: Mapping[str, Array]) -> NDArray[np.bool_]:
    awake = np.zeros(layer.units, dtype=np.bool_)
    for name, view in layer.tensors.items():
        awake |= (_rows(view, tensors[name]) != 0).any(axis=1)
    return awake


def _at_places(order: Order) -> NDArray[np.bool_]:
    result = np.zeros_like(order.awake)
    result[order.places] = order.awake
    return result


def _matched(
    layer: Layer, tensors: Mapping[str, Mapping[str, Array]], prior: Prior | None, sweeps: int
) -> dict[str, Order]:
    """Match a layer's units by what they read from the layer before.

    An LSTM's hidden-to-hidden weights take no part, as in the authors' code: both their axes are permuted, and with
    them the assignment would be a quadratic one.
    """
    awake = {name: _awake(layer, own) for name, own in tensors.items()}
    compared = [name for name, view in layer.tensors.items() if view.recurrent is None]
    neurons = {
        client: np.hstack([_rows(layer.tensors[name], own[name]) for name in compared])[awake[client]]
        for client, own in tensors.items()
    }
    found, _ = match(neurons, layer.units, prior, sweeps)
    return {client: Order(_filled(found[client], awake[client]), awake[client]) for client in tensors}


def _filled(places: Places, awake: NDArray[np.bool_]) -> Places:
    """Return a place for every unit: those asleep get the places that are left, in their order."""
    result = np.empty(len(awake), dtype=np.intp)
    result[awake] = places
    result[~awake] = np.setdiff1d(np.arange(len(awake)), places)
    return result


def _average(
    layer: Layer,
    tensors: Mapping[str, Mapping[str, Array]],
    orders: Mapping[str, Order],
    weights: Mapping[str, float | Float],
) -> dict[str, Float]:
    """Return each tensor's mean over the clients, unit by unit; only units that are awake count."""
    places = {client: order.places[order.awake] for client, order in orders.items()}
    result = {}
    for name, view in layer.tensors.items():
        rows = {}
        for client, order in orders.items():
            values = tensors[client][name]
            if view.recurrent is not None:
                values = _moved(values, view.recurrent, order)
            rows[client] = _rows(view, values)[order.awake]
        averaged = mean(rows, places, layer.units, weights)
        edges = [edge for axis, edge in enumerate(view.shape) if axis != view.units]
        result[name] = np.moveaxis(averaged.reshape(layer.units, *edges), 0, view.units)
    return result


def _by_class(
    names: list[str], label_counts: Mapping[str, Array], weights: Mapping[str, float | Float], classes: int
) -> dict[str, float | Float]:
    """Return each client's weight by class [C]."""
    missing = [name for name in names if name not in label_counts]
    if missing:
        raise PartError("bad_counts", f"{missing[0]!r} told no label counts, by which FedMA weights the last layer")
    counts = np.stack(
        [finite(f"label counts of {name!r}", floats("label counts", label_counts[name], 1)) for name in names]
    )
    if counts.shape[1:] != (classes,) or (counts < 0).any():
        raise PartError("bad_counts", f"label counts {counts.shape}: {classes} numbers of at least 0 each are needed")
    plain = np.array([weights[name] for name in names], dtype=np.float64)[:, None]
    chosen = np.where(counts.sum(axis=0) > 0, counts, plain)
    return {name: chosen[row] for row, name in enumerate(names)}
