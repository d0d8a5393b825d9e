"""BBP-MAP matching of one layer, against a slow reference and by hand."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from contract.tensors import Array
from worker.parts.errors import PartError
from worker.parts.fedma.matching import Places, Prior, match, mean

WIDE = 50
"""A bound that no layer of these tests comes near."""
SHARP = Prior(sigma=0.1, gamma=1.0)
"""Neurons count as one only where they are alike: under the default prior small ones are rather new than matched."""


def draw(seed: int, *shape: int, spread: float = 2.0) -> Array:
    return np.random.default_rng(seed).normal(scale=spread, size=shape)


def rows(places: Mapping[str, Places]) -> dict[str, list[int]]:
    return {name: [int(place) for place in own] for name, own in places.items()}


# ------------------------------------------------------------------------------------------------- the slow reference
def slow_gain(neuron: Array, matched: list[Array], clients: int, prior: Prior) -> float:
    """PFNM's cost, Prop. 2, with its sign turned, of one neuron at a global one that others are matched to."""
    q, p0 = 1 / prior.sigma**2, 1 / prior.sigma0**2
    sums = sum((q * other for other in matched), start=np.zeros_like(neuron))
    p = p0 + q * len(matched)
    gain = ((q * neuron + sums) ** 2).sum() / (q + p) - (sums**2).sum() / p
    return float(gain) + 2 * math.log(len(matched) / (clients - len(matched)))


def slow_gain_of_new(neuron: Array, number: int, clients: int, prior: Prior) -> float:
    q, p0 = 1 / prior.sigma**2, 1 / prior.sigma0**2
    gain = float(((q * neuron) ** 2).sum()) / (q + p0)
    return gain - 2 * math.log(number) + 2 * math.log(prior.gamma / clients)


def best_alone(own: Array, others: list[list[Array]], clients: int, bound: int, prior: Prior) -> float:
    """Return the best sum of gains that a client can have against the others, of all its assignments one by one."""
    new = min(len(own), bound - len(others))
    table = [
        [slow_gain(neuron, matched, clients, prior) for matched in others]
        + [slow_gain_of_new(neuron, number, clients, prior) for number in range(1, new + 1)]
        for neuron in own
    ]
    ways = itertools.permutations(range(len(others) + new), len(own))
    return max(sum(table[row][column] for row, column in enumerate(way)) for way in ways)


def gain_alone(
    name: str, neurons: Mapping[str, Array], places: Mapping[str, Places], prior: Prior
) -> tuple[float, Any]:
    """Return what a client's assignment gains against the others, and the others' matched neurons."""
    seats: dict[int, list[Array]] = {}
    for other in neurons:
        for place, neuron in zip(places[other], neurons[other], strict=True):
            if other != name:
                seats.setdefault(int(place), []).append(neuron)
    gain, new = 0.0, 0
    for place, neuron in zip(places[name], neurons[name], strict=True):
        if int(place) in seats:
            gain += slow_gain(neuron, seats[int(place)], len(neurons), prior)
        else:
            new += 1
            gain += slow_gain_of_new(neuron, new, len(neurons), prior)
    return gain, list(seats.values())


