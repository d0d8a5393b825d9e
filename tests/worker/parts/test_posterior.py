"""Posteriors: what is exact, what is reproducible, rules and files against slow references, refusals."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import fusing
from worker.parts import posterior, posterior_files
from worker.parts.errors import PartError
from worker.parts.fuse import shares

FLOATS = st.floats(-1e6, 1e6)
KEY: dict[str, Any] = {"seed": 7, "round_index": 3, "member": 2}


def moments_of(folder: Path) -> tuple[Path, Path, Path]:
    return folder / "mean", folder / "var", folder / "floor"


def gaussian(values: Any, counts: Any) -> tuple[Any, Any]:
    """The two passes over a whole model as one block."""
    parts = np.asarray(shares(counts))
    mean = posterior.weighted_mean(parts, np.asarray(values, np.float64))
    return mean, posterior.weighted_variance(parts, np.asarray(values, np.float64), mean)


@given(st.lists(st.tuples(st.lists(FLOATS, min_size=3, max_size=3), st.integers(1, 50)), min_size=1, max_size=6))
def test_gaussian_is_that_of_each_sample_counted_once(clients: list[tuple[list[float], int]]) -> None:
    """n_k copies of client k with weight 1 have the same mean and variance."""
    models, counts = [values for values, _ in clients], [n for _, n in clients]
    mean, var = gaussian(models, counts)
    for found, slow in zip((mean, var), fusing.gaussian(models, counts), strict=True):
        np.testing.assert_allclose(found, slow, rtol=1e-9, atol=1e-6)
    repeated = np.repeat(np.asarray(models), counts, axis=0)
    np.testing.assert_allclose(mean, repeated.mean(axis=0), rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(var, repeated.var(axis=0), rtol=1e-6, atol=1e-3)


@given(st.lists(FLOATS, min_size=1, max_size=4), st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 9))
def test_equal_clients_have_variance_exactly_zero(model: list[float], counts: list[int], seed: int) -> None:
    mean, var = gaussian([model] * len(counts), counts)
    assert mean.tolist() == model
    assert not var.any()
    noise = np.random.default_rng(seed).normal(size=len(model))
    assert posterior.gaussian_sample(mean, var, noise, 1.0).tolist() == model


def test_two_passes_survive_a_large_mean() -> None:
    """E[w^2] - E[w]^2 would be off by more than the variance itself."""
    np.testing.assert_allclose(gaussian([[1e8], [1e8 + 1]], [1, 1])[1], [0.25], rtol=1e-9)


@given(st.integers(0, 99), st.sampled_from([0.0, 0.1, 1.0]), st.sampled_from([None, -0.5, 0.5]))
def test_a_sample_is_the_slow_one(seed: int, scale: float, floor: float | None) -> None:
    rng = np.random.default_rng(seed)
    mean, var, noise = rng.normal(size=4), rng.random(4), rng.normal(size=4)
    made = posterior.gaussian_sample(mean, var, noise, scale, None if floor is None else np.asarray(floor))
    slow = fusing.gaussian_sample(mean, var, noise, scale, -np.inf if floor is None else floor)
    np.testing.assert_allclose(made, slow, rtol=1e-12)


@given(st.lists(st.tuples(st.floats(1e-300, 1.0), st.integers(1, 9)), min_size=1, max_size=6), st.randoms())
def test_dirichlet_coefficients_are_the_slow_ones_and_ignore_order_and_scale(clients: list[Any], random: Any) -> None:
    gamma, counts = (list(part) for part in zip(*clients, strict=True))
    made = posterior.coefficients(counts, np.log(gamma))
    assert made.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(made, fusing.dirichlet([[0.0]] * len(counts), counts, gamma)[0], rtol=1e-9, atol=1e-300)
    order = random.sample(range(len(clients)), len(clients))
    other = posterior.coefficients([counts[i] for i in order], np.log([gamma[i] * 0.5 for i in order]))
    np.testing.assert_allclose(other, made[order], rtol=1e-9, atol=1e-300)


def test_tiny_gammas_keep_their_ratio_and_zeros_do_not_count() -> None:
    logs = np.array([np.log(3e-310), np.log(1e-310), 0.0, -np.inf])
    np.testing.assert_allclose(posterior.coefficients([1, 1, 0, 2], logs), [0.75, 0.25, 0, 0], rtol=1e-9)


def test_draws_depend_on_the_name_alone() -> None:
    one = posterior.draw_log_gamma(7, 3, 0, ["a", "b", "c"], 0.5)
    assert posterior.draw_log_gamma(7, 3, 0, ["c", "a"], 0.5).tolist() == [one[2], one[0]]
    assert len({posterior.draws(*key).random() for key in [(7, 3, 0, "w"), (7, 3, 1, "w"), (7, 4, 0, "w")]}) == 3


@pytest.mark.parametrize("alpha", [0.01, 0.5, 2.0])
def test_drawn_coefficients_have_the_moments_of_a_dirichlet(alpha: float) -> None:
    """Mean 1/m and variance (1/m)(1 - 1/m)/(m alpha + 1), m = 3; 4000 draws, five standard errors of the mean."""
    drawn = np.stack(
        [
            posterior.coefficients([1, 1, 1], posterior.draw_log_gamma(1, 0, member, ["a", "b", "c"], alpha))
            for member in range(4000)
        ]
    )
    var = (1 / 3) * (2 / 3) / (3 * alpha + 1)
    np.testing.assert_allclose(drawn.mean(axis=0), 1 / 3, atol=5 * np.sqrt(var / 4000))
    np.testing.assert_allclose(drawn.var(axis=0), var, rtol=0.15)


@given(st.integers(0, 99), st.integers(1, 5), st.sampled_from([0.0, 0.5, 2.0]))
def test_swag_is_the_slow_one(seed: int, clients: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    values, diagonal, low_rank = rng.normal(size=(clients, 3)), rng.normal(size=3), rng.normal(size=clients)
    made = posterior.swag_sample(posterior.swag_moments(values), diagonal, low_rank, scale)
    np.testing.assert_allclose(made, fusing.swag_sample(values, diagonal, low_rank, scale))


def test_swag_by_hand() -> None:
    """Models 0 and 2: mean 1, variance 1; running means 0 and 1, so deviations 0 and 1."""
    swag = posterior.swag_moments(np.array([[0.0], [2.0]]))
    assert (swag.mean, swag.var) == (np.array([1.0]), np.array([1.0]))
    assert swag.deviations.tolist() == [[0.0], [1.0]]
    sample = posterior.swag_sample(swag, np.array([0.5]), np.array([9.0, 3.0]), scale=4.0)
    assert sample.tolist() == [1.0 + 2.0 * (0.5 + 3.0)]
    alone = posterior.swag_moments(np.array([[4.0]]))
    assert posterior.swag_sample(alone, np.array([2.0]), np.array([2.0])).tolist() == [4.0]


# --------------------------------------------------------------------------------------------------------------- files
def test_moments_of_files(make_state: Any, read_state: Any, sources: Any, tmp_path: Path) -> None:
    states, counts = [make_state(seed) for seed in range(3)], [2.0, 5.0, 1.0]
    given = sources(states, counts)[::-1]
    paths = moments_of(tmp_path)
    assert posterior_files.posterior_files(given, *paths) == ["client-0", "client-1", "client-2"]
    mean, var, floor = (read_state(path) for path in paths)
    assert list(floor) == ["bn.running_var"]
    assert (floor["bn.running_var"] == np.min([state["bn.running_var"] for state in states], axis=0)).all()
    assert mean["bn.num_batches_tracked"] == 7
    for name in var:
        expected = fusing.gaussian([state[name].ravel() for state in states], counts)
        np.testing.assert_allclose(mean[name].ravel(), expected[0], rtol=1e-6)
        np.testing.assert_allclose(var[name].ravel(), expected[1], rtol=1e-6)


def test_a_member_is_the_same_every_time_and_no_other(
    make_state: Any, read_state: Any, sources: Any, tmp_path: Path
) -> None:
    moments = moments_of(tmp_path)
    posterior_files.posterior_files(sources([make_state(seed) for seed in range(3)]), *moments)
    for name, member in (("a", 2), ("b", 2), ("c", 3)):
        posterior_files.gaussian_sample_files(*moments, tmp_path / name, **KEY | {"member": member}, scale=1.0)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert (tmp_path / "a").read_bytes() != (tmp_path / "c").read_bytes()
    mean, var, floor, made = (read_state(path) for path in [*moments, tmp_path / "a"])
    noise = posterior.draws(7, 3, 2, "conv.weight").standard_normal(made["conv.weight"].size)
    expected = fusing.gaussian_sample(mean["conv.weight"].ravel(), var["conv.weight"].ravel(), noise, 1.0)
    np.testing.assert_allclose(made["conv.weight"].ravel(), expected, rtol=1e-6)
    assert (made["bn.running_var"] >= floor["bn.running_var"]).all()


def test_scale_zero_is_the_mean_and_buffers_can_be_left(
    make_state: Any, read_state: Any, sources: Any, tmp_path: Path
) -> None:
    moments = moments_of(tmp_path)
    posterior_files.posterior_files(sources([make_state(seed) for seed in range(3)]), *moments)
    posterior_files.gaussian_sample_files(*moments, tmp_path / "zero", **KEY, scale=0.0)
    assert (tmp_path / "zero").read_bytes() == moments[0].read_bytes()
    posterior_files.gaussian_sample_files(*moments, tmp_path / "kept", **KEY, sample_buffers=False)
    mean, made = read_state(moments[0]), read_state(tmp_path / "kept")
    assert (made["bn.running_mean"] == mean["bn.running_mean"]).all()
    assert (made["bn.weight"] != mean["bn.weight"]).any()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("buffers", [True, False])
def test_dirichlet_member_is_the_combination(
    make_state: Any, read_state: Any, sources: Any, tmp_path: Path, dtype: Any, buffers: bool
) -> None:
    states, counts = [make_state(seed, dtype) for seed in range(3)], [1.0, 4.0, 2.0]
    parts = posterior_files.dirichlet_sample_files(
        sources(states, counts)[::-1], tmp_path / "out", **KEY, sample_buffers=buffers
    )
    made = read_state(tmp_path / "out")
    expected = np.tensordot(parts, np.stack([state["conv.weight"].astype(np.float64) for state in states]), 1)
    assert made["conv.weight"].dtype == dtype
    np.testing.assert_allclose(made["conv.weight"].astype(np.float64), expected, rtol=1e-2, atol=1e-2)
    mean = np.tensordot(np.array(counts) / 7, np.stack([state["bn.running_var"] for state in states]).astype(float), 1)
    close = np.allclose(made["bn.running_var"].astype(np.float64), mean, rtol=1e-2)
    assert close is not buffers


def test_swag_member_of_files(make_state: Any, read_state: Any, sources: Any, tmp_path: Path) -> None:
    states = [make_state(seed) for seed in range(3)]
    for name in ("a", "b"):
        posterior_files.swag_sample_files(sources(states), tmp_path / name, **KEY, scale=0.5)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    made, values = read_state(tmp_path / "a"), [state["conv.weight"].ravel().astype(float) for state in states]
    noise = posterior.draws(7, 3, 2, "tensor conv.weight").standard_normal(len(values[0]))
    low_rank = posterior.draws(7, 3, 2, "low rank").standard_normal(3)
    expected = fusing.swag_sample(values, noise, low_rank, 0.5)
    np.testing.assert_allclose(made["conv.weight"].ravel(), expected, rtol=1e-5, atol=1e-6)
    assert (made["bn.running_var"] >= np.min([state["bn.running_var"] for state in states], axis=0)).all()


@pytest.mark.parametrize(
    ("states", "counts", "code"),
    [
        ([], [], "no_positive_weight"),
        ([{"w": np.array([1.0], np.float32)}], [-1.0], "bad_weight"),
        ([{"w": np.array([1.0], np.float32)}, {"w": np.array([1.0, 2.0], np.float32)}], [1.0, 2.0], "schema_mismatch"),
        ([{"w": np.array([np.nan], np.float32)}], [1.0], "non_finite"),
        ([{"w": np.array([-1e300])}, {"w": np.array([1e300])}], [1.0, 1.0], "non_finite"),
    ],
)
def test_files_are_refused(states: Any, counts: Any, code: str, sources: Any, tmp_path: Path) -> None:
    paths = moments_of(tmp_path)
    with pytest.raises(PartError) as caught:
        posterior_files.posterior_files(sources(states, counts), *paths)
    assert caught.value.code == code


ZERO, ONE, TWO = np.zeros(1), np.ones(1), np.zeros(2)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: posterior.gaussian_sample(ZERO, -ONE, ZERO, 1.0), "bad_variance"),
        (lambda: posterior.gaussian_sample(ZERO, ONE, TWO, 1.0), "schema_mismatch"),
        (lambda: posterior.gaussian_sample(ZERO, ONE, ZERO, 1.0, TWO), "schema_mismatch"),
        (lambda: posterior.gaussian_sample(ZERO, ONE, ZERO, -1.0), "bad_option"),
        (lambda: posterior.coefficients([1], np.array([np.nan])), "bad_weight"),
        (lambda: posterior.coefficients([1], np.array([np.inf])), "bad_weight"),
        (lambda: posterior.coefficients([-1], ZERO), "bad_weight"),
        (lambda: posterior.coefficients([1], np.array([-np.inf])), "no_positive_weight"),
        (lambda: posterior.coefficients([1, 0], np.array([-np.inf, 0.0])), "no_positive_weight"),
        (lambda: posterior.coefficients([1], TWO), "schema_mismatch"),
        (lambda: posterior.draw_log_gamma(0, 0, 0, ["a"], 0.0), "bad_option"),
    ],
)
def test_refusals(call: Any, code: str) -> None:
    with pytest.raises(PartError) as caught:
        call()
    assert caught.value.code == code
