"""FedMA over whole networks: by hand, permuted copies, growing layers, files."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.chains import Chain, chain
from contract.tensors import Array, TensorFile
from tests.contract.permuted_networks import State, permuted
from worker.parts.blocks import Source
from worker.parts.errors import PartError
from worker.parts.fedma.files import fuse_files
from worker.parts.fedma.matching import Places, Prior
from worker.parts.fedma.networks import FusedLayer, fuse_layers

SHARP = Prior(sigma=0.1, gamma=1.0)
"""Units count as one only where they are alike: under the default prior small ones are rather new than matched."""


def rows(places: Mapping[str, Places]) -> dict[str, list[int]]:
    return {name: [int(place) for place in own] for name, own in places.items()}


NETWORKS: list[tuple[str, dict[str, Any], list[int]]] = [
    ("mlp", {"hidden": [7, 5]}, [6]),
    ("convnet", {}, [2, 22, 18]),
    ("vgg-9", {"common_head": True}, [1, 8, 16]),
    ("lstm", {"vocab_size": 9, "width": 5, "layers": 2}, [4]),
]


def state_of(found: Chain, seed: int) -> State:
    """Return random float32 tensors in the shapes of the chain's views."""
    generator = np.random.default_rng(seed)
    shapes = {name: view.shape for layer in found.layers for name, view in layer.tensors.items()}
    return {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def fused(found: Chain, states: Mapping[str, State], **options: Any) -> tuple[State, list[FusedLayer]]:
    weights = options.pop("weights", dict.fromkeys(states, 1))
    layers = list(fuse_layers(found, lambda client, name: states[client][name], weights, **options))
    return {name: values.astype(np.float32) for layer in layers for name, values in layer.tensors.items()}, layers


def equal(one: State, other: State) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("name", "options", "shape"), NETWORKS)
def test_permuted_copies_of_a_network_are_that_network(name: str, options: dict[str, Any], shape: list[int]) -> None:
    found = chain(name, options, shape, 4)
    own = state_of(found, 0)
    copies = {"a": own, "b": permuted(found, own, 1), "c": permuted(found, own, 2)}
    assert not equal(copies["a"], copies["b"])
    result, layers = fused(found, copies, weights={"a": 1, "b": 5, "c": 2})
    assert equal(result, own)
    assert [layer.size for layer in layers] == [layer.units for layer in found.layers]


def test_a_network_by_hand() -> None:
    # Two inputs, two hidden units, two classes. b's units stand the other way round: its row 0 is a's row 1.
    found = chain("mlp", {"hidden": [2]}, [2], 2)
    a = {"1.weight": [[4, 0], [0, 4]], "1.bias": [1, -1], "3.weight": [[1, 2], [3, 4]], "3.bias": [0, 1]}
    b = {"1.weight": [[0, 6], [2, 0]], "1.bias": [-1, 3], "3.weight": [[20, 10], [40, 30]], "3.bias": [2, 3]}
    states = {
        client: {key: np.array(value, np.float32) for key, value in own.items()}
        for client, own in {"a": a, "b": b}.items()
    }
    result, layers = fused(found, states)
    assert rows({name: order.places for name, order in layers[0].orders.items()}) == {"a": [0, 1], "b": [1, 0]}
    np.testing.assert_array_equal(result["1.weight"][..., 0], [[3, 0], [0, 5]])
    np.testing.assert_array_equal(result["1.bias"], [2, -1])
    np.testing.assert_array_equal(result["3.weight"][..., 0], [[5.5, 11], [16.5, 22]])
    np.testing.assert_array_equal(result["3.bias"], [1, 2])


def test_the_last_layer_is_averaged_class_by_class() -> None:
    found = chain("mlp", {"hidden": []}, [1], 3)
    states = {
        "a": {"1.weight": np.array([[0.0], [0.0], [0.0]]), "1.bias": np.zeros(3)},
        "b": {"1.weight": np.array([[8.0], [8.0], [8.0]]), "1.bias": np.full(3, 4.0)},
    }
    # Class 0: 1 of a's samples to 3 of b's; class 1: b's alone; class 2: nobody's, so 1 to 1.
    counts = {"a": np.array([1, 0, 0]), "b": np.array([3, 2, 0])}
    result, _ = fused(found, states, label_counts=counts)
    np.testing.assert_array_equal(result["1.weight"].ravel(), [6, 8, 4])
    np.testing.assert_array_equal(result["1.bias"], [3, 4, 2])


def test_a_client_of_weight_zero_is_not_read() -> None:
    found = chain("mlp", {"hidden": [3]}, [2], 2)
    states = {"a": state_of(found, 0), "b": {}}
    assert equal(fused(found, states, weights={"a": 2, "b": 0})[0], states["a"])


def test_the_order_of_clients_changes_no_network() -> None:
    found = chain("lstm", {"vocab_size": 9, "width": 5}, [4], 3)
    states = {name: state_of(found, i) for i, name in enumerate("abcd")}
    weights = {"a": 0.3, "b": 7.0, "c": 0.1, "d": 2.0}
    one = fused(found, states, weights=weights)[0]
    other = fused(found, dict(reversed(states.items())), weights=dict(reversed(weights.items())))[0]
    assert equal(one, other)


@pytest.mark.parametrize(("name", "options", "shape"), NETWORKS[:1] + NETWORKS[3:])
def test_a_clients_order_of_units_changes_no_network(name: str, options: dict[str, Any], shape: list[int]) -> None:
    found = chain(name, options, shape, 4)
    states = {client: state_of(found, i) for i, client in enumerate("abc")}
    result = fused(found, states)[0]
    assert equal(fused(found, states | {"c": permuted(found, states["c"], 5)})[0], result)


