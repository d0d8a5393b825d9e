"""Robust aggregation: what liars cannot do, the rules and their files against slow references, refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.choices import choices_of, kind_of
from contract.recipes.parts import FuseChoice
from tests.reference import fusing
from worker.parts import robust
from worker.parts.errors import PartError
from worker.parts.fuse import shares
from worker.parts.norms import Norms

SEEDS = st.integers(0, 2**32 - 1)


def krum(values: Any, byzantine: int = 1, keep: int = 1) -> list[int]:
    gram = robust.centred_gram(np.asarray(values, np.float64))
    return robust.best(robust.krum_order(robust.squared_distances(gram), byzantine), keep)


def clipped(values: Any, previous: Any, counts: Any, max_norm: float) -> Any:
    """The rule over the whole model as one block."""
    norms = Norms(len(values))
    norms.add(values - previous)
    parts = np.asarray(shares(list(counts))) * robust.clip_factors(norms, max_norm)
    return robust.clipped_mean(previous, values, parts)


@given(SEEDS, st.integers(1, 7))
def test_median_is_the_slow_one_and_ignores_order(seed: int, clients: int) -> None:
    values = np.random.default_rng(seed).normal(size=(clients, 4))
    np.testing.assert_allclose(robust.median(values), fusing.median(values))
    assert (robust.median(values[::-1]) == robust.median(values)).all()


@given(SEEDS, st.integers(1, 9), st.sampled_from([0.0, 0.1, 0.25, 0.49]))
def test_trimmed_mean_is_the_slow_one_and_ignores_order(seed: int, clients: int, trim: float) -> None:
    values, cut = np.random.default_rng(seed).normal(size=(clients, 4)), robust.trimmed_count(clients, trim)
    np.testing.assert_allclose(robust.trimmed_mean(values, cut), fusing.trimmed_mean(values, cut))
    np.testing.assert_allclose(robust.trimmed_mean(values[::-1], cut), robust.trimmed_mean(values, cut))


@given(SEEDS, st.integers(1, 4), st.floats(-1e300, 1e300))
def test_a_minority_cannot_leave_the_honest_range(seed: int, liars: int, lie: float) -> None:
    honest = np.random.default_rng(seed).normal(size=(liars + 1, 3))
    made = robust.median(np.stack([*honest, *np.full((liars, 3), lie)]))
    assert (made >= honest.min(axis=0)).all() and (made <= honest.max(axis=0)).all()
    few = np.stack([*honest, *honest, *np.full((liars, 3), lie)])
    trimmed = robust.trimmed_mean(few, robust.trimmed_count(len(few), liars / len(few)))
    assert (trimmed >= honest.min(axis=0) - 1e-12).all() and (trimmed <= honest.max(axis=0) + 1e-12).all()


def test_trimmed_mean_by_hand() -> None:
    assert robust.trimmed_mean(np.array([[1.0], [2.0], [100.0], [3.0], [-50.0]]), 1).tolist() == [2.0]
    assert [robust.trimmed_count(m, 0.1) for m in (1, 2, 3, 5, 10, 11)] == [0, 0, 1, 1, 1, 2]


@given(SEEDS, st.integers(0, 2), st.integers(0, 3))
def test_krum_is_the_slow_one(seed: int, byzantine: int, more: int) -> None:
    values = np.random.default_rng(seed).normal(size=(2 * byzantine + 3 + more, 5)) + 1e3
    order = fusing.krum_order(values, byzantine)
    assert krum(values, byzantine) == order[:1]
    assert krum(values, byzantine, len(values) - 1) == sorted(order[:-1])


def test_of_equal_models_krum_takes_the_first() -> None:
    assert krum(np.ones((5, 2)), 1, 2) == [0, 1]


@given(SEEDS, st.integers(1, 2))
def test_krum_never_takes_far_liars(seed: int, liars: int) -> None:
    rng = np.random.default_rng(seed)
    honest = rng.normal(size=(liars + 3, 4))
    values = np.concatenate([honest, 1e4 + rng.normal(size=(liars, 4))])
    assert max(krum(values, liars, 3)) < len(honest)


@pytest.mark.parametrize("near", [1e3, 1e10, 1e20])
@pytest.mark.parametrize("far", [3e38, 1.7e308])
def test_a_liar_far_away_does_not_hide_another_from_krum(near: float, far: float) -> None:
    """Distances must not drown in the rounding of the farthest, nor in its overflow."""
    honest = np.random.default_rng(0).normal(size=(5, 50))
    models = [np.full(50, near), *honest, np.full(50, far)]
    for keep in (1, 4):
        assert set(krum(models, 2, keep)) <= {1, 2, 3, 4, 5}


def test_a_liar_far_away_does_not_hide_another_in_files(make_state: Any, sources: Any, tmp_path: Path) -> None:
    states = [make_state(seed) for seed in range(7)]
    for index, size in ((0, 1e10), (6, 3e38)):
        states[index]["conv.weight"] = np.full_like(states[index]["conv.weight"], size)
    chosen = robust.krum_files(sources(states), tmp_path / "out", byzantine=2, keep=4)
    assert not {"client-0", "client-6"} & set(chosen.kept)


@given(SEEDS, st.floats(0.01, 10))
def test_clipping_bounds_every_clients_pull(seed: int, bound: float) -> None:
    rng = np.random.default_rng(seed)
    start, models, counts = rng.normal(size=3), rng.normal(size=(4, 3)) * 100, rng.integers(1, 9, 4)
    made = clipped(models, start, counts, bound)
    np.testing.assert_allclose(made, fusing.clipped_mean(start, models, counts.tolist(), bound))
    assert np.linalg.norm(made - start) <= bound * (1 + 1e-9)
    free = clipped(models, start, counts, 1e9)
    np.testing.assert_allclose(free, np.average(models, axis=0, weights=counts))


# --------------------------------------------------------------------------------------------------------------- files
def test_median_and_trimmed_files(make_state: Any, read_state: Any, sources: Any, tmp_path: Path) -> None:
    states = [make_state(seed) for seed in range(6)]
    given = sources(states, [1.0, 9.0, 1.0, 1.0, 1.0, 0.0])
    names = [f"client-{index}" for index in range(5)]
    assert robust.median_files(given[::-1], tmp_path / "median") == names
    assert robust.trimmed_mean_files(given, tmp_path / "trimmed", 0.2) == names
    for path, rule in (("median", fusing.median), ("trimmed", lambda rows: fusing.trimmed_mean(rows, 1))):
        made = read_state(tmp_path / path)
        for name in ("conv.weight", "bn.weight", "bn.running_var"):
            rows = [state[name].ravel() for state in states[:5]]
            np.testing.assert_allclose(made[name].ravel(), rule(rows), rtol=1e-6)
        assert made["bn.num_batches_tracked"] == {"median": 7, "trimmed": 10}[path]  # of 1, 4, 7, 10, 13


def test_krum_files(make_state: Any, read_state: Any, sources: Any, tmp_path: Path) -> None:
    """Buffers differ wildly and do not count; the liar's parameters do."""
    base, rng = make_state(0), np.random.default_rng(1)
    states = []
    for index in range(5):
        state = {name: array.copy() for name, array in base.items()}
        state["conv.weight"] += (0.01 * rng.normal(size=state["conv.weight"].shape)).astype(np.float32)
        state["bn.running_mean"] += np.float32(1000 * index)
        states.append(state)
    states[1]["conv.weight"] += np.float32(5.0)
    flat = [np.concatenate([state["conv.weight"].ravel(), state["bn.weight"]]) for state in states]
    chosen = robust.krum_files(sources(states), tmp_path / "out", byzantine=1, keep=3)
    assert chosen.kept == [f"client-{index}" for index in sorted(fusing.krum_order(flat, 1)[:3])]
    assert chosen.order[-1] == "client-1"
    kept = [states[int(name[-1])] for name in chosen.kept]
    made = read_state(tmp_path / "out")
    np.testing.assert_allclose(
        made["conv.weight"], np.mean([state["conv.weight"] for state in kept], axis=0, dtype=np.float64), rtol=1e-6
    )
    np.testing.assert_array_equal(made["bn.running_mean"], states[2]["bn.running_mean"])


