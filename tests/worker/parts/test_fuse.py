"""Weighted means of weights: values worked by hand, identities, refusals."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.tensors import TensorFile, dtype_name, write_file
from tests.reference import fusing
from worker.parts import blocks, folding, fuse, side_by_side
from worker.parts.blocks import Source
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


def averaged(root: Path, states: list[State], weights: Sequence[float], names: list[str] | None = None) -> bytes:
    names = names or [f"client-{index}" for index in range(len(states))]
    sources = []
    for name, values, weight in zip(names, states, weights, strict=True):
        write_file(root / name, values, {"potstill.buffers": '["bn.running_var"]', "round": name})
        sources.append(Source(name, root / name, weight))
    fuse.average_files(sources, root / "out")
    return (root / "out").read_bytes()


def read(path: Path) -> State:
    with TensorFile(path) as file:
        return {name: file.read(name) for name in file.names}


def mean(arrays: list[Any], weights: Sequence[float], int_rule: Any = "max") -> Any:
    """Return the mean of one tensor: its clients one after another, as files are read."""
    total = fuse.accumulator(dtype_name(arrays[0]), int_rule)
    for index in fuse.contributors(weights):
        total.add(arrays[index], weights[index])
    return total.result()


def test_by_hand(tmp_path: Path) -> None:
    """n = 1 and 3: (1 * 2 + 3 * 6) / 4 = 5; counters take the larger one, masks the OR."""
    one = {"w": np.array([2.0, -4.0], np.float32), "t": np.array([7], np.int64), "m": np.array([True, False])}
    two = {"w": np.array([6.0, 4.0], np.float32), "t": np.array([5], np.int64), "m": np.array([False, False])}
    averaged(tmp_path, [one, two], [1, 3])
    made = read(tmp_path / "out")
    assert made["w"].tolist() == [5.0, 2.0]
    assert made["t"].tolist() == [7]
    assert made["m"].tolist() == [True, False]


def test_large_integers_stay_exact(tmp_path: Path) -> None:
    """2^53 + 1 has no float64."""
    averaged(tmp_path, [{"t": np.array([2**53 + 1], np.int64)}, {"t": np.array([2**53], np.int64)}], [1, 1])
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


@pytest.mark.parametrize("most_open", [2, 3])
def test_passes_over_pieces_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_open: int
) -> None:
    """The result does not depend on how much fits the accumulator, nor on how many files stay open."""
    states, weights = [state(i) for i in range(3)], [3, 1, 4]
    whole = averaged(tmp_path, states, weights)
    monkeypatch.setattr(blocks, "MOST_OPEN", most_open)
    monkeypatch.setattr(folding, "FOLDED", 6)
    monkeypatch.setattr(folding, "FOLDED_BLOCK", 4)
    assert averaged(tmp_path, states, weights) == whole


@pytest.mark.parametrize("cores", [1, 2])
def test_threads_give_the_same_bytes_and_the_same_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    monkeypatch.setattr(side_by_side, "_cores", lambda: cores)
    states, weights = [state(i) for i in range(3)], [3, 1, 4]
    whole = averaged(tmp_path, states, weights)
    monkeypatch.setattr(folding, "FOLDED_BLOCK", 4)
    monkeypatch.setattr(folding, "SMALL", 0)
    assert averaged(tmp_path, states, weights) == whole
    damaged = states[2] | {"layer.weight": np.full((3, 5), np.nan, np.float32)}
    with pytest.raises(PartError, match="'client-2', tensor 'layer.weight'") as caught:
        averaged(tmp_path, [*states[:2], damaged], weights)
    assert caught.value.code == "non_finite"


def test_memory_is_one_accumulator_however_many_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more clients than may be open, one's file is at a time."""
    opened = {"now": 0, "most": 0}

    class Counting(TensorFile):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            opened["now"] += 1
            opened["most"] = max(opened["most"], opened["now"])

        def close(self) -> None:
            opened["now"] -= self._fd >= 0
            super().close()

    monkeypatch.setattr(folding, "TensorFile", Counting)
    monkeypatch.setattr(blocks, "MOST_OPEN", 8)
    averaged(tmp_path, [state(i) for i in range(9)], [1] * 9)
    assert opened == {"now": 0, "most": 1}
    averaged(tmp_path, [state(i) for i in range(8)], [1] * 8)
    assert opened == {"now": 0, "most": 8}


def test_output_keeps_the_base_order_and_buffer_list(tmp_path: Path) -> None:
    averaged(tmp_path, [state(1), state(2)], [1, 1])
    with TensorFile(tmp_path / "out") as file:
        assert file.names == list(state(1))
        assert file.header.metadata == {"potstill.buffers": '["bn.running_var"]'}


