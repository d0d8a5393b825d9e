"""Distillation losses."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import ensembles as slow
from worker.parts import objectives
from worker.parts.errors import PartError


def logits(seed: int) -> torch.Tensor:
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_kl_by_hand() -> None:
    """p = (3/4, 1/4), q = (1/2, 1/2): 3/4 ln(3/2) + 1/4 ln(1/2)."""
    teacher = torch.tensor([[math.log(3), 0.0]], dtype=torch.float64)
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert objectives.kl(torch.zeros(1, 2, dtype=torch.float64), teacher).item() == pytest.approx(expected)


@given(st.integers(0, 99), st.sampled_from([0.5, 1.0, 4.0]), st.booleans())
def test_losses_are_the_slow_ones(seed: int, temperature: float, scaled: bool) -> None:
    student, teacher = logits(seed), logits(seed + 100)
    loss = objectives.kl(student, teacher, temperature, scaled)
    assert loss.item() == pytest.approx(slow.kl(student.tolist(), teacher.tolist(), temperature, scaled))
    target = torch.softmax(teacher, dim=1)
    expected = slow.soft_cross_entropy(student.tolist(), target.tolist())
    assert objectives.soft_cross_entropy(student, target).item() == pytest.approx(expected)


def test_equal_logits_lose_nothing() -> None:
    assert objectives.kl(logits(0), logits(0) + 3.0, 2.0).item() == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("temperature", [1.0, 4.0])
@pytest.mark.parametrize("scaled", [True, False])
def test_gradient_is_t_times_q_minus_p(temperature: float, scaled: bool) -> None:
    student, teacher = logits(1).requires_grad_(True), logits(2)
    objectives.kl(student, teacher, temperature, scaled).backward()
    p, q = (torch.softmax(x.detach() / temperature, dim=1) for x in (teacher, student))
    expected = (q - p) / 6 * (temperature if scaled else 1 / temperature)
    assert student.grad is not None
    torch.testing.assert_close(student.grad, expected)


def test_soft_cross_entropy_has_the_gradient_of_kl() -> None:
    teacher, gradients = logits(3), []
    for loss, target in ((objectives.kl, teacher), (objectives.soft_cross_entropy, torch.softmax(teacher, dim=1))):
        student = logits(4).requires_grad_(True)
        loss(student, target).backward()
        assert student.grad is not None
        gradients.append(student.grad)
    torch.testing.assert_close(*gradients)


def test_refusals() -> None:
    with pytest.raises(PartError, match="match"):
        objectives.kl(logits(0), logits(0)[:3])
    with pytest.raises(PartError, match="positive"):
        objectives.kl(logits(0), logits(0), 0.0)