MANY = 2**63 - 1
BY_RULE: dict[str, Any] = {
    "median": lambda given, base, out: robust.median_files(given, out),
    "trimmed_mean": lambda given, base, out: robust.trimmed_mean_files(given, out, 0.4),
    "krum": lambda given, base, out: robust.krum_files(given, out, byzantine=2),
    "clipped_mean": lambda given, base, out: robust.clipped_mean_files(given, base, out, 1.0),
}


def test_every_robust_rule_is_tried_here() -> None:
    assert not {kind_of(each) for each in choices_of(FuseChoice) if each.robust} - set(BY_RULE), "add a row to BY_RULE"


@pytest.mark.parametrize("rule", BY_RULE)
@pytest.mark.parametrize("lie", [1e30, -1e30])
def test_liars_with_honest_parameters_set_no_buffer(
    rule: str, lie: float, make_state: Any, read_state: Any, write: Any, sources: Any, tmp_path: Path
) -> None:
    """Two of seven; their parameters are those that Krum takes."""
    base, states = make_state(0), [make_state(1) for _ in range(7)]
    for index, state in enumerate(states):
        state["conv.weight"] += np.float32(0.001 * abs(index - 3))
        state["bn.num_batches_tracked"] = np.array(100 + index)
    honest = [states[index] for index in (0, 1, 5, 6, 2)]
    for liar in (states[3], states[4]):
        liar["bn.running_mean"] = np.full(5, lie, np.float32)
        liar["bn.running_var"] = np.full(5, abs(lie), np.float32)
        liar["bn.num_batches_tracked"] = np.array(MANY if lie > 0 else -MANY)
    BY_RULE[rule](sources(states), write("base", base), tmp_path / "out")
    made = read_state(tmp_path / "out")
    for name in ("bn.running_mean", "bn.running_var", "bn.num_batches_tracked"):
        told = np.stack([state[name] for state in honest])
        assert (told.min(0) <= made[name]).all(), name
        assert (made[name] <= told.max(0)).all(), name
        assert made[name].dtype == states[0][name].dtype


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200, 1e300])
def test_clipping_of_values_whose_squares_are_no_numbers(
    size: float, read_state: Any, write: Any, sources: Any, tmp_path: Path
) -> None:
    base = {"w": np.zeros(3000)}
    given = [{"w": np.full(3000, size * factor)} for factor in (0.5, 0.75)]
    norms = robust.clipped_mean_files(sources(given), write("base", base), tmp_path / "out", size)
    lengths = [size * factor * np.sqrt(3000) for factor in (0.5, 0.75)]
    assert list(norms.values()) == pytest.approx(lengths, rel=1e-12)
    made = read_state(tmp_path / "out")["w"]
    np.testing.assert_allclose(made, np.full(3000, size / np.sqrt(3000)), rtol=1e-12)  # both have the norm `size`
    np.testing.assert_allclose(clipped(np.stack([each["w"] for each in given]), base["w"], [1, 1], size), made)


