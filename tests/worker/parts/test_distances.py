"""How far updates lie from the model, and which stand out."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.tensors import BUFFERS_KEY, TensorFile, write_file
from tests.reference import distances as slow
from worker.parts import distances
from worker.parts.blocks import Source, header_of
from worker.parts.distances import Distance, Meter, measure_files, outliers, scores, too_far
from worker.parts.errors import PartError
from worker.parts.fuse import average_files

NOTES = {BUFFERS_KEY: '["bn.running_mean"]'}
Arrays = dict[str, np.ndarray]


def model(seed: int, scale: float = 1.0) -> Arrays:
    rng = np.random.default_rng(seed)
    return {
        "w": (scale * rng.normal(size=(7, 5))).astype(np.float32),
        "half": (scale * rng.normal(size=9)).astype(np.float16),
        "bn.running_mean": (1e3 * rng.normal(size=4)).astype(np.float32),
        "steps": np.array(seed, np.int64),
    }


def put(folder: Path, name: str, arrays: Arrays) -> Source:
    write_file(folder / name, arrays, NOTES)
    return Source(name, folder / name, 1)


def parameters(arrays: Arrays) -> list[float]:
    return [float(value) for name in ("w", "half") for value in arrays[name].ravel()]


def test_by_hand(tmp_path: Path) -> None:
    """w = (3, 4): norm 5. (6, 8) lies 5 off, twice as long; (0, 0) lies 5 off and has no length."""
    base = put(tmp_path, "base", {"w": np.array([3.0, 4.0], np.float32)})
    given = [put(tmp_path, name, {"w": np.array(w, np.float32)}) for name, w in (("a", [6, 8]), ("b", [0, 0]))]
    found = measure_files(given, base.path)
    assert found == {"a": Distance(5.0, 10.0, 5.0), "b": Distance(5.0, 0.0, 5.0)}
    assert (found["a"].norm_ratio, found["a"].relative, found["b"].norm_ratio) == (2.0, 1.0, 0.0)


def test_a_ratio_beyond_all_numbers_is_the_largest_for_infinity_is_no_json(tmp_path: Path) -> None:
    """w = (0.3, 0.4): norm 1/2. ||w_k|| is beyond float64, told as its largest number; twice that is no number."""
    base = put(tmp_path, "base", {"w": np.array([0.3, 0.4])})
    found = measure_files([put(tmp_path, "a", {"w": np.array([1e300, 1e300])})], base.path)["a"]
    assert found.norm_ratio == found.relative == float(np.finfo(np.float64).max)
    assert too_far({"a": found}, 1e6) and outliers({"a": found})


def test_figures_are_those_of_a_slow_loop_over_the_parameters_whoever_else_is_there(tmp_path: Path) -> None:
    base = put(tmp_path, "base", model(0))
    files = {f"c{seed}": model(seed, 1 + seed) for seed in range(1, 6)}
    sources = [put(tmp_path, name, arrays) for name, arrays in files.items()]
    found = measure_files(sources, base.path)
    for name, arrays in files.items():
        assert found[name].norm == pytest.approx(slow.norm(parameters(arrays)), rel=1e-12)
        away = slow.distance(parameters(arrays), parameters(model(0)))
        assert found[name].distance == pytest.approx(away, rel=1e-12)
    assert measure_files(sources[::-1], base.path) == found
    assert {each.name: measure_files([each], base.path)[each.name] for each in sources} == found


def test_many_blocks_and_more_files_than_are_kept_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = put(tmp_path, "base", {"w": np.ones(5000, np.float32)})
    sources = [put(tmp_path, f"c{k:02}", {"w": np.full(5000, 1 + k, np.float32)}) for k in range(40)]
    monkeypatch.setattr("worker.parts.blocks.BUDGET", 4 * 1024)
    pulses: list[None] = []
    found = measure_files(sources, base.path, lambda: pulses.append(None))
    assert [each.relative for each in found.values()] == pytest.approx(list(range(40)))
    assert len(pulses) == 5


def test_an_update_that_is_not_finite_has_no_figures_and_one_that_is_too_long_has_the_largest(tmp_path: Path) -> None:
    base = put(tmp_path, "base", {"w": np.ones(2)})
    given = [
        put(tmp_path, name, {"w": np.array([1.0, value])})
        for name, value in (("nan", np.nan), ("endless", np.inf), ("long", 1e300), ("fine", 2.0))
    ]
    found = measure_files(given, base.path)
    assert "nan" not in found
    assert found["long"].distance == np.finfo(np.float64).max
    assert found["fine"].distance == 1.0


def test_a_mean_that_measures_on_its_way_has_the_same_figures_and_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks are cut in halves, unlike those of a mean alone, and added as numpy adds."""
    monkeypatch.setattr("worker.parts.blocks.BUDGET", 4 * 150_001)
    monkeypatch.setattr("worker.parts.folding.SMALL", 0)  # by threads, too
    rng = np.random.default_rng(0)

    def large(seed: int) -> Arrays:
        drawn: Arrays = {"big": rng.normal(size=700_003).astype(np.float32), "wide": rng.normal(size=33_001)}
        return drawn | model(seed)

    base = put(tmp_path, "base", large(0))
    sources = [replace(put(tmp_path, f"c{k}", large(k)), weight=k) for k in range(1, 5)]
    plain, measuring = tmp_path / "plain", tmp_path / "measuring"
    average_files(sources, plain, base=header_of(base.path))
    with Meter(base.path) as meter:
        names = average_files(sources, measuring, base=header_of(base.path), meter=meter)
    assert meter.found(names) == measure_files(sources, base.path)
    assert measuring.read_bytes() == plain.read_bytes()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_mean_that_measures_refuses_what_a_mean_refuses(tmp_path: Path, value: float) -> None:
    base = put(tmp_path, "base", {"w": np.ones(3)})
    sources = [put(tmp_path, "a", {"w": np.ones(3)}), put(tmp_path, "b", {"w": np.array([1.0, value, 2.0])})]
    with Meter(base.path) as meter, pytest.raises(PartError, match="'b', tensor 'w'") as caught:
        average_files(sources, tmp_path / "out", meter=meter)
    assert caught.value.code == "non_finite"


