"""Server optimisers: steps worked by hand, identities, rule and files against slow references, refusals."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import fusing
from worker.parts import server_optim
from worker.parts.errors import PartError
from worker.parts.server_optim import Adaptive, Momentum, step_files, update

PARAMETERS, BUFFERS = ("conv.weight", "bn.weight"), ("bn.running_mean", "bn.running_var", "bn.num_batches_tracked")
OPTIMIZERS = [
    Momentum(0.9, 0.5),
    Momentum(0.9, form="ema"),
    Adaptive("adam"),
    Adaptive("yogi"),
    Adaptive("adagrad", lr=0.03, beta1=0.0),
]


def one(optimizer: Any, theta: float, average: float, v: float | None = None, second: float | None = None) -> Any:
    """Return theta, first and second moment after a step on one number."""
    given: list[Any] = [None if each is None else np.array([each]) for each in (theta, average, v, second)]
    return [None if each is None else float(each[0]) for each in update(optimizer, *given)]


def slow(optimizer: Any, theta: float, average: float, m: float, v: float) -> tuple[float, ...]:
    if isinstance(optimizer, Momentum):
        return fusing.momentum(theta, average, m, optimizer.beta, optimizer.lr, optimizer.form)
    o = optimizer
    return fusing.adaptive(o.kind, theta, average, m, v, o.lr, o.beta1, o.beta2, o.tau)


def test_momentum_by_hand() -> None:
    """v = 0.5 * 4 + (3 - 1) = 4; theta = 3 - 0.25 * 4 = 2."""
    assert one(Momentum(0.5, 0.25), 3.0, 1.0, 4.0) == [2.0, 4.0, None]


def test_momentum_ema_by_hand() -> None:
    """v = 0.75 * 4 + 0.25 * (3 - 1) = 3.5; theta = 3 - 3.5 = -0.5."""
    assert one(Momentum(0.75, form="ema"), 3.0, 1.0, 4.0) == [-0.5, 3.5, None]


@pytest.mark.parametrize(
    ("kind", "second"), [("adagrad", 4.0 + 9.0), ("yogi", 4.0 + 0.5 * 9.0), ("adam", 0.5 * 4.0 + 0.5 * 9.0)]
)
def test_adaptive_by_hand(kind: Any, second: float) -> None:
    """Delta = 5 - 2 = 3, m = 0.5 * 1 + 0.5 * 3 = 2; v old 4, Delta^2 = 9; sign(4 - 9) = -1 in Yogi."""
    made = one(Adaptive(kind, lr=0.1, beta1=0.5, beta2=0.5, tau=0.01), 2.0, 5.0, 1.0, 4.0)
    assert made == pytest.approx([2.0 + 0.1 * 2.0 / (np.sqrt(second) + 0.01), 2.0, second])


def test_second_moment_starts_at_tau_squared() -> None:
    assert one(Adaptive("adagrad", tau=0.25), 1.0, 1.0) == [1.0, 0.0, 0.0625]


NUMBERS = st.floats(-10, 10)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@given(NUMBERS, NUMBERS, NUMBERS, st.floats(0, 10))
def test_a_step_is_the_slow_one(optimizer: Any, theta: float, average: float, m: float, v: float) -> None:
    made, expected = one(optimizer, theta, average, m, v), slow(optimizer, theta, average, m, v)
    assert made[: len(expected)] == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_first_round_of_fedavgm_is_the_average_bit_for_bit(
    make_state: Any, write: Any, read_state: Any, tmp_path: Path, dtype: Any
) -> None:
    previous, average = make_state(1, dtype), make_state(2, dtype)
    previous["bn.weight"][0] = 6e4
    paths = write("previous", previous), write("average", average)
    step_files(Momentum(0.9), *paths, None, tmp_path / "out", tmp_path / "memory")
    made = read_state(tmp_path / "out")
    assert {name: array.tobytes() for name, array in made.items()} == {
        name: array.tobytes() for name, array in average.items()
    }
    assert set(read_state(tmp_path / "memory")) == {server_optim.MOMENTUM + name for name in PARAMETERS}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_files_equal_the_slow_steps(
    make_state: Any, read_state: Any, write: Any, tmp_path: Path, optimizer: Any
) -> None:
    """Two rounds, so that the memory is read back as well; buffers are the average's."""
    states = [make_state(seed) for seed in range(3)]
    paths = [write(f"m{index}", state) for index, state in enumerate(states)]
    step_files(optimizer, paths[0], paths[1], None, tmp_path / "one", tmp_path / "memory")
    step_files(optimizer, tmp_path / "one", paths[2], tmp_path / "memory", tmp_path / "two", tmp_path / "memory2")
    made, memory = read_state(tmp_path / "two"), read_state(tmp_path / "memory2")
    prefixes = [server_optim.MOMENTUM] + [server_optim.SECOND] * isinstance(optimizer, Adaptive)
    assert list(memory) == [prefix + name for prefix in prefixes for name in PARAMETERS]
    first = 0.0 if isinstance(optimizer, Momentum) else optimizer.tau**2
    for name in PARAMETERS:
        for place in (0, -1):
            old, average, newest = (float(state[name].ravel()[place]) for state in states)
            theta, *kept = slow(optimizer, old, average, 0.0, first)
            expected = slow(optimizer, theta, newest, *kept, *[0.0] * (2 - len(kept)))
            found = [made[name].ravel()[place], *(memory[prefix + name].ravel()[place] for prefix in prefixes)]
            assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
    for name in BUFFERS:
        assert made[name].tobytes() == states[2][name].tobytes()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_no_change_keeps_the_model(
    make_state: Any, write: Any, read_state: Any, tmp_path: Path, optimizer: Any
) -> None:
    model = make_state(3)
    same = write("model", model)
    step_files(optimizer, same, same, None, tmp_path / "out", tmp_path / "memory")
    made = read_state(tmp_path / "out")
    for name, array in model.items():
        np.testing.assert_allclose(made[name], array, rtol=1e-7)