def test_a_client_without_samples_is_not_even_read(tmp_path: Path) -> None:
    write_file(tmp_path / "a", state(1))
    sources = [Source("a", tmp_path / "a", 2), Source("b", tmp_path / "missing", 0)]
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
def test_weights_that_cannot_be(weights: Sequence[float], code: str) -> None:
    with pytest.raises(PartError) as caught:
        fuse.shares(weights)
    assert caught.value.code == code


def test_float64_overflow_is_named(tmp_path: Path) -> None:
    huge = {"w": np.array([1.7e308], np.float64)}
    with pytest.raises(PartError) as caught, np.errstate(over="ignore"):
        averaged(tmp_path, [huge, huge], [1000, 1000])
    assert caught.value.code == "non_finite"


@given(st.lists(st.tuples(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3), st.integers(0, 10**6)), min_size=1))
def test_the_mean_is_the_slow_one(clients: list[tuple[list[float], int]]) -> None:
    values, weights = [row for row, _ in clients], [weight for _, weight in clients]
    weights[0] += not any(weights)
    made = mean([np.array(row, np.float64) for row in values], weights)
    np.testing.assert_allclose(made, fusing.average(values, weights), rtol=1e-9, atol=1e-6)


def test_a_part_of_the_tensors_is_averaged_whatever_the_others_are(tmp_path: Path) -> None:
    """Fed-ET's head: the bodies differ."""
    one = {"body.a": np.array([1.0], np.float32), "head.w": np.array([1.0, 3.0], np.float32)}
    two = {"body.b": np.array([np.nan, 2.0], np.float32), "head.w": np.array([5.0, 3.0], np.float32)}
    for name, state_ in (("a", one), ("b", two)):
        write_file(tmp_path / name, state_)
    sources = [Source(name, tmp_path / name, weight) for name, weight in (("a", 3), ("b", 1))]
    fuse.average_files(sources, tmp_path / "out", only=lambda name: name.startswith("head."))
    made = read(tmp_path / "out")
    assert {name: values.tolist() for name, values in made.items()} == {"head.w": [2.0, 3.0]}
    with pytest.raises(PartError, match="update of 'b'") as caught:
        fuse.average_files(sources, tmp_path / "out")
    assert caught.value.code == "schema_mismatch"


def test_round_mean_is_half_to_even() -> None:
    assert mean([np.array([1, 10, -3], np.int64), np.array([2, 11, -2], np.int64)], [1, 1], "round_mean").tolist() == [
        2,
        10,
        -2,
    ]
    with pytest.raises(PartError, match="vote"):
        mean([np.array([1], np.int64)], [1], "vote")


@given(
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**40)), min_size=1).filter(
        lambda pairs: any(weight for _, weight in pairs)
    ),
    st.sampled_from([(), (1,), (2, 3)]),
)
def test_round_mean_is_exact_in_any_shape(pairs: list[tuple[int, int]], shape: tuple[int, ...]) -> None:
    """The counters of BatchNorm are single numbers, without an axis."""
    values, weights = [value for value, _ in pairs], [weight for _, weight in pairs]
    made = mean([np.full(shape, value, np.int64) for value in values], weights, "round_mean")
    assert made.dtype == np.int64
    np.testing.assert_array_equal(made, np.full(shape, fusing.rounded_mean(values, weights), np.int64))


@given(
    weights=st.lists(st.integers(0, 10**6), min_size=1, max_size=6).filter(any),
    factor=st.integers(1, 1000),
    seed=st.integers(0, 100),
)
def test_scale_of_weights_and_order_do_not_matter(weights: list[int], factor: int, seed: int) -> None:
    values = [np.random.default_rng([seed, i]).normal(size=4).astype(np.float32) for i in range(len(weights))]
    made = mean(values, weights)
    np.testing.assert_allclose(mean(values, [weight * factor for weight in weights]), made, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(mean(values[::-1], weights[::-1]), made, rtol=1e-6, atol=1e-7)
    kept = np.stack([each for each, weight in zip(values, weights, strict=True) if weight])
    assert (made >= kept.min(axis=0)).all() and (made <= kept.max(axis=0)).all()


@given(n=st.integers(1, 1000), seed=st.integers(0, 100))
def test_a_client_twice_is_a_client_with_twice_the_samples(n: int, seed: int) -> None:
    a, b = (np.random.default_rng([seed, i]).normal(size=4).astype(np.float32) for i in range(2))
    np.testing.assert_allclose(mean([a, b], [2 * n, 5]), mean([a, a, b], [n, n, 5]), rtol=1e-6)


@given(weights=st.lists(st.integers(0, 10**9), min_size=1, max_size=8).filter(any))
def test_shares_sum_to_one(weights: list[int]) -> None:
    assert sum(fuse.shares(weights)) == pytest.approx(1)
