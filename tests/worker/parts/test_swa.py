"""SWA's running mean of snapshots."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import fusing
from worker.parts.errors import PartError
from worker.parts.swa import RunningMean


@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_the_running_mean_is_the_mean(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    snapshots: list[dict[str, Any]] = [
        {"w": rng.normal(size=4).astype(np.float32), "t": np.array([i], np.int64)} for i in range(count)
    ]
    kept, running = [snapshot["w"].copy() for snapshot in snapshots], RunningMean()
    for snapshot in snapshots:
        running.add(snapshot)
    made = running.result()
    np.testing.assert_allclose(made["w"], fusing.average(kept, [1.0] * count), rtol=1e-6, atol=1e-7)
    assert made["w"].dtype == np.float32 and made["t"].tolist() == [count - 1]
    assert all((snapshot["w"] == before).all() for snapshot, before in zip(snapshots, kept, strict=True))


def test_equal_snapshots_are_their_mean() -> None:
    running = RunningMean()
    for _ in range(5):
        running.add({"w": np.array([0.1, -0.5], np.float64)})
    assert running.result()["w"].tobytes() == np.array([0.1, -0.5], np.float64).tobytes()


def added(*snapshots: dict[str, Any]) -> RunningMean:
    running = RunningMean()
    for snapshot in snapshots:
        running.add(snapshot)
    return running


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: added().result(), "nothing_collected"),
        (lambda: added({"w": np.ones(1)}, {"w": np.ones(2)}), "schema_mismatch"),
        (lambda: added({"w": np.ones(1)}, {"v": np.ones(1)}), "schema_mismatch"),
        (lambda: added({"w": np.array([np.nan])}), "non_finite"),
    ],
)
def test_refusals(call: Any, code: str) -> None:
    with pytest.raises(PartError) as caught:
        call()
    assert caught.value.code == code