def test_a_memory_of_another_model_is_refused(make_state: Any, write: Any, tmp_path: Path) -> None:
    model = write("model", make_state(1))
    with pytest.raises(PartError, match="memory") as caught:
        step_files(Momentum(), model, model, model, tmp_path / "out", tmp_path / "state")
    assert caught.value.code == "schema_mismatch"


@pytest.mark.parametrize(
    ("optimizer", "previous", "average", "code"),
    [
        (Momentum(), {"w": np.ones(1)}, {"v": np.ones(1)}, "schema_mismatch"),
        (Momentum(), {"w": np.ones(1)}, {"w": np.ones(1), "v": np.ones(1)}, "schema_mismatch"),
        (Momentum(), {"w": np.ones(1)}, {"w": np.array([1.0], np.float32)}, "schema_mismatch"),
        (Momentum(), {"w": np.ones(1)}, {"w": np.array([np.nan])}, "non_finite"),
        (Momentum(0.5, 2.0), {"w": np.array([-6e4], np.float16)}, {"w": np.array([6e4], np.float16)}, "non_finite"),
        (Momentum(), {"bn.running_var": np.ones(1)}, {"bn.running_var": np.array([np.inf])}, "non_finite"),
    ],
)
def test_files_are_refused(optimizer: Any, previous: Any, average: Any, code: str, write: Any, tmp_path: Path) -> None:
    paths = write("previous", previous), write("average", average)
    with pytest.raises(PartError) as caught:
        step_files(optimizer, *paths, None, tmp_path / "out", tmp_path / "memory")
    assert caught.value.code == code


@pytest.mark.parametrize(
    "make",
    [
        lambda: Momentum(1.0),
        lambda: Momentum(-0.1),
        lambda: Momentum(0.5, 0.0),
        lambda: Momentum(0.5, form="nesterov"),  # type: ignore[arg-type]
        lambda: Adaptive("sgd"),  # type: ignore[arg-type]
        lambda: Adaptive(tau=0.0),
    ],
)
def test_options_are_refused(make: Any) -> None:
    with pytest.raises(PartError) as caught:
        make()
    assert caught.value.code == "bad_option"