@pytest.mark.parametrize("max_norm", [1e-3, 1.0, 1e5])
def test_no_liar_stops_a_clipped_mean_by_a_norm_that_is_no_number(
    max_norm: float, read_state: Any, write: Any, sources: Any, tmp_path: Path
) -> None:
    """||1.7e308 of 3000 values|| is beyond float64; the liar's move has the norm `max_norm` like any long one's."""
    base, liar = {"w": np.zeros(3000)}, {"w": np.full(3000, -1.7e308)}
    norms = robust.clipped_mean_files(sources([base, liar]), write("base", base), tmp_path / "out", max_norm)
    assert list(norms.values()) == [0.0, np.finfo(np.float64).max]
    expected = np.full(3000, -max_norm / np.sqrt(3000) / 2)
    np.testing.assert_allclose(read_state(tmp_path / "out")["w"], expected, rtol=1e-9)
    np.testing.assert_allclose(clipped(np.stack([base["w"], liar["w"]]), base["w"], [1, 1], max_norm), expected, 1e-9)


@given(SEEDS, st.sampled_from([1e-300, 1e-3, 1.0, 1e3, 1e300]))
def test_shares_of_norms_are_the_quotients(seed: int, length: float) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(5, 12)) * 10.0 ** rng.integers(-150, 150, (5, 1))
    vectors[0] = 0.0
    norms = Norms(5)
    norms.add(vectors[:, :5])
    norms.add(vectors[:, 5:])
    lengths = np.linalg.norm(vectors, axis=1)
    np.testing.assert_allclose(norms.values(), lengths, rtol=1e-12)
    quotients = [1.0, *(min(1.0, length / float(each)) if each > length else 1.0 for each in lengths[1:])]
    np.testing.assert_allclose(norms.shares(length), quotients, rtol=1e-9, atol=1e-300)


