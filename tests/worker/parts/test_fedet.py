"""Fed-ET's targets and loss."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contract import measures
from contract.recipes import parts
from tests.reference import ensembles as slow
from tests.teachers import weights
from worker.parts import fedet
from worker.parts.errors import PartError

SEEDS = st.integers(0, 2**32 - 1)


def targets(logits: Any) -> fedet.Targets:
    """With the weights of eq. 3."""
    outputs = np.asarray(logits, np.float64)
    return fedet.targets(outputs, weights(parts.WeighVariance(), [1] * len(outputs), outputs))


@given(SEEDS, st.integers(1, 5))
def test_targets_and_loss_are_the_slow_ones(seed: int, clients: int) -> None:
    rng = np.random.default_rng(seed)
    logits, server = rng.normal(size=(clients, 6, 4)) * 3, rng.normal(size=(6, 4))
    made, (mean, labels, diverse) = targets(logits), slow.consensus(logits, slow.by_variance(logits))
    np.testing.assert_allclose(made.consensus, mean, rtol=1e-9)
    assert made.label.tolist() == labels
    np.testing.assert_allclose(made.div_target, diverse, rtol=1e-9, atol=1e-15)
    student, label, target = (torch.from_numpy(each) for each in (server, made.label, made.div_target))
    loss = fedet.loss(student, label, target, 0.5)
    assert float(loss) == pytest.approx(slow.fedet_loss(server, labels, diverse, 0.5))


@given(SEEDS, st.integers(1, 5))
def test_the_gradient_is_mass_q_minus_target(seed: int, clients: int) -> None:
    """Of the mean loss over B samples: (q - onehot + lambda (mass q - d)) / B."""
    rng = np.random.default_rng(seed)
    made = targets(rng.normal(size=(clients, 6, 4)) * 3)
    server = torch.from_numpy(rng.normal(size=(6, 4))).requires_grad_(True)
    label, diverse = torch.from_numpy(made.label), torch.from_numpy(made.div_target)
    fedet.loss(server, label, diverse, 0.5).backward()
    q = measures.softmax(server.detach().numpy())
    expected = (q - np.eye(4)[made.label] + 0.5 * (made.div_mass[:, None] * q - made.div_target)) / 6
    assert server.grad is not None
    np.testing.assert_allclose(server.grad.numpy(), expected, atol=1e-12)


@given(SEEDS, st.randoms())
def test_targets_do_not_depend_on_order_or_shift(seed: int, random: Any) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(4, 5, 3))
    order = random.sample(range(4), 4)
    one = targets(logits)
    two = targets(logits[order] + rng.normal(size=(4, 5, 1)) * 1e3)
    np.testing.assert_allclose(two.consensus, one.consensus, atol=1e-9)
    assert (two.label == one.label).all()
    assert (two.div_mask == one.div_mask[order]).all()


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=3))
def test_tie_of_mirrored_clients_goes_to_the_lowest_class(logits: list[float]) -> None:
    """Two clients that are each other's mirror in classes 0 and 1: whatever the last bit of the sums says."""
    first, second, _ = logits
    values = np.array([[logits], [[second, first, logits[2]]]])
    made = targets(values)
    expected = 0 if made.consensus[0, 0] > made.consensus[0, 2] - 1e-9 else 2
    assert made.label.tolist() == targets(values[::-1]).label.tolist() == [expected]


def test_edges() -> None:
    flat = targets(np.zeros((2, 1, 3)))
    assert (flat.label.tolist(), flat.div_mass.tolist()) == ([0], [0.0])
    single = targets(np.ones((2, 3, 1)))
    server, label = torch.zeros(3, 1, dtype=torch.float64), torch.from_numpy(single.label)
    assert float(fedet.loss(server, label, torch.from_numpy(single.div_target))) == 0
    huge = targets([[[1e300, 0.0]], [[0.0, 1e300]]])
    assert np.isfinite(huge.consensus).all()


ONE = np.ones((1, 1))


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: fedet.targets(np.ones((1, 1)), ONE), "schema_mismatch"),
        (lambda: fedet.targets(np.ones((1, 1, 0)), ONE), "schema_mismatch"),
        (lambda: fedet.targets(np.ones((2, 1, 3)), ONE), "schema_mismatch"),
        (lambda: fedet.targets(np.full((1, 1, 2), np.inf), ONE), "non_finite"),
        (lambda: fedet.targets(np.ones((1, 1, 2)), ONE * np.nan), "non_finite"),
        (lambda: fedet.loss(torch.zeros(2, 3), torch.zeros(2).long(), torch.zeros(2, 2)), "schema_mismatch"),
        (lambda: fedet.loss(torch.zeros(2, 3), torch.zeros(2).long(), torch.zeros(2, 3), -1.0), "bad_option"),
        (lambda: fedet.loss(torch.full((1, 3), np.nan), torch.zeros(1).long(), torch.zeros(1, 3)), "non_finite"),
    ],
)
def test_refusals(call: Any, code: str) -> None:
    with pytest.raises(PartError) as caught:
        call()
    assert caught.value.code == code
