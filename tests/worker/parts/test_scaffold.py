"""SCAFFOLD's server: the invariant over rounds, rule and files against a slow reference, refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.tensors import write_file
from contract.updates import CONTROL
from tests.reference import fusing
from worker.parts.blocks import Source
from worker.parts.errors import PartError
from worker.parts.scaffold import ServerStep, server_step_files

PARAMETERS = ("conv.weight", "bn.weight")


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(0, 4))
def test_c_is_the_mean_of_all_clients_variates(seed: int, participants: int, absent: int) -> None:
    """Every client starts at 0; whoever takes part, c = (1/N) sum c_i after every round."""
    rng = np.random.default_rng(seed)
    total = participants + absent
    own, x, c = np.zeros((total, 3)), np.zeros(3), np.zeros(3)
    for _ in range(3):
        chosen = rng.choice(total, participants, replace=False)
        new = rng.normal(size=(participants, 3))
        step = ServerStep([1.0] * participants, total)
        x, c = step.model(x, rng.normal(size=(participants, 3))), step.control(c, new - own[chosen])
        own[chosen] = new
        np.testing.assert_allclose(c, own.mean(axis=0), atol=1e-12)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.booleans(), st.randoms())
def test_the_step_is_the_slow_one_and_ignores_order(seed: int, clients: int, n_weighted: bool, random: Any) -> None:
    rng = np.random.default_rng(seed)
    counts, moves, changes = rng.integers(1, 9, clients), rng.normal(size=(clients, 3)), rng.normal(size=(clients, 3))
    x, c, order = rng.normal(size=3), rng.normal(size=3), random.sample(range(clients), clients)
    step = ServerStep(counts.tolist(), clients + 2, 0.5, n_weighted)
    expected = fusing.scaffold(x, c, moves, changes, clients + 2, 0.5, counts.tolist() if n_weighted else None)
    np.testing.assert_allclose(step.model(x, moves), expected[0])
    np.testing.assert_allclose(step.control(c, changes), expected[1])
    turned = ServerStep(counts[order].tolist(), clients + 2, 0.5, n_weighted)
    np.testing.assert_allclose(turned.model(x, moves[order]), expected[0])
    np.testing.assert_allclose(turned.control(c, changes[order]), expected[1])


@pytest.mark.parametrize("n_weighted", [False, True])
def test_files_equal_the_slow_step(
    make_state: Any, read_state: Any, write: Any, tmp_path: Path, n_weighted: bool
) -> None:
    base, trained, counts = make_state(0), [make_state(seed) for seed in (1, 2, 3)], [5.0, 1.0, 2.0]
    rng = np.random.default_rng(9)
    controls = [{name: rng.normal(size=base[name].shape).astype(np.float32) for name in PARAMETERS} for _ in range(3)]
    server = {CONTROL + name: rng.normal(size=base[name].shape).astype(np.float32) for name in PARAMETERS}
    model, old_control = write("model", base), tmp_path / "c"
    write_file(old_control, server)
    updates = []
    for index, (state, control, n) in enumerate(zip(trained, controls, counts, strict=True)):
        path = write(f"u{index}", state | {CONTROL + name: array for name, array in control.items()})
        updates.append(Source(f"client-{index}", path, n))
    updates.append(Source("nobody", tmp_path / "there is no such file", 0.0))
    names = server_step_files(
        updates, model, old_control, tmp_path / "x", tmp_path / "c2", clients_total=7, lr=0.5, n_weighted=n_weighted
    )
    assert names == ["client-0", "client-1", "client-2"]
    made, control_made = read_state(tmp_path / "x"), read_state(tmp_path / "c2")
    for name in PARAMETERS:
        x = base[name].ravel().astype(float)
        expected = fusing.scaffold(
            x,
            server[CONTROL + name].ravel().astype(float),
            [state[name].ravel() - x for state in trained],
            [control[name].ravel().astype(float) for control in controls],
            7,
            0.5,
            counts if n_weighted else None,
        )
        np.testing.assert_allclose(made[name].ravel(), expected[0], rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(control_made[CONTROL + name].ravel(), expected[1], rtol=1e-6, atol=1e-7)
    average = fusing.average([state["bn.running_var"] for state in trained], counts)
    np.testing.assert_allclose(made["bn.running_var"], average, rtol=1e-6)
    assert made["bn.num_batches_tracked"] == 10


def test_first_round_starts_from_zeros(make_state: Any, read_state: Any, write: Any, tmp_path: Path) -> None:
    base = make_state(0)
    control = {CONTROL + name: np.ones(base[name].shape, np.float32) for name in PARAMETERS}
    source = Source("a", write("a", base | control), 3.0)
    server_step_files([source], write("m", base), None, tmp_path / "x", tmp_path / "c", clients_total=4)
    assert (read_state(tmp_path / "c")["control.bn.weight"] == 0.25).all()
    assert (read_state(tmp_path / "x")["bn.weight"] == base["bn.weight"]).all()


def test_an_update_without_controls_is_refused(make_state: Any, write: Any, tmp_path: Path) -> None:
    source = Source("ward-7", write("a", make_state(0)), 3.0)
    with pytest.raises(PartError, match=r"ward-7.*control\.conv\.weight") as caught:
        server_step_files([source], write("m", make_state(1)), None, tmp_path / "x", tmp_path / "c", clients_total=4)
    assert caught.value.code == "schema_mismatch"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"clients_total": 1}, "bad_counts"),
        ({"num_samples": [1.0], "clients_total": 0}, "bad_counts"),
        ({"lr": 0.0}, "bad_option"),
        ({"lr": np.nan}, "bad_option"),
        ({"num_samples": [-1.0, 1.0]}, "bad_weight"),
        ({"num_samples": [0.0, 0.0]}, "no_positive_weight"),
    ],
)
def test_refusals(changes: dict[str, Any], code: str) -> None:
    given: dict[str, Any] = {"num_samples": [1.0, 2.0], "clients_total": 2}
    with pytest.raises(PartError) as caught:
        ServerStep(**given | changes)
    assert caught.value.code == code
