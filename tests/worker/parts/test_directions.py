"""Directions of updates against a slow reference, and what is looked at of a large model."""

from pathlib import Path

import numpy as np
import pytest

from contract.tensors import write_file
from worker.parts.blocks import Source, header_of
from worker.parts.directions import RUN, Changes, changes_of, cosine, runs


def files(folder: Path, changes: list[np.ndarray], weights: list[float]) -> tuple[list[Source], Path]:
    base = np.linspace(-1, 1, len(changes[0]), dtype=np.float32)
    write_file(folder / "base", {"w": base})
    sources = []
    for index, (change, weight) in enumerate(zip(changes, weights, strict=True)):
        write_file(folder / f"c{index}", {"w": (base + change).astype(np.float32)})
        sources.append(Source(f"c{index}", folder / f"c{index}", weight))
    return sources, folder / "base"


def test_directions_are_those_of_the_mean_of_the_others(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    drawn = [random.normal(size=500) for _ in range(4)]
    weights = [1.0, 2.0, 3.0, 4.0]
    sources, base = files(tmp_path, drawn, weights)
    found = changes_of(list(reversed(sources)), base).directions()
    assert list(found) == ["c0", "c1", "c2", "c3"]
    model = np.linspace(-1, 1, 500)
    mean = sum(weight * change for weight, change in zip(weights, drawn, strict=True)) / 10
    for index, name in enumerate(found):
        others = [other for other in range(4) if other != index]
        without = sum(weights[other] * drawn[other] for other in others) / sum(weights[other] for other in others)
        expected = cosine(drawn[index], np.asarray(without))
        assert found[name].cosine == pytest.approx(expected, abs=1e-4)
        assert found[name].to_mean == pytest.approx(
            np.linalg.norm(drawn[index] - mean) / np.linalg.norm(model), rel=1e-4
        )
        assert found[name].pull == pytest.approx(np.linalg.norm(mean - without) / np.linalg.norm(mean), rel=1e-4)


def test_the_same_change_is_a_copy_and_no_change_is_none(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    one, other = random.normal(size=300), random.normal(size=300)
    sources, base = files(tmp_path, [one, other, one, 0 * one, 0 * one, 2 * other], [1.0] * 6)
    found = changes_of(sources, base)
    assert found.copies() == [["c0", "c2"]], "twice as long is another change"
    assert found.directions()["c3"].cosine is None
    assert found.lengths["c4"] == 0


def test_many_are_compared_for_equality_only() -> None:
    random = np.random.default_rng(2)
    drawn = random.normal(size=(300, 4))
    drawn[7] = drawn[3]
    names = [f"{index:03}" for index in range(300)]
    assert Changes(names, np.full(300, 1 / 300), 1.0, drawn).copies() == [["003", "007"]]


def test_one_that_is_not_finite_is_left_out_and_the_shares_sum_to_one(tmp_path: Path) -> None:
    sources, base = files(tmp_path, [np.ones(10), np.full(10, np.nan), np.ones(10)], [1.0, 5.0, 3.0])
    found = changes_of(sources, base)
    assert found.names == ["c0", "c2"]
    assert found.shares.tolist() == [0.25, 0.75]


def test_of_a_large_model_runs_all_over_it_are_read(tmp_path: Path) -> None:
    write_file(tmp_path / "large", {"a": np.zeros((300, 300), np.float32), "b": np.zeros(10, np.float32)})
    found = list(runs(header_of(tmp_path / "large"), 16 * RUN))
    assert sum(block.count for block in found) == 16 * RUN
    assert [block.start for block in found] == sorted({block.start for block in found})
    assert found[-1].start > 80_000
    small = list(runs(header_of(tmp_path / "large"), 100_000))
    assert sum(block.count for block in small) == 90_010


@pytest.mark.parametrize("values", [RUN, 5 * RUN, 64 * RUN])
def test_runs_stay_within_their_tensors(tmp_path: Path, values: int) -> None:
    shapes = {"a": 7, "b": 1000, "c": 255, "d": 40_000, "e": 300}
    write_file(tmp_path / "model", {name: np.zeros(size, np.float32) for name, size in shapes.items()})
    for block in runs(header_of(tmp_path / "model"), values):
        assert block.start >= 0 and block.start + block.count <= shapes[block.name]