def test_frozen_layers_are_not_matched() -> None:
    found = chain("mlp", {"hidden": [4, 4]}, [3], 2)
    own = state_of(found, 0)
    moved = permuted(found, own, 1)
    below = ("1.weight", "1.bias")
    states = {"a": own, "b": {name: own[name] if name in below else moved[name] for name in own}}
    result, layers = fused(found, states, frozen=1)
    assert all(rows({"": order.places})[""] == [0, 1, 2, 3] for order in layers[0].orders.values())
    assert np.array_equal(result["1.weight"], own["1.weight"])


# ----------------------------------------------------------------------------------------------------- growing layers
def narrow_network(found: Chain, seed: int, awake: int) -> State:
    """Return a network of one hidden layer whose units from `awake` on are asleep."""
    own = state_of(found, seed)
    own["1.weight"][awake:] = own["1.bias"][awake:] = own["3.weight"][:, awake:] = 0
    return own


def outputs(own: State, inputs: Array) -> Array:
    hidden = np.maximum(inputs @ own["1.weight"][..., 0].T + own["1.bias"], 0)
    return np.asarray(hidden @ own["3.weight"][..., 0].T + own["3.bias"])


def test_units_that_differ_are_kept_side_by_side_while_there_is_room() -> None:
    # Far apart: nothing is matched, and the wide network is the mean of the clients' outputs.
    found = chain("mlp", {"hidden": [6]}, [3], 2)
    a, b = narrow_network(found, 0, 3), narrow_network(found, 1, 3)
    for own, sign in ((a, 1), (b, -1)):
        own["1.weight"][:3] = sign * (np.abs(own["1.weight"][:3]) + 3)
    result, layers = fused(found, {"a": a, "b": b}, prior=SHARP)
    assert layers[0].size == 6
    inputs = np.random.default_rng(3).normal(size=(5, 3))
    np.testing.assert_allclose(outputs(result, inputs), (outputs(a, inputs) + outputs(b, inputs)) / 2, rtol=1e-5)


def test_units_asleep_stay_so_where_all_are_matched() -> None:
    found = chain("mlp", {"hidden": [6]}, [3], 2)
    own = narrow_network(found, 0, 4)
    copies = {"a": own, "b": permuted(found, own, 1), "c": permuted(found, own, 2)}
    result, layers = fused(found, copies, prior=SHARP)
    assert layers[0].size == 4 and equal(result, own)


def test_what_a_sleeping_unit_feeds_counts_for_nothing() -> None:
    found = chain("mlp", {"hidden": [2]}, [2], 2)
    own = narrow_network(found, 0, 1)
    noisy = {name: values.copy() for name, values in own.items()}
    noisy["3.weight"][:, 1:] = 9.0
    assert equal(fused(found, {"a": noisy, "b": noisy}, prior=SHARP)[0], own)


# ------------------------------------------------------------------------------------------------- refusals, and files
def test_networks_that_do_not_fit_are_refused() -> None:
    found = chain("mlp", {"hidden": [3]}, [2], 2)
    own = state_of(found, 0)
    for wrong, code in (
        (own | {"3.weight": np.ones((2, 4), np.float32)}, "schema_mismatch"),
        (own | {"1.bias": np.array([1, np.inf, 0], np.float32)}, "non_finite"),
    ):
        with pytest.raises(PartError, match="'b'") as refused:
            fused(found, {"a": own, "b": wrong})
        assert refused.value.code == code
    with pytest.raises(PartError, match="no client has a positive weight"):
        fused(found, {"a": own}, weights={"a": 0})


@pytest.mark.parametrize(
    "counts", [{"a": np.ones(2)}, {"a": np.ones(3), "b": np.ones(3)}, {"a": -np.ones(2), "b": np.ones(2)}]
)
def test_label_counts_must_be_there(counts: dict[str, Array]) -> None:
    found = chain("mlp", {"hidden": []}, [2], 2)
    with pytest.raises(PartError) as refused:
        fused(found, {"a": state_of(found, 0), "b": state_of(found, 1)}, label_counts=counts)
    assert refused.value.code == "bad_counts"


def test_files_give_the_arrays_result(write: Callable[..., Path]) -> None:
    found = chain("mlp", {"hidden": [4, 4]}, [3], 2)
    views = {name: view.shape for layer in found.layers for name, view in layer.tensors.items()}
    flat = {name: shape[:2] for name, shape in views.items()}
    states = {client: state_of(found, seed) for seed, client in enumerate("abc")}
    files = {client: {name: own[name].reshape(flat[name]) for name in own} for client, own in states.items()}
    weights = {"a": 1.0, "b": 2.0, "c": 0.0}
    sources = [Source(client, write(client, files[client]), weights[client]) for client in "cba"]
    with TensorFile(sources[0].path) as first:
        base = first.header
    target, read = sources[0].path.with_name("fused"), []
    orders = fuse_files(sources, target, found, base, on_source=lambda: read.append(1))
    result, layers = fused(found, states, weights=weights)
    with TensorFile(target) as file:
        assert file.names == list(flat)
        assert all(np.array_equal(file.read(name), result[name].reshape(flat[name])) for name in flat)
    assert [rows({k: v.places for k, v in layer.items()}) for layer in orders] == [
        rows({k: v.places for k, v in layer.orders.items()}) for layer in layers
    ]
    assert len(read) == 2 * len(flat)
    with pytest.raises(PartError, match="'other'"):
        other = write("other", files["a"] | {"1.bias": np.zeros(5, np.float32)})
        fuse_files([Source("other", other, 1)], target, found, base)
    with pytest.raises(PartError, match="is not in both"):
        fuse_files(sources, target, chain("mlp", {"hidden": [4]}, [3], 2), base)
