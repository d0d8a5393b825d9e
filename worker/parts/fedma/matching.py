"""BBP-MAP: which client's neuron stands for which neuron of the global layer.

Yurochkin et al. 2019, "Bayesian Nonparametric Federated Learning of Neural Networks" (PFNM), Prop. 2 and Alg. 1, which
Wang et al. 2020 (FedMA) call for every layer. Symbols: J clients; client j has L_j neurons v_jl in R^D; the global
layer has L neurons, drawn from N(0, sigma0^2) under a Beta-Bernoulli process of mass gamma; v_jl is its global neuron
plus noise N(0, sigma^2).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from contract.tensors import Array
from worker.parts.arrays import Float, finite, option
from worker.parts.errors import PartError

Places = NDArray[np.intp]
"""[L_j]: the place in the global layer of each neuron of a client, each place once."""


@dataclass(frozen=True)
class Prior:
    """What BBP-MAP supposes, with the values of FedMA's code; all above 0.

    Where every client has as many neurons as the layer may have, all of them are matched at equal odds, and the result
    does not depend on any of the three.

    Attributes:
        sigma: standard deviation of a client's neuron around the global one.
        sigma0: standard deviation of the global neurons around 0.
        gamma: mass of the process: the larger, the sooner a neuron is a new one.
    """

    sigma: float = 1.0
    sigma0: float = 1.0
    gamma: float = 7.0


def match(
    neurons: Mapping[str, Array], bound: int, prior: Prior | None = None, sweeps: int = 5
) -> tuple[dict[str, Places], int]:
    """Return every client's places, and L, the number of neurons of the global layer.

    Clients are assigned one after the other against those that are in already, by the Hungarian algorithm on PFNM's
    cost; then, sweep by sweep, each is taken out and assigned anew, until nothing changes. Where all clients are full
    (as many neurons as the bound) this lowers the sum of squared distances to the matched neurons' mean until it ends;
    else two clients may move one neuron to and fro, for PFNM counts a client's new neurons (log k) for that client
    alone, and the number of sweeps ends it. The authors' code differs in three points: it draws the order of the
    clients at random, takes the log of the odds once and not twice, and caps a neuron's popularity at 10.

    Clients count by number of neurons and name, so the order of `neurons` changes nothing, bit for bit. Nor does the
    order of a client's neurons, if no two of them are equal: the same neurons are matched. Places are numbered as the
    neurons come, client by client in the order of names: the first client's neurons keep theirs, and so one client, or
    equal ones, change nothing.

    Args:
        neurons: client -> its neurons [L_j, D], of any floating dtype; counted in float64.
        bound: the largest L.
        prior: sigma, sigma0, gamma.
        sweeps: passes over the clients after the first, at most.

    Raises:
        PartError: no_participants, schema_mismatch (another D), non_finite, out_of_range (more neurons than the bound),
            bad_option.
    """
    prior = prior or Prior()
    for name in ("sigma", "sigma0", "gamma"):
        option(name, getattr(prior, name), open_low=True)
    _check(neurons, bound)
    # Sorted by value: then neither costs nor ties depend on where a client keeps a neuron.
    sorting = {name: _by_value(neurons[name]) for name in sorted(neurons)}
    layer = _Layer({name: neurons[name][order] for name, order in sorting.items()}, bound, prior)
    visits = sorted(layer.rows, key=lambda name: (-len(layer.rows[name]), name))
    for name in visits:
        layer.assign(name)
    for _ in range(sweeps if len(visits) > 1 else 0):
        if not sum(layer.assign_anew(name) for name in visits):
            break
    return _numbered({name: _unsorted(layer.places[name], order) for name, order in sorting.items()}), layer.size


def _check(neurons: Mapping[str, Array], bound: int) -> None:
    if not neurons:
        raise PartError("no_participants", "there is no client whose neurons could be matched")
    width: int | None = None
    for name in sorted(neurons):
        rows = neurons[name]
        if rows.ndim != 2 or (width is not None and rows.shape[1] != width):
            raise PartError(
                "schema_mismatch", f"neurons of {name!r}: {rows.shape}, where [L, {width or 'D'}] is needed"
            )
        if len(rows) > bound:
            raise PartError("out_of_range", f"{name!r} has {len(rows)} neurons; the layer has room for {bound}")
        finite(f"neurons of {name!r}", rows)
        width = rows.shape[1]


def _by_value(rows: Array) -> Places:
    """Return the order [L] that sorts neurons by their bytes; equal ones stay as they are."""
    return np.array(sorted(range(len(rows)), key=lambda row: rows[row].tobytes()), dtype=np.intp)


def _unsorted(places: Places, order: Places) -> Places:
    result = np.empty_like(places)
    result[order] = places
    return result


def _numbered(places: Mapping[str, Places]) -> dict[str, Places]:
    """Number the global neurons as they appear, client by client in the order of `places`, neuron by neuron."""
    numbers: dict[int, int] = {}
    return {
        name: np.array([numbers.setdefault(int(place), len(numbers)) for place in own], dtype=np.intp)
        for name, own in places.items()
    }


class _Layer:
    """The global layer while it is made: per neuron, the sum of those matched to it and their number."""

    def __init__(self, rows: Mapping[str, Array], bound: int, prior: Prior):
        self.rows, self._bound = rows, bound
        self._clients = len(rows)
        self._width = next(iter(rows.values())).shape[1]
        self._precision, self._precision0 = prior.sigma**-2, prior.sigma0**-2
        self._new = 2 * np.log(prior.gamma / self._clients)
        self._sums: Float = np.zeros((0, self._width))
        self._counts: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.places: dict[str, Places] = {name: np.zeros(0, dtype=np.intp) for name in rows}

    @property
    def size(self) -> int:
        """Number of neurons, L."""
        return len(self._counts)

    def assign_anew(self, name: str) -> bool:
        """Take a client out and put it in again; return whether that changed which neurons are matched."""
        before = _numbered(self.places)
        self._take_out(name)
        self.assign(name)
        after = _numbered(self.places)
        return any(not np.array_equal(before[client], after[client]) for client in before)

    def _take_out(self, name: str) -> None:
        """Take a client's neurons out; a neuron that was its alone goes with it."""
        own = self.places[name]
        self._counts[own] -= 1
        self._sums[own] -= self.rows[name]
        self.places[name] = own[:0]
        kept = np.flatnonzero(self._counts)
        numbers = np.full(self.size, -1, dtype=np.intp)
        numbers[kept] = np.arange(len(kept))
        self._counts, self._sums = self._counts[kept], self._sums[kept]
        self.places = {client: numbers[places] for client, places in self.places.items()}

    def assign(self, name: str) -> None:
        """Put a client that is out in: the best places for all its neurons together, old ones or new."""
        rows = self.rows[name].astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            gain = np.hstack((self._gain_of_old(rows), self._gain_of_new(rows)))
        if not np.isfinite(gain).all():
            raise PartError("non_finite", f"neurons of {name!r} are too large to be weights")
        _, places = linear_sum_assignment(gain, maximize=True)
        # Which new place a neuron takes makes no difference to the sum, so they are given in the neurons' order.
        fresh = np.flatnonzero(places >= self.size)
        places[fresh] = self.size + np.arange(len(fresh))
        self._sums = np.vstack((self._sums, np.zeros((len(fresh), self._width))))
        self._counts = np.concatenate((self._counts, np.zeros(len(fresh), dtype=np.int64)))
        self._sums[places] += rows
        self._counts[places] += 1
        self.places[name] = places.astype(np.intp)

    def _gain_of_old(self, rows: Float) -> Float:
        """[L_j, L]: |s_i + q v_l|^2 / (p_i + q) - |s_i|^2 / p_i + 2 log(m_i / (J - m_i)).

        With q = 1 / sigma^2, p_i = 1 / sigma0^2 + m_i q, and s_i = q times the sum of the m_i neurons matched to i.
        """
        if not self.size:
            return np.zeros((len(rows), 0))
        q = self._precision
        p = self._precision0 + self._counts * q
        sums = self._sums * q
        squares = (sums**2).sum(axis=1)
        together = squares + 2 * q * (rows @ sums.T) + q**2 * (rows**2).sum(axis=1)[:, None]
        odds = 2 * np.log(self._counts / (self._clients - self._counts))
        return np.asarray(together / (p + q) - squares / p + odds, dtype=np.float64)

    def _gain_of_new(self, rows: Float) -> Float:
        """[L_j, K]: |q v_l|^2 / (1 / sigma0^2 + q) - 2 log k + 2 log(gamma / J), k = 1 to K, the room that is left."""
        room = min(len(rows), self._bound - self.size)
        q = self._precision
        alone = (q**2 / (self._precision0 + q)) * (rows**2).sum(axis=1)
        return np.asarray(alone[:, None] + self._new - 2 * np.log(np.arange(1, room + 1)), dtype=np.float64)


def mean(rows: Mapping[str, Array], places: Mapping[str, Places], size: int, weights: Mapping[str, Any]) -> Float:
    """Return the global layer [size, D]: at each place the weighted mean of the clients that have a neuron there.

    FedMA Alg. 1 takes equal weights. One client gives exactly its own values, and so do equal ones of a dtype below
    float64 with whole numbers as weights.

    Args:
        rows: client -> values [L_j, D] by its own neurons.
        places: client -> [L_j]; a place that nobody has is 0.
        size: L.
        weights: client -> a weight, or one for each of its neurons [L_j], for classes; at least 0.
    """
    names = sorted(rows)
    if len(names) == 1:
        result = np.zeros((size, rows[names[0]].shape[1]))
        result[places[names[0]]] = rows[names[0]]
        return result
    total, weight = np.zeros((size, rows[names[0]].shape[1])), np.zeros(size)
    for name in names:
        own = np.broadcast_to(np.asarray(weights[name], dtype=np.float64), (len(rows[name]),))
        total[places[name]] += own[:, None] * rows[name].astype(np.float64)
        weight[places[name]] += own
    return total / np.where(weight > 0, weight, 1)[:, None]
