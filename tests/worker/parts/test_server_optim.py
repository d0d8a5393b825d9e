"""Server optimisers: steps worked by hand, identities, files against arrays, refusals."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from worker.parts import server_optim
from worker.parts.errors import PartError
from worker.parts.server_optim import Adaptive, Momentum, step, step_files

BUFFERS = frozenset({"bn.running_mean", "bn.running_var", "bn.num_batches_tracked"})
OPTIMIZERS = [
    Momentum(0.9, 0.5),
    Momentum(0.9, form="ema"),
    Adaptive("adam"),
    Adaptive("yogi"),
    Adaptive("adagrad", lr=0.03, beta1=0.0),
]


def one(value: float, dtype: Any = np.float64) -> dict[str, Any]:
    return {"w": np.asarray([value], dtype=dtype)}


def test_momentum_by_hand() -> None:
    """v = 0.5 * 4 + (3 - 1) = 4; theta = 3 - 0.25 * 4 = 2."""
    made = step(Momentum(0.5, 0.25), one(3.0), one(1.0), one(4.0))
    assert made.state["w"].tolist() == [2.0]
    assert made.momentum["w"].tolist() == [4.0]
    assert made.second == {}


def test_momentum_ema_by_hand() -> None:
    """v = 0.75 * 4 + 0.25 * (3 - 1) = 3.5; theta = 3 - 3.5 = -0.5."""
    made = step(Momentum(0.75, form="ema"), one(3.0), one(1.0), one(4.0))
    assert made.momentum["w"].tolist() == [3.5]
    assert made.state["w"].tolist() == [-0.5]


@pytest.mark.parametrize(
    ("kind", "second"), [("adagrad", 4.0 + 9.0), ("yogi", 4.0 + 0.5 * 9.0), ("adam", 0.5 * 4.0 + 0.5 * 9.0)]
)
def test_adaptive_by_hand(kind: Any, second: float) -> None:
    """Delta = 5 - 2 = 3, m = 0.5 * 1 + 0.5 * 3 = 2; v old 4, Delta^2 = 9; sign(4 - 9) = -1 in Yogi."""
    made = step(Adaptive(kind, lr=0.1, beta1=0.5, beta2=0.5, tau=0.01), one(2.0), one(5.0), one(1.0), one(4.0))
    assert made.momentum["w"].tolist() == [2.0]
    np.testing.assert_allclose(made.second["w"], [second])
    np.testing.assert_allclose(made.state["w"], [2.0 + 0.1 * 2.0 / (np.sqrt(second) + 0.01)])


def test_second_moment_starts_at_tau_squared() -> None:
    made = step(Adaptive("adagrad", tau=0.25), one(1.0), one(1.0))
    assert made.second["w"].tolist() == [0.0625]
    assert made.state["w"].tolist() == [1.0]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_first_round_of_fedavgm_is_the_average_bit_for_bit(make_state: Any, dtype: Any) -> None:
    previous, average = make_state(1, dtype), make_state(2, dtype)
    previous["bn.weight"][0] = 6e4
    made = step(Momentum(0.9), previous, average, buffers=BUFFERS)
    assert {name: array.tobytes() for name, array in made.state.items()} == {
        name: array.tobytes() for name, array in average.items()
    }
    assert set(made.momentum) == {"conv.weight", "bn.weight"}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_no_change_keeps_the_model(make_state: Any, optimizer: server_optim.Optimizer) -> None:
    model = make_state(3)
    made = step(optimizer, model, model, buffers=BUFFERS)
    for name, array in model.items():
        np.testing.assert_allclose(made.state[name], array, rtol=1e-7)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_files_equal_arrays(make_state: Any, read_state: Any, write: Any, tmp_path: Path, optimizer: Any) -> None:
    """Two rounds, so that the memory is read back as well."""
    states = [make_state(seed) for seed in range(3)]
    paths = [write(f"m{index}", state) for index, state in enumerate(states)]
    kept = [{name: array.copy() for name, array in state.items()} for state in states]
    step_files(optimizer, paths[0], paths[1], None, tmp_path / "one", tmp_path / "memory")
    step_files(optimizer, tmp_path / "one", paths[2], tmp_path / "memory", tmp_path / "two", tmp_path / "memory2")
    first = step(optimizer, states[0], states[1], buffers=BUFFERS)
    second = step(optimizer, first.state, states[2], first.momentum, first.second or None, BUFFERS)
    for path, state in ((tmp_path / "one", first.state), (tmp_path / "two", second.state)):
        assert {name: array.tobytes() for name, array in read_state(path).items()} == {
            name: array.tobytes() for name, array in state.items()
        }
    memory = read_state(tmp_path / "memory2")
    for name, array in second.momentum.items():
        assert memory[server_optim.MOMENTUM + name].tobytes() == array.tobytes()
    for name, array in second.second.items():
        assert memory[server_optim.SECOND + name].tobytes() == array.tobytes()
    assert len(memory) == len(second.momentum) + len(second.second)
    for before, after in zip(kept, states, strict=True):
        assert all((before[name] == after[name]).all() for name in before)


def test_a_memory_of_another_model_is_refused(make_state: Any, write: Any, tmp_path: Path) -> None:
    model = write("model", make_state(1))
    with pytest.raises(PartError, match="memory") as caught:
        step_files(Momentum(), model, model, model, tmp_path / "out", tmp_path / "state")
    assert caught.value.code == "schema_mismatch"


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: Momentum(1.0), "bad_option"),
        (lambda: Momentum(-0.1), "bad_option"),
        (lambda: Momentum(0.5, 0.0), "bad_option"),
        (lambda: Momentum(0.5, form="nesterov"), "bad_option"),  # type: ignore[arg-type]
        (lambda: Adaptive("sgd"), "bad_option"),  # type: ignore[arg-type]
        (lambda: Adaptive(tau=0.0), "bad_option"),
        (lambda: step(Momentum(), one(1.0), {"v": np.zeros(1)}), "schema_mismatch"),
        (lambda: step(Momentum(), one(1.0), one(1.0, np.float32)), "schema_mismatch"),
        (lambda: step(Momentum(), one(1.0), one(np.nan)), "non_finite"),
        (lambda: step(Momentum(), one(1.0), one(1.0), {}), "schema_mismatch"),
        (lambda: step(Momentum(0.5, 2.0), one(-6e4, np.float16), one(6e4, np.float16)), "non_finite"),
        (lambda: step(Momentum(), one(1.0), one(np.inf), buffers=frozenset({"w"})), "non_finite"),
    ],
)
def test_refusals(make: Any, code: str) -> None:
    with pytest.raises(PartError) as caught:
        make()
    assert caught.value.code == code
