"""Weighted means of weights: values worked by hand, identities, refusals."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.tensors import TensorFile, write_file
from worker.parts import fuse
from worker.parts.errors import PartError

State = dict[str, Any]


def state(seed: int, dtype: Any = np.float32) -> State:
    rng = np.random.default_rng(seed)
    return {
        "layer.weight": rng.normal(size=(3, 5)).astype(dtype),
        "bn.running_var": rng.uniform(0, 2, size=5).astype(dtype),
        "bn.num_batches_tracked": np.array(seed * 3, dtype=np.int64),
        "mask": rng.integers(0, 2, 4).astype(bool),
        "empty": np.zeros((0, 2), dtype=dtype),
    }


def averaged(root: Path, states: list[State], weights: list[float], names: list[str] | None = None) -> bytes:
    names = names or [f"client-{index}" for index in range(len(states))]
    sources = []
    for name, values, weight in zip(names, states, weights, strict=True):
        write_file(root / name, values, {"potstill.buffers": '["bn.running_var"]', "round": name})
        sources.append(fuse.Source(name, root / name, weight))
    fuse.average_files(sources, root / "out")
    return (root / "out").read_bytes()


def read(path: Path) -> State:
    with TensorFile(path) as file:
        return {name: file.read(name) for name in file.names}


def test_by_hand(tmp_path: Path) -> None:
    """n = 1 and 3: (1 * 2 + 3 * 6) / 4 = 5; counters take the larger one, masks the OR."""
    one = {"w": np.float32([2.0, -4.0]), "t": np.int64([7]), "m": np.array([True, False])}
    two = {"w": np.float32([6.0, 4.0]), "t": np.int64([5]), "m": np.array([False, False])}
    averaged(tmp_path, [one, two], [1, 3])
    made = read(tmp_path / "out")
    assert made["w"].tolist() == [5.0, 2.0]
    assert made["t"].tolist() == [7]
    assert made["m"].tolist() == [True, False]


def test_large_integers_stay_exact(tmp_path: Path) -> None:
    """2^53 + 1 has no float64."""
    averaged(tmp_path, [{"t": np.int64([2**53 + 1])}, {"t": np.int64([2**53])}], [1, 1])
    assert read(tmp_path / "out")["t"].tolist() == [2**53 + 1]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_equal_clients_give_their_own_bytes(tmp_path: Path, dtype: Any) -> None:
    same = state(4, dtype)
    same["layer.weight"][0, 0] = -0.0
    averaged(tmp_path, [same, same, same], [3, 1000, 17])
    for name, values in read(tmp_path / "out").items():
        if dtype is np.float64 and name == "layer.weight":  # products of float64 are rounded
            np.testing.assert_allclose(values, same[name], rtol=1e-15)
        elif dtype is not np.float64:
            assert values.tobytes() == same[name].tobytes()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_one_client_is_the_identity(tmp_path: Path, dtype: Any) -> None:
    only = state(4, dtype)
    averaged(tmp_path, [only, state(5, dtype)], [7, 0])
    assert all(values.tobytes() == only[name].tobytes() for name, values in read(tmp_path / "out").items())


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_low_precision_is_summed_in_high(tmp_path: Path, dtype: Any) -> None:
    """1000 times 1 + 1/128 would stall at 256 in bfloat16, and drift in float16."""
    value = np.array([1 + 1 / 128], dtype=dtype)
    averaged(tmp_path, [{"w": value}] * 400, [1] * 400)
    assert read(tmp_path / "out")["w"].tobytes() == value.tobytes()


def test_arrival_order_makes_no_difference(tmp_path: Path) -> None:
    states, weights, names = [state(i) for i in range(5)], [3, 1, 4, 1, 5], list("edcba")
    first = averaged(tmp_path, states, weights, names)
    assert averaged(tmp_path, states[::-1], weights[::-1], names[::-1]) == first


def test_passes_over_pieces_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result does not depend on how much fits the accumulator."""
    states, weights = [state(i) for i in range(3)], [3, 1, 4]
    whole = averaged(tmp_path, states, weights)
    monkeypatch.setattr(fuse, "PASS_VALUES", 6)
    monkeypatch.setattr(fuse, "_BLOCK", 4)
    assert averaged(tmp_path, states, weights) == whole


def test_memory_is_one_accumulator_however_many_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most one client's file is open at a time."""
    opened = {"now": 0, "most": 0}

    class Counting(TensorFile):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            opened["now"] += 1
            opened["most"] = max(opened["most"], opened["now"])

        def close(self) -> None:
            opened["now"] -= self._fd >= 0
            super().close()

    monkeypatch.setattr(fuse, "TensorFile", Counting)
    averaged(tmp_path, [state(i) for i in range(9)], [1] * 9)
    assert opened == {"now": 0, "most": 1}


def test_output_keeps_the_base_order_and_buffer_list(tmp_path: Path) -> None:
    averaged(tmp_path, [state(1), state(2)], [1, 1])
    with TensorFile(tmp_path / "out") as file:
        assert file.names == list(state(1))
        assert file.header.metadata == {"potstill.buffers": '["bn.running_var"]'}