def test_a_distance_that_is_no_number_is_refused(write: Any, sources: Any, tmp_path: Path) -> None:
    base, given = {"w": np.full(4, 1.7e308)}, [{"w": np.full(4, -1.7e308)}]
    with pytest.raises(PartError, match="distances from the round's model") as caught:
        robust.clipped_mean_files(sources(given), write("base", base), tmp_path / "out", 1.0)
    assert caught.value.code == "non_finite"


def test_the_median_of_the_largest_numbers_there_are() -> None:
    assert robust.median(np.array([[1.7e308], [-1.7e308]])) == 0.0


def test_clipped_files(make_state: Any, read_state: Any, write: Any, sources: Any, tmp_path: Path) -> None:
    base, states, counts = make_state(0), [make_state(seed) for seed in (1, 2)], [1.0, 3.0]
    norms = robust.clipped_mean_files(sources(states, counts), write("base", base), tmp_path / "out", 2.0)

    def flat(state: Any) -> Any:
        return np.concatenate([state["conv.weight"].ravel(), state["bn.weight"]]).astype(np.float64)

    assert norms == {
        f"client-{i}": pytest.approx(float(np.linalg.norm(flat(state) - flat(base)))) for i, state in enumerate(states)
    }
    made = read_state(tmp_path / "out")
    expected = fusing.clipped_mean(flat(base), [flat(state) for state in states], counts, 2.0)
    np.testing.assert_allclose(flat(made), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        made["bn.running_var"], np.median([state["bn.running_var"] for state in states], axis=0), 1e-6
    )


@pytest.mark.parametrize("rule", BY_RULE)
@pytest.mark.parametrize(
    ("changes", "counts", "code"),
    [
        ({}, [0.0] * 7, "no_positive_weight"),
        ({}, [1.0] * 6 + [-1.0], "bad_weight"),
        ({"w": np.array([np.nan, 1.0], np.float32)}, [1.0] * 7, "non_finite"),
        ({"w": np.array([1.0], np.float32)}, [1.0] * 7, "schema_mismatch"),
    ],
)
def test_files_are_refused(
    rule: str, changes: Any, counts: list[float], code: str, write: Any, sources: Any, tmp_path: Path
) -> None:
    states = [{"w": np.array([index, 1.0], np.float32)} for index in range(7)]
    given = sources([*states[:6], states[6] | changes], counts)
    with pytest.raises(PartError) as caught:
        BY_RULE[rule](given, write("base", states[0]), tmp_path / "out")
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: robust.trimmed_count(1, 0.5), "bad_option"),
        (lambda: robust.trimmed_count(1, -0.1), "bad_option"),
        (lambda: krum([[1.0]] * 4, 1), "bad_option"),
        (lambda: krum([[1.0]] * 5, -1), "bad_option"),
        (lambda: krum([[1.0]] * 5, 1, 0), "bad_option"),
        (lambda: krum([[1.0]] * 5, 1, 6), "bad_option"),
        (lambda: robust.clip_factors(Norms(1), 0.0), "bad_option"),
    ],
)
def test_refusals(call: Any, code: str) -> None:
    with pytest.raises(PartError) as caught:
        call()
    assert caught.value.code == code