def test_values_whose_squares_are_beyond_float64_are_averaged_all_the_same(tmp_path: Path) -> None:
    base = put(tmp_path, "base", {"w": np.ones(2)})
    sources = [put(tmp_path, "a", {"w": np.array([1.0, 1e300])})]
    with Meter(base.path) as meter:
        average_files(sources, tmp_path / "out", meter=meter)
    assert meter.found(["a"]) == measure_files(sources, base.path)
    with TensorFile(tmp_path / "out") as file:
        assert file.read("w").tolist() == [1.0, 1e300]


def test_another_file_than_the_model_is_refused_by_name(tmp_path: Path) -> None:
    base = put(tmp_path, "base", model(0))
    with pytest.raises(PartError, match="update of a") as caught:
        measure_files([put(tmp_path, "a", {"w": np.ones(3, np.float32)})], base.path)
    assert caught.value.code == "schema_mismatch"


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=9))
def test_scores_are_those_of_a_slow_rule(values: list[float]) -> None:
    assert scores(values) == pytest.approx(slow.spreads(values), rel=1e-9, abs=1e-9)


def cohort(*norms: float, distance: float = 0.2) -> dict[str, Distance]:
    return {f"c{number}": Distance(1.0, norm, distance) for number, norm in enumerate(norms)}


def test_clients_that_are_alike_stand_out_by_nothing() -> None:
    assert outliers(cohort(1.0, 1.01, 1.02, 1.0, 1.03)) == {}
    alike = {f"c{n}": Distance(1.0, 1.0, 0.1 * (1 + n / 2)) for n in range(6)}
    assert outliers(alike) == {}, "the most trained one lies 3.5 times as far as the least"


def test_a_difference_a_hundredfold_and_a_far_one_stand_out_with_the_reason() -> None:
    found = cohort(1.0, 1.01, 1.02, 0.99, 1.0) | {
        "difference": Distance(1.0, 0.1, 1.0),
        "scaled": Distance(1.0, 101.0, 100.0),
        "far": Distance(1.0, 1.4, 3.0),
    }
    reasons = outliers(found)
    assert set(reasons) == {"difference", "scaled", "far"}
    assert "instead of the weights" in reasons["difference"]
    assert reasons["scaled"].startswith("its norm is 101 of the model's, the median 1")
    assert reasons["far"].startswith("it lies 3 of the model's norm off, the median 0.2")
    shuffled = dict(sorted(found.items(), key=lambda pair: pair[1].norm))
    assert outliers(shuffled) == reasons


def test_a_client_that_sends_the_model_back_stands_out() -> None:
    found = cohort(1.0, 1.01, 1.02, 1.0) | {"idle": Distance(1.0, 1.0, 0.0)}
    assert set(outliers(found)) == {"idle"}
    found = cohort(1.0, 1.01, 1.02, 1.0) | {"small": Distance(1.0, 1.0, 0.03)}
    assert outliers(found) == {}, "little data, a seventh of the distance"


def test_few_clients_are_held_to_fixed_ratios() -> None:
    assert set(outliers(cohort(1.0, 0.4, 2.5))) == {"c1", "c2"}
    assert outliers(cohort(0.6, 1.9)) == {}
    assert outliers(cohort(0.1), starts_at_model=False) == {}
    assert set(outliers(cohort(0.1))) == {"c0"}


def test_a_model_of_zeros_has_no_ratios_and_outliers_all_the_same() -> None:
    found = {f"c{n}": Distance(0.0, 1.0 + n / 10, 1.0 + n / 10) for n in range(4)} | {"big": Distance(0.0, 90.0, 90.0)}
    assert set(outliers(found)) == {"big"}
    assert too_far(found, 0.1) == {}


def test_too_far_names_the_option() -> None:
    found = cohort(1.0) | {"far": Distance(2.0, 2.0, 3.0)}
    assert too_far(found, 1.5) == {}, "3 / 2 is not above 1.5"
    assert list(too_far(found, 1.4)) == ["far"]
    assert "rounds.max_distance is 1.4" in too_far(found, 1.4)["far"]


def test_the_rules_constants() -> None:
    assert (distances.FACTOR, distances.FEW, distances.LOW, distances.HIGH) == (5.0, 4, 0.5, 2.0)


@pytest.mark.parametrize("count", [255, 256, 257, 5000, 8191, 1 << 14])
def test_a_block_in_parts_has_the_sum_of_the_whole(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(count)
    values, start = rng.normal(size=count).astype(np.float32), rng.normal(size=count)
    monkeypatch.setattr(distances, "_PART", 256)
    wide = values.astype(np.float64)
    assert list(distances._lengths(values, start)) == [np.square(wide).sum(), np.square(wide - start).sum()]