@pytest.mark.parametrize("bound", [4, 5, WIDE])
@pytest.mark.parametrize("seed", range(6))
def test_no_client_could_be_assigned_better(seed: int, bound: int) -> None:
    prior = Prior(sigma=0.7, sigma0=1.5, gamma=3.0)
    neurons = {name: draw(10 * seed + i, 2 + (seed + i) % 3, 2) for i, name in enumerate("abcd")}
    places, size = match(neurons, bound, prior, sweeps=50)
    assert size <= bound
    visits = sorted(neurons, key=lambda name: (-len(neurons[name]), name))
    for name in visits if bound < WIDE else visits[-1:]:  # with room for new neurons two may go round in a circle
        gain, others = gain_alone(name, neurons, places, prior)
        assert gain == pytest.approx(best_alone(neurons[name], others, 4, bound, prior), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_two_full_clients_are_matched_at_the_least_distance(seed: int) -> None:
    a, b = draw(seed, 5, 3), draw(seed + 100, 5, 3)
    places, size = match({"a": a, "b": b}, 5, Prior(sigma=0.3, sigma0=4.0, gamma=0.1))
    found = ((a[places["b"]] - b) ** 2).sum()
    least = min(((a[list(way)] - b) ** 2).sum() for way in itertools.permutations(range(5)))
    assert size == 5 and found == pytest.approx(least)


def test_the_prior_makes_no_difference_where_every_client_is_full() -> None:
    neurons = {name: draw(i, 6, 4) for i, name in enumerate("abc")}
    first = rows(match(neurons, 6)[0])
    for prior in (Prior(sigma=0.1), Prior(sigma0=9.0), Prior(gamma=0.01)):
        assert rows(match(neurons, 6, prior)[0]) == first


# ------------------------------------------------------------------------------------------------------------- by hand
def test_two_clients_by_hand() -> None:
    neurons = {"a": np.array([[1.0], [10.0]]), "b": np.array([[9.0], [2.0]])}
    places, size = match(neurons, 2)
    assert rows(places) == {"a": [0, 1], "b": [1, 0]} and size == 2
    np.testing.assert_array_equal(mean(neurons, places, 2, {"a": 1, "b": 1}), [[1.5], [9.5]])
    np.testing.assert_array_equal(mean(neurons, places, 2, {"a": 3, "b": 1}), [[1.25], [9.75]])


def test_a_new_neuron_by_hand() -> None:
    # Matched: |-5 + 5|^2 / 3 - 25 / 2 + 2 log(1 / 1) = -12.5. New: 25 / 2 + 2 log(7 / 2) - 2 log 1 = 15.0.
    neurons = {"a": np.array([[5.0]]), "b": np.array([[-5.0]])}
    places, size = match(neurons, 2)
    assert rows(places) == {"a": [0], "b": [1]} and size == 2
    np.testing.assert_array_equal(mean(neurons, places, 2, {"a": 1, "b": 1}), [[5.0], [-5.0]])
    # Matched: |4 + 5|^2 / 3 - 25 / 2 + 0 = 14.5. New, of mass 1 / 2: 16 / 2 + 2 log(1 / 4) = 5.2.
    near = {"a": np.array([[5.0]]), "b": np.array([[4.0]])}
    assert rows(match(near, 2, Prior(gamma=0.5))[0]) == {"a": [0], "b": [0]}


def test_a_full_layer_has_no_new_neuron() -> None:
    neurons = {"a": np.array([[5.0]]), "b": np.array([[-5.0]])}
    places, size = match(neurons, 1)
    assert rows(places) == {"a": [0], "b": [0]} and size == 1
    assert mean(neurons, places, 1, {"a": 1, "b": 1}) == 0


def test_more_clients_at_a_neuron_draw_the_next() -> None:
    # c lies between the twins a, b at 3 and d at -3: popularity decides, 2 log(2 / 2) against 2 log(1 / 3).
    neurons = {"a": np.array([[3.0]]), "b": np.array([[3.0]]), "c": np.array([[0.0]]), "d": np.array([[-3.0]])}
    assert rows(match(neurons, 4, Prior(gamma=0.4))[0]) == {"a": [0], "b": [0], "c": [0], "d": [1]}


# ----------------------------------------------------------------------------------------------- degenerate, and orders
@pytest.mark.parametrize("bound", [4, WIDE])
@pytest.mark.parametrize("clients", [1, 2, 5])
def test_equal_clients_keep_their_order_and_their_values(clients: int, bound: int) -> None:
    own = draw(1, 4, 3).astype(np.float32)
    neurons = {f"client-{i}": own for i in range(clients)}
    places, size = match(neurons, bound, SHARP)
    assert size == 4 and all(place == [0, 1, 2, 3] for place in rows(places).values())
    np.testing.assert_array_equal(mean(neurons, places, 4, dict.fromkeys(neurons, 7)).astype(np.float32), own)


def test_one_client_in_float64_keeps_its_values() -> None:
    own = draw(1, 4, 3)
    np.testing.assert_array_equal(mean({"a": own}, {"a": np.arange(4)}, 4, {"a": 0.1}), own)


@pytest.mark.parametrize("bound", [5, 7, WIDE])
def test_the_order_of_clients_changes_nothing(bound: int) -> None:
    neurons = {name: draw(i, 5, 4) for i, name in enumerate("abcdef")}
    weights = {name: i + 0.1 for i, name in enumerate("abcdef")}
    places, size = match(neurons, bound)
    turned = dict(reversed(neurons.items()))
    again, size_again = match(turned, bound)
    assert rows(again) == rows(places) and size_again == size
    assert mean(turned, again, size, weights).tobytes() == mean(neurons, places, size, weights).tobytes()


@pytest.mark.parametrize("bound", [5, 7, WIDE])
def test_the_order_of_a_clients_neurons_changes_nothing(bound: int) -> None:
    neurons = {name: draw(i, 5, 4) for i, name in enumerate("abc")}
    weights = {"a": 1.0, "b": 2.0, "c": 3.0}
    places, size = match(neurons, bound)
    layer = mean(neurons, places, size, weights)
    order = np.array([3, 0, 4, 1, 2])
    for name in neurons:
        moved = neurons | {name: neurons[name][order]}
        again, size_again = match(moved, bound)
        result = mean(moved, again, size_again, weights)
        # The same neurons; their numbers are the first client's own, as far as it has any.
        assert sorted(row.tobytes() for row in result) == sorted(row.tobytes() for row in layer)
        kept = layer[order] if name == "a" else layer[:5]
        assert result[:5].tobytes() == kept.tobytes()


def test_equal_neurons_are_told_apart_by_their_place() -> None:
    neurons = {"a": np.ones((3, 2)), "b": np.ones((3, 2))}
    assert rows(match(neurons, 3)[0]) == {"a": [0, 1, 2], "b": [0, 1, 2]}


def test_nobody_is_asked_for_more_sweeps_than_given() -> None:
    neurons = {name: draw(i, 4, 2) for i, name in enumerate("abc")}
    places, _ = match(neurons, WIDE, sweeps=0)
    assert {len(own) for own in places.values()} == {4}


# ---------------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("neurons", "code", "detail"),
    [
        ({}, "no_participants", "no client"),
        ({"a": np.ones((3, 2))}, "out_of_range", "'a' has 3 neurons; the layer has room for 2"),
        ({"a": np.ones((2, 2)), "b": np.ones((2, 3))}, "schema_mismatch", "neurons of 'b'"),
        ({"a": np.ones(2)}, "schema_mismatch", "neurons of 'a'"),
        ({"a": np.ones((2, 2)), "b": np.array([[1, np.nan], [0, 1]])}, "non_finite", "neurons of 'b'"),
        ({"a": np.full((2, 2), 1e200), "b": np.ones((2, 2))}, "non_finite", "too large"),
    ],
)
def test_what_cannot_be_matched(neurons: dict[str, Array], code: str, detail: str) -> None:
    with pytest.raises(PartError) as refused:
        match(neurons, 2)
    assert refused.value.code == code and detail in refused.value.detail


@pytest.mark.parametrize("prior", [Prior(sigma=0.0), Prior(sigma0=math.inf), Prior(gamma=-1.0)])
def test_a_prior_is_positive(prior: Prior) -> None:
    with pytest.raises(PartError, match="bad_option|must be finite"):
        match({"a": np.ones((1, 1))}, 1, prior)
