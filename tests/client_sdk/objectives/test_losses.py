"""The devices' objectives: values worked by hand, gradients against differences, invariances, refusals."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from client_sdk.objectives import ds_fl, fedgkd, fedprox, fedtgp, feduv, moon, prior, scaffold
from contract.errors import RuleError
from tests.reference import local as slow

SEEDS = st.integers(0, 2**31 - 1)
NAN = torch.tensor([[float("nan"), 1.0]])


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ------------------------------------------------------------------------------------------------------------- FedProx
@settings(deadline=None)  # the first that torch differentiates
@given(SEEDS, st.floats(0, 10))
def test_the_proximal_term_is_the_slow_one_and_pulls_back(seed: int, mu: float) -> None:
    now, sent = normal(seed, 4).requires_grad_(True), normal(seed + 1, 4)
    penalty = fedprox.proximal([now[:3], now[3:]], [sent[:3], sent[3:]], mu)
    assert penalty.item() == pytest.approx(slow.proximal(now.tolist(), sent.tolist(), mu))
    penalty.backward()
    torch.testing.assert_close(now.grad, mu * (now - sent).detach())


# ------------------------------------------------------------------------------------------------------------- SCAFFOLD
@given(SEEDS, st.integers(1, 5), st.floats(0.01, 1.0))
def test_option_two_is_the_mean_gradient_of_the_steps(seed: int, steps: int, lr: float) -> None:
    """K corrected steps on a quadratic: c_i+ is the mean of the plain gradients at the points that were passed."""
    x, target, c, c_i = (normal(seed + index, 4) for index in range(4))
    y, gradients = x.clone(), []
    for _ in range(steps):
        gradients.append(y - target)
        y = y - lr * (gradients[-1] - c_i + c)
    made = scaffold.new_variate(x, y, c, c_i, lr, steps)
    torch.testing.assert_close(made.new, torch.stack(gradients).mean(dim=0))
    rows = zip(x.tolist(), y.tolist(), c.tolist(), c_i.tolist(), strict=True)
    assert made.new.tolist() == pytest.approx([slow.variate(*row, lr, steps) for row in rows])
    torch.testing.assert_close(made.delta_c, made.new - c_i)
    torch.testing.assert_close(made.delta_y, y - x)


def test_correction_adds_c_minus_c_i_to_every_trained_gradient() -> None:
    module = nn.Linear(3, 2)
    module.bias.requires_grad_(False)
    c, c_i = {"weight": torch.full((2, 3), 5.0)}, {"weight": torch.full((2, 3), 2.0)}
    scaffold.correction(module, c, c_i).backward()
    assert module.weight.grad is not None and (module.weight.grad == 3.0).all()
    assert module.bias.grad is None


def test_low_precision_keeps_its_dtype_and_inputs_stay() -> None:
    x = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)
    y, zeros = x - 0.5, torch.zeros(2, dtype=torch.bfloat16)
    made = scaffold.new_variate(x, y, zeros, zeros, 0.5, 1)
    assert made.new.dtype == torch.bfloat16
    assert made.new.tolist() == [1.0, 1.0]
    assert (x.tolist(), y.tolist(), zeros.tolist()) == ([1.0, 2.0], [0.5, 1.5], [0.0, 0.0])


# --------------------------------------------------------------------------------------------------------- FedGKD, MOON
def test_fedgkd_is_zero_at_the_teacher_and_gives_it_no_gradient() -> None:
    logits = normal(1, 5, 3).requires_grad_(True)
    teacher = (logits.detach() + 7.0).requires_grad_(True)
    loss = fedgkd.distance(logits, teacher)
    loss.backward()
    assert abs(loss.item()) < 1e-15
    assert teacher.grad is None and logits.grad is not None


def test_fedgkd_by_hand() -> None:
    """One sample, p = (3/4, 1/4) and q = (1/2, 1/2) at tau = 2; gamma/2 tau^2 = 4."""
    student, teacher = torch.zeros(1, 2), torch.tensor([[2.0 * np.log(3.0), 0.0]], dtype=torch.float32)
    expected = 4.0 * (0.75 * np.log(1.5) + 0.25 * np.log(0.5))
    assert fedgkd.distance(student, teacher, gamma=2.0, tau=2.0).item() == pytest.approx(expected, rel=1e-5)


@given(SEEDS, st.floats(0.5, 5), st.floats(0, 2), st.integers(0, 3))
def test_fedgkd_moon_and_fedtgp_are_the_slow_ones(seed: int, tau: float, weight: float, previous: int) -> None:
    z, near, far = normal(seed, 4, 3), normal(seed + 1, 4, 3), normal(seed + 2, previous, 4, 3)
    expected = slow.moon(z.tolist(), near.tolist(), far.tolist(), weight, tau)
    assert moon.contrast(z, near, far, weight, tau).item() == pytest.approx(expected)
    assert fedgkd.distance(z, near, weight, tau).item() == pytest.approx(
        slow.fedgkd(z.tolist(), near.tolist(), weight, tau)
    )
    labels = torch.tensor([0, 2, 1, 2])
    expected = slow.pull(z.tolist(), labels.tolist(), near[:3].tolist(), weight)
    assert fedtgp.pull(z, labels, near[:3], weight).item() == pytest.approx(expected)


@given(SEEDS, st.sampled_from([1e-150, 1e-3, 1.0, 1e200]), st.integers(0, 3))
def test_moon_looks_at_directions_only(seed: int, scale: float, previous: int) -> None:
    z, near, far = normal(seed, 4, 3), normal(seed + 1, 4, 3), normal(seed + 2, previous, 4, 3)
    one = moon.contrast(z, near, far)
    torch.testing.assert_close(moon.contrast(z * scale, near * scale, far * scale), one)
    plain = [F.cosine_similarity(z, other) / 0.5 for other in (near, *far)]
    torch.testing.assert_close(one, F.cross_entropy(torch.stack(plain, 1), torch.zeros(4, dtype=torch.int64)))


def test_moon_edges() -> None:
    zeros = torch.zeros(2, 3, requires_grad=True)
    loss = moon.contrast(zeros, zeros.detach(), torch.zeros(1, 2, 3))
    loss.backward()
    assert loss.item() == pytest.approx(np.log(2))
    assert zeros.grad is not None and torch.isfinite(zeros.grad).all()
    assert moon.contrast(torch.zeros(0, 3), torch.zeros(0, 3), torch.zeros(1, 0, 3)).item() == 0
    assert moon.contrast(zeros.detach(), zeros.detach(), torch.zeros(0, 2, 3)).item() == 0


# --------------------------------------------------------------------------------------------------------------- Reflux
def test_the_prior_by_hand() -> None:
    """n = (3, 1, 0), eps 1: pi = (4, 2, 1) / 7."""
    found = prior.offset(torch.tensor([3, 1, 0]), weight=2.0, eps=1.0)
    assert found.tolist() == pytest.approx([2 * np.log(each / 7) for each in (4, 2, 1)], rel=1e-6)
    assert torch.isfinite(prior.offset(torch.tensor([0, 0]), eps=1e-9)).all()


# ---------------------------------------------------------------------------------------------------------------- FedUV
@given(SEEDS, st.integers(2, 6), st.integers(1, 5))
def test_feduv_is_the_slow_one_and_ignores_order(seed: int, batch: int, classes: int) -> None:
    logits, features = normal(seed, batch, classes), normal(seed + 1, batch, 3)
    made = feduv.spread(logits, features)
    std, unif = slow.feduv(logits.tolist(), features.tolist())
    assert made.std.item() == pytest.approx(std, abs=1e-12)
    assert made.unif.item() == pytest.approx(unif)
    ideal = float(np.eye(classes)[:, 0].std(ddof=1)) if classes > 1 else 0.0
    assert made.gamma == pytest.approx(ideal)
    assert made.loss.item() == pytest.approx(2.5 * made.std.item() + 0.5 * made.unif.item())
    flipped = feduv.spread(logits.flip(0), features.flip(0))
    torch.testing.assert_close(flipped.loss, made.loss)


@pytest.mark.parametrize("batch", [0, 1, 4])
def test_feduv_has_a_finite_gradient_where_nothing_varies(batch: int) -> None:
    logits, features = torch.ones(batch, 3, requires_grad=True), torch.ones(batch, 2, requires_grad=True)
    made = feduv.spread(logits, features)
    made.loss.backward()
    for given_ in (logits, features):
        assert given_.grad is not None and torch.isfinite(given_.grad).all()
    assert made.unif.item() == (1.0 if batch > 1 else 0.0)


@pytest.mark.parametrize("loss", ["moon", "feduv", "fedgkd", "fedtgp"])
def test_gradients_agree_with_differences(loss: str) -> None:
    z, other, label = normal(1, 4, 3).requires_grad_(True), normal(2, 4, 3), torch.tensor([0, 1, 2, 0])
    functions: dict[str, Any] = {
        "moon": lambda z: moon.contrast(z, other, other.flip(0)[None]),
        "feduv": lambda z: feduv.spread(z, other).loss,
        "fedgkd": lambda z: fedgkd.distance(z, other, 1.0),
        "fedtgp": lambda z: fedtgp.pull(z, label, other, 1.0),
    }
    assert torch.autograd.gradcheck(functions[loss], (z,))


# -------------------------------------------------------------------------------------------------------- FedTGP, DS-FL
def test_class_means_by_hand() -> None:
    made = fedtgp.class_means(torch.tensor([[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]]), torch.tensor([2, 2, 0]), 4)
    assert made.means.tolist() == [[9.0, 9.0], [0.0, 0.0], [2.0, 3.0], [0.0, 0.0]]
    assert made.counts.tolist() == [1, 0, 2, 0]


def test_ds_fl_gradient_is_q_minus_target() -> None:
    logits, target = normal(3, 5, 4).requires_grad_(True), torch.softmax(normal(4, 5, 4), dim=1)
    ds_fl.imitation(logits, target).backward()
    torch.testing.assert_close(logits.grad, (torch.softmax(logits.detach(), dim=1) - target) / 5)
    sent = ds_fl.predictions(logits)
    assert sent.dtype == torch.float32 and not sent.requires_grad
    torch.testing.assert_close(sent.sum(dim=1), torch.ones(5))


ONE, TWO = torch.zeros(1), torch.zeros(2)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: fedprox.proximal([ONE], [TWO], 1.0), "schema_mismatch"),
        (lambda: scaffold.new_variate(ONE, ONE, ONE, ONE, 0.1, 0), "no_steps"),
        (lambda: scaffold.new_variate(ONE, ONE, ONE, ONE, 0.0, 1), "bad_option"),
        (lambda: scaffold.new_variate(ONE, ONE, ONE, ONE, 0.1, 1, 3), "bad_option"),
        (lambda: scaffold.new_variate(ONE, ONE, ONE, ONE, 0.1, 1, 1), "bad_option"),
        (lambda: scaffold.new_variate(ONE, TWO, ONE, ONE, 0.1, 1), "schema_mismatch"),
        (lambda: scaffold.new_variate(ONE, ONE + float("inf"), ONE, ONE, 0.1, 1), "non_finite"),
        (lambda: scaffold.correction(nn.Linear(1, 1), {}, {}), "schema_mismatch"),
        (lambda: fedgkd.distance(torch.zeros(1, 2), torch.zeros(1, 3)), "schema_mismatch"),
        (lambda: fedgkd.distance(torch.zeros(1, 2), torch.zeros(1, 2), tau=0.0), "bad_option"),
        (lambda: moon.contrast(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 2, 2)), "schema_mismatch"),
        (lambda: moon.contrast(NAN, torch.zeros(1, 2), torch.zeros(1, 1, 2)), "non_finite"),
        (lambda: moon.contrast(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 1, 2), tau=0.0), "bad_option"),
        (lambda: moon.contrast(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 1, 2), mu=-1.0), "bad_option"),
        (lambda: prior.offset(torch.tensor([1, -1])), "out_of_range"),
        (lambda: prior.offset(torch.tensor([1]), eps=0.0), "bad_option"),
        (lambda: prior.offset(torch.tensor([1]), weight=-1.0), "bad_option"),
        (lambda: feduv.spread(torch.zeros(2, 2), torch.zeros(3, 2)), "schema_mismatch"),
        (lambda: feduv.spread(NAN, torch.zeros(1, 2)), "non_finite"),
        (lambda: feduv.spread(torch.zeros(2, 0), torch.zeros(2, 2)), "too_few_classes"),
        (lambda: feduv.spread(torch.zeros(2, 2), torch.zeros(2, 2), std_weight=-1.0), "bad_option"),
        (lambda: fedtgp.pull(torch.zeros(1, 2), torch.tensor([3]), torch.zeros(3, 2)), "out_of_range"),
        (lambda: fedtgp.pull(torch.zeros(1, 2), torch.tensor([0]), torch.zeros(3, 3)), "schema_mismatch"),
        (lambda: fedtgp.class_means(torch.zeros(1, 2), torch.tensor([-1]), 3), "out_of_range"),
        (lambda: fedtgp.class_means(NAN, torch.tensor([0]), 3), "non_finite"),
        (lambda: ds_fl.imitation(torch.zeros(1, 2), torch.zeros(1, 3)), "schema_mismatch"),
    ],
)
def test_refusals(call: Any, code: str) -> None:
    with pytest.raises(RuleError) as caught:
        call()
    assert caught.value.code == code