def test_a_client_without_samples_is_not_even_read(tmp_path: Path) -> None:
    write_file(tmp_path / "a", state(1))
    sources = [fuse.Source("a", tmp_path / "a", 2), fuse.Source("b", tmp_path / "missing", 0)]
    assert fuse.average_files(sources, tmp_path / "out") == ["a"]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused_by_name(tmp_path: Path, bad: float) -> None:
    broken = state(2)
    broken["layer.weight"][1, 2] = bad
    with pytest.raises(PartError, match=r"client-1.*layer\.weight") as caught:
        averaged(tmp_path, [state(1), broken], [1, 1])
    assert caught.value.code == "non_finite"


def test_another_schema_is_refused_by_name(tmp_path: Path) -> None:
    other = state(2)
    other["layer.weight"] = other["layer.weight"].T
    with pytest.raises(PartError, match=r"client-1.*layer\.weight") as caught:
        averaged(tmp_path, [state(1), other], [1, 1])
    assert caught.value.code == "schema_mismatch"


@pytest.mark.parametrize(
    ("weights", "code"),
    [([0, 0], "no_positive_weight"), ([], "no_positive_weight"), ([1, -1], "bad_weight"), ([np.nan, 1], "bad_weight")],
)
def test_weights_that_cannot_be(weights: list[float], code: str) -> None:
    with pytest.raises(PartError) as caught:
        fuse.shares(weights)
    assert caught.value.code == code


def test_float64_overflow_is_named(tmp_path: Path) -> None:
    huge = {"w": np.float64([1.7e308])}
    with pytest.raises(PartError) as caught, np.errstate(over="ignore"):
        averaged(tmp_path, [huge, huge], [1000, 1000])
    assert caught.value.code == "non_finite"


def test_in_memory_and_on_disk_agree(tmp_path: Path) -> None:
    states, weights = [state(i) for i in range(4)], [3, 0, 4, 1]
    averaged(tmp_path, states, weights)
    average = fuse.average_arrays(states, weights)
    assert average.contributors == [0, 2, 3]
    assert all(average.state[name].tobytes() == values.tobytes() for name, values in read(tmp_path / "out").items())


def test_round_mean_is_half_to_even() -> None:
    average = fuse.average_arrays(
        [{"t": np.int64([1, 10, -3])}, {"t": np.int64([2, 11, -2])}], [1, 1], int_rule="round_mean"
    )
    assert average.state["t"].tolist() == [2, 10, -2]


@given(
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**40)), min_size=1).filter(
        lambda pairs: any(weight for _, weight in pairs)
    ),
    st.sampled_from([(), (1,), (2, 3)]),
)
def test_round_mean_is_exact_in_any_shape(pairs: list[tuple[int, int]], shape: tuple[int, ...]) -> None:
    """Against fractions; the counters of BatchNorm are single numbers, without an axis."""
    weights = [weight for _, weight in pairs]
    states = [{"t": np.full(shape, value, np.int64)} for value, _ in pairs]
    made = fuse.average_arrays(states, weights, int_rule="round_mean").state["t"]
    exact = round(Fraction(sum(value * weight for value, weight in pairs), sum(weights)))  # half to even
    assert made.dtype == np.int64
    np.testing.assert_array_equal(made, np.full(shape, exact, np.int64))


def test_a_dtype_that_no_file_can_hold_is_refused_by_name() -> None:
    with pytest.raises(PartError, match="'t': dtype uint32") as caught:
        fuse.average_arrays([{"t": np.uint32([1])}], [1])
    assert caught.value.code == "schema_mismatch"


@given(
    weights=st.lists(st.integers(0, 10**6), min_size=1, max_size=6).filter(any),
    factor=st.integers(1, 1000),
    seed=st.integers(0, 100),
)
def test_scale_of_weights_and_order_do_not_matter(weights: list[int], factor: int, seed: int) -> None:
    states = [{"w": np.random.default_rng([seed, i]).normal(size=4).astype(np.float32)} for i in range(len(weights))]
    mean = fuse.average_arrays(states, weights).state["w"]
    scaled = fuse.average_arrays(states, [weight * factor for weight in weights]).state["w"]
    turned = fuse.average_arrays(states[::-1], weights[::-1]).state["w"]
    np.testing.assert_allclose(scaled, mean, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(turned, mean, rtol=1e-6, atol=1e-7)
    kept = np.stack([each["w"] for each, weight in zip(states, weights, strict=True) if weight])
    assert (mean >= kept.min(axis=0)).all() and (mean <= kept.max(axis=0)).all()


@given(n=st.integers(1, 1000), seed=st.integers(0, 100))
def test_a_client_twice_is_a_client_with_twice_the_samples(n: int, seed: int) -> None:
    a, b = ({"w": np.random.default_rng([seed, i]).normal(size=4).astype(np.float32)} for i in range(2))
    twice = fuse.average_arrays([a, a, b], [n, n, 5]).state["w"]
    np.testing.assert_allclose(fuse.average_arrays([a, b], [2 * n, 5]).state["w"], twice, rtol=1e-6)


@given(weights=st.lists(st.integers(0, 10**9), min_size=1, max_size=8).filter(any))
def test_shares_sum_to_one(weights: list[int]) -> None:
    assert sum(fuse.shares(weights)) == pytest.approx(1)
