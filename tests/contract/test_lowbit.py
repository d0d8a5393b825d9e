"""One bit a weight: binarisation, its wire form, error feedback, refusals."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract import lowbit
from contract.errors import RuleError
from contract.tensors import TensorFile, write_file


def f32(values: Any) -> np.ndarray:
    return np.asarray(values, np.float32)


SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


@given(SHAPES, st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float16, ml_dtypes.bfloat16]))
def test_what_arrives_is_what_was_binarised(shape: tuple[int, ...], seed: int, dtype: Any) -> None:
    weight = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    before = weight.copy()
    made = lowbit.binarize(weight)
    bits = lowbit.pack(made.binary)
    assert bits.nbytes == (weight.size + 7) // 8
    back = lowbit.unpack(bits, made.scale, shape, dtype)
    assert back.tobytes() == made.binary.tobytes()
    assert (weight == before).all()
    scale = np.abs(weight.astype(np.float64)).reshape(shape[0], -1).mean(axis=1)
    np.testing.assert_allclose(made.scale, scale, rtol=1e-6)
    total = made.binary.astype(np.float64) + made.memory.astype(np.float64)
    np.testing.assert_allclose(total, weight.astype(np.float64), rtol=0.02, atol=0.02)


def test_zero_is_positive() -> None:
    assert lowbit.binarize(f32([[0.0, -0.0, -2.0]])).binary[0, :2].tolist() == pytest.approx([2 / 3, 2 / 3])
    zeros = lowbit.binarize(np.zeros((2, 3), np.float32))
    assert not zeros.binary.any() and (lowbit.pack(zeros.binary).tolist() == [63])


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0), (2, 0, 3)])
def test_a_weight_without_values_has_none(shape: tuple[int, ...]) -> None:
    made = lowbit.binarize(np.zeros(shape, np.float32))
    assert made.binary.shape == made.memory.shape == shape
    assert made.scale.tolist() == [0.0] * shape[0]


def test_bits_by_hand() -> None:
    """+ - + + | - - - -, + : lowest bit first, the second byte's rest is 0."""
    values = f32([1, -1, 1, 1, -1, -1, -1, -1, 1])
    assert lowbit.pack(values).tolist() == [0b1101, 0b1]


def test_error_feedback_makes_the_sum_of_what_is_sent_follow_the_weight() -> None:
    """With memory the mean of many sendings tends to the weight itself; without, the error stays."""
    weight = np.random.default_rng(0).normal(size=(2, 6))
    memory, sent = None, []
    for _ in range(400):
        made = lowbit.binarize(weight, memory)
        memory = made.memory
        sent.append(made.binary)
    with_memory = np.abs(np.mean(sent, axis=0) - weight).max()
    assert with_memory < 0.05 < np.abs(lowbit.binarize(weight).binary - weight).max()


def test_a_binary_update_becomes_an_ordinary_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    base: dict[str, np.ndarray] = {
        "first": rng.normal(size=(2, 3)).astype(np.float32),
        "deep": rng.normal(size=(3, 2, 3)).astype(np.float32),
        "steps": np.array([4]),
    }
    write_file(tmp_path / "base", base, {"potstill.buffers": '["steps"]'})
    made = lowbit.binarize(base["deep"])
    sent = {"first": base["first"], "steps": base["steps"], "bits.deep": lowbit.pack(made.binary)}
    write_file(tmp_path / "sent", sent | {"scale.deep": made.scale})
    with TensorFile(tmp_path / "base") as file:
        header = file.header
    lowbit.unpack_file(tmp_path / "sent", tmp_path / "out", header)
    with TensorFile(tmp_path / "out") as file:
        assert file.names == list(base)
        assert file.header.buffers == {"steps"}
        assert file.read("deep").tobytes() == made.binary.tobytes()
        assert file.read("first").tobytes() == base["first"].tobytes()
    write_file(tmp_path / "half", sent)
    with pytest.raises(RuleError, match="deep") as caught:
        lowbit.unpack_file(tmp_path / "half", tmp_path / "out", header)
    assert caught.value.code == "schema_mismatch"


BITS, SCALE = np.array([0b101], np.uint8), f32([1.0])


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: lowbit.binarize(f32(3.0)), "schema_mismatch"),
        (lambda: lowbit.binarize(np.zeros((2, 2)), np.zeros((2, 3))), "schema_mismatch"),
        (lambda: lowbit.binarize(f32([[np.nan, 1.0]])), "non_finite"),
        (lambda: lowbit.binarize(np.zeros((1, 2)), np.array([[np.inf, 0.0]])), "non_finite"),
        (lambda: lowbit.pack(f32([np.nan])), "non_finite"),
        (lambda: lowbit.unpack(BITS, SCALE, (1, 9)), "schema_mismatch"),
        (lambda: lowbit.unpack(BITS, SCALE, (3, 1)), "schema_mismatch"),
        (lambda: lowbit.unpack(BITS.astype(np.int64), SCALE, (1, 3)), "schema_mismatch"),
        (lambda: lowbit.unpack(BITS, SCALE, (1, 2)), "out_of_range"),
        (lambda: lowbit.unpack(BITS, -SCALE, (1, 3)), "out_of_range"),
        (lambda: lowbit.unpack(BITS, SCALE * np.float32(np.nan), (1, 3)), "non_finite"),
    ],
)
def test_refusals(call: Any, code: str) -> None:
    with pytest.raises(RuleError) as caught:
        call()
    assert caught.value.code == code
