"""Models of a few tensors as arrays and as files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.tensors import TensorFile, write_file
from worker.parts import blocks
from worker.parts.blocks import Source

State = dict[str, Any]
BUFFERS = {"potstill.buffers": '["bn.running_mean", "bn.running_var", "bn.num_batches_tracked"]'}
PARAMETERS = ("conv.weight", "bn.weight")


def make_state(seed: int, dtype: Any = np.float32) -> State:
    rng = np.random.default_rng(seed)
    return {
        "conv.weight": rng.normal(size=(7, 5, 41)).astype(dtype),
        "bn.weight": rng.normal(1, 0.1, size=5).astype(dtype),
        "bn.running_mean": rng.normal(size=5).astype(dtype),
        "bn.running_var": rng.uniform(0.5, 2, size=5).astype(dtype),
        "bn.num_batches_tracked": np.array(seed * 3 + 1, dtype=np.int64),
    }


def read_state(path: Path) -> State:
    with TensorFile(path) as file:
        return {name: file.read(name) for name in file.names}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """1024 values a block and more than one block in conv.weight: the seams are tested as well."""
    monkeypatch.setattr(blocks, "BUDGET", 1)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a state under a name, as a model with its buffers named."""

    def write(name: str, state: State) -> Path:
        write_file(tmp_path / name, state, BUFFERS)
        return tmp_path / name

    return write


@pytest.fixture
def sources(write: Callable[..., Path]) -> Callable[..., list[Source]]:
    """Return a function that writes states as the updates of client-0, client-1, … and returns the sources."""

    def sources(states: list[State], weights: list[float] | None = None) -> list[Source]:
        counts = weights or [1.0] * len(states)
        pairs = zip(states, counts, strict=True)
        return [Source(f"client-{i}", write(f"client-{i}", state), n) for i, (state, n) in enumerate(pairs)]

    return sources


@pytest.fixture(name="make_state")
def make_state_fixture() -> Callable[..., State]:
    return make_state


@pytest.fixture(name="read_state")
def read_state_fixture() -> Callable[[Path], State]:
    return read_state
