"""Updates that began from older models: worked by hand, against a slow reference, and what a mean makes of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.staleness import StalenessConstant, StalenessPolynomial
from contract.tensors import BUFFERS_KEY, TensorFile, write_file
from tests.reference import fusing
from worker.parts.blocks import Source
from worker.parts.errors import PartError
from worker.parts.fuse import average_files
from worker.parts.rebase import factor_of, laid, lay_file

BUFFERS = {BUFFERS_KEY: json.dumps(["var", "count"])}


def read(path: Path) -> dict[str, np.ndarray]:
    with TensorFile(path) as file:
        return {name: file.read(name) for name in file.names}


def model(path: Path, weight: list[float], var: list[float], count: int) -> Path:
    arrays: dict[str, Any] = {name: np.array(each, np.float32) for name, each in (("weight", weight), ("var", var))}
    arrays["count"] = np.array([count], np.int64)
    write_file(path, arrays, BUFFERS)
    return path


def test_factors_by_hand() -> None:
    """1 / sqrt(1 + 3) = 1/2; (1 + 3)^-2 = 1/16; a fresh update counts 1 whatever the choice."""
    assert factor_of(StalenessPolynomial(), 3) == 0.5
    assert factor_of(StalenessPolynomial(exponent=2.0), 3) == 1 / 16
    assert factor_of(StalenessConstant(), 3) == 1.0
    assert [factor_of(choice, 0) for choice in (StalenessPolynomial(), StalenessConstant())] == [1.0, 1.0]


def test_a_step_is_laid_onto_the_rounds_model(tmp_path: Path) -> None:
    """Weights: 10 + (3 - 1) / 2 = 11. A variance: between 4 and 2, at 3, not 4 + (2 - 9) / 2, which is below 0."""
    current, base = model(tmp_path / "w", [10.0], [4.0], 7), model(tmp_path / "b", [1.0], [9.0], 3)
    lay_file(model(tmp_path / "u", [3.0], [2.0], 5), base, current, tmp_path / "laid", 0.5)
    made = read(tmp_path / "laid")
    assert (made["weight"].tolist(), made["var"].tolist(), made["count"].tolist()) == ([11.0], [3.0], [5])
    with TensorFile(tmp_path / "laid") as file:
        assert file.header.buffers == {"var", "count"}


VALUES = st.lists(st.floats(-1e3, 1e3, width=32), min_size=3, max_size=3)
CLIENT = st.tuples(VALUES, VALUES, st.integers(1, 900), st.integers(0, 40))


@given(current=VALUES, clients=st.lists(CLIENT, min_size=1, max_size=5))
def test_the_mean_of_laid_updates_is_fedbuffs(
    current: list[float], clients: list[tuple[list[float], list[float], int, int]]
) -> None:
    choice = StalenessPolynomial()
    factors = [factor_of(choice, age) for *_, age in clients]
    steps = [
        laid(np.array(current), np.array(base), np.array(update), factor, True)
        for (base, update, *_), factor in zip(clients, factors, strict=True)
    ]
    counts = [n for _, _, n, _ in clients]
    mean = sum(n * step for n, step in zip(counts, steps, strict=True)) / sum(counts)
    wanted = fusing.buffered(current, [c[0] for c in clients], [c[1] for c in clients], counts, factors)
    assert mean == pytest.approx(wanted, rel=1e-9, abs=1e-9)


def test_files_of_three_ages_become_fedbuffs_model(tmp_path: Path) -> None:
    rng, choice = np.random.default_rng(3), StalenessPolynomial()
    current = rng.normal(size=50).astype(np.float32)
    bases = [rng.normal(size=50).astype(np.float32) for _ in range(3)]
    updates = [base + np.float32(0.1) * rng.normal(size=50).astype(np.float32) for base in bases]
    whole = model(tmp_path / "w", current.tolist(), [1.0], 1)
    sources = []
    for number, (base, update) in enumerate(zip(bases, updates, strict=True)):
        files = [model(tmp_path / f"{what}{number}", each.tolist(), [1.0], 1) for what, each in
                 (("b", base), ("u", update))]  # fmt: skip
        lay_file(files[1], files[0], whole, tmp_path / f"l{number}", factor_of(choice, number + 1))
        sources.append(Source(f"client-{number}", tmp_path / f"l{number}", 10 * (number + 1)))
    average_files(sources[::-1], tmp_path / "made")
    factors = [2**-0.5, 3**-0.5, 0.5]
    wanted = fusing.buffered(current, bases, updates, [10, 20, 30], factors)
    assert read(tmp_path / "made")["weight"] == pytest.approx(np.array(wanted), abs=1e-6)


@pytest.mark.parametrize("size", [1, 2])
def test_another_model_is_refused(tmp_path: Path, size: int) -> None:
    current = model(tmp_path / "w", [1.0] * 3, [1.0], 1)
    other = model(tmp_path / "b", [1.0] * size, [1.0], 1)
    with pytest.raises(PartError, match="the model that it began from") as error:
        lay_file(current, other, current, tmp_path / "laid", 1.0)
    assert error.value.code == "schema_mismatch"


def test_what_overflows_is_refused(tmp_path: Path) -> None:
    largest = float(np.finfo(np.float32).max)
    current, base = model(tmp_path / "w", [largest], [1.0], 1), model(tmp_path / "b", [-largest], [1.0], 1)
    with pytest.raises(PartError, match="weight") as error:
        lay_file(current, base, current, tmp_path / "laid", 1.0)
    assert error.value.code == "non_finite"
