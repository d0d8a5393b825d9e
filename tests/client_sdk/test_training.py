"""Local training: objectives, optimisers, BatchNorm, figures."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from client_sdk import data
from client_sdk.errors import ModelMismatch, TrainingError
from client_sdk.methods.base import statistics_kept
from client_sdk.training import choose_device, seeded, train_local
from contract.local import Adam, FedProxObjective, LocalPlan, Sgd, SgdObjective
from contract.wire.federations import Task

CPU = torch.device("cpu")
TASK = Task.model_validate({"num_classes": 2, "input": {"shape": [2], "dtype": "float32"}})


def samples(count: int = 40) -> data.Samples:
    rng = np.random.default_rng(0)
    y = np.arange(count) % 2
    taken = data.load((rng.normal(size=(count, 2)) + np.where(y == 1, 2.0, -2.0)[:, None], y))
    taken.check(TASK)
    return taken


def linear() -> nn.Linear:
    """A linear layer with weights 0, so that the first logits are equal."""
    module = nn.Linear(2, 2, bias=False)
    nn.init.zeros_(module.weight)
    return module


def test_one_step_of_sgd_by_hand() -> None:
    """Logits 0 give p = (1/2, 1/2); d loss / d logits = p - onehot = (1/2, -1/2) for label 1.

    With x = (2, 4), the gradient of W [C, 2] is the outer product ((1, 2), (-1, -2)); lr 0.1 gives W = -0.1 times it.
    """
    one = data.load((np.array([[2.0, 4.0]]), [1]))
    one.check(TASK)
    module = linear()
    result = train_local(module, one, LocalPlan(optimizer=Sgd(lr=0.1)), seed=0, device=CPU)
    assert module.weight.detach().numpy() == pytest.approx(np.array([[-0.1, -0.2], [0.1, 0.2]]))
    assert result.loss == pytest.approx(math.log(2)) and (result.steps, result.num_samples) == (1, 1)


def test_clipping_bounds_the_step() -> None:
    """The gradient of the case above has norm sqrt(10); clipped to 1 its step has length lr = 0.1."""
    one = data.load((np.array([[2.0, 4.0]]), [1]))
    one.check(TASK)
    module = linear()
    train_local(module, one, LocalPlan(optimizer=Sgd(lr=0.1), clip_norm=1.0), seed=0, device=CPU)
    assert float(module.weight.detach().norm()) == pytest.approx(0.1, rel=1e-4)


def test_fedprox_stays_nearer_to_the_model_as_it_was_sent() -> None:
    moved = []
    for objective in (SgdObjective(), FedProxObjective(mu=5.0)):
        module = linear()
        train_local(
            module, samples(), LocalPlan(objective=objective, optimizer=Sgd(lr=0.1), epochs=5), seed=0, device=CPU
        )
        moved.append(float(module.weight.detach().norm()))
    assert moved[1] < 0.7 * moved[0]


def test_adam_learns_the_clouds_and_tells_each_epoch() -> None:
    told: list[tuple[int, float]] = []
    module = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    plan = LocalPlan(optimizer=Adam(lr=0.05), epochs=5, batch_size=8)
    result = train_local(module, samples(), plan, seed=0, device=CPU, on_epoch=lambda *told_: told.append(told_))
    assert result.accuracy is not None and result.accuracy >= 0.95 and result.steps == 25
    assert [epoch for epoch, _ in told] == [1, 2, 3, 4, 5]
    assert told[-1][1] == result.loss < told[0][1]


def test_the_seed_decides_dropout_and_order_and_leaves_the_process_alone() -> None:
    start = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    weights: list[bytes] = []
    for seed in (1, 1, 2):
        module = copy.deepcopy(start)
        torch.manual_seed(len(weights))
        before = torch.get_rng_state()
        train_local(module, samples(), LocalPlan(batch_size=8), seed=seed, device=CPU)
        assert torch.equal(torch.get_rng_state(), before)
        weights.append(module.get_parameter("0.weight").detach().numpy().tobytes())
    assert weights[0] == weights[1] != weights[2]


def test_batch_norm_uses_running_statistics_for_a_batch_of_one_only() -> None:
    module = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.5)).train()
    with statistics_kept(module, 1):
        module(torch.ones(1, 2))
        assert not module[0].training and module[1].training
    assert module[0].training and int(module[0].num_batches_tracked) == 0
    with statistics_kept(module, 2):
        module(torch.ones(2, 2))
    assert int(module[0].num_batches_tracked) == 1


def test_frozen_parameters_stay_and_a_frozen_module_is_refused() -> None:
    module = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 2))
    module[0].requires_grad_(False)
    first, second = module.get_parameter("0.weight"), module.get_parameter("1.weight")
    frozen, free = first.clone(), second.detach().clone()
    train_local(module, samples(), LocalPlan(objective=FedProxObjective()), seed=0, device=CPU)
    assert torch.equal(first, frozen) and not torch.equal(second, free)
    with pytest.raises(ModelMismatch, match="nothing to train"):
        train_local(module.requires_grad_(False), samples(), LocalPlan(), seed=0, device=CPU)


def test_a_weight_that_is_not_finite_is_named() -> None:
    module = nn.Sequential(nn.Linear(2, 2))
    with torch.no_grad():
        module.get_parameter("0.bias")[0] = torch.nan
    with pytest.raises(TrainingError, match=r"'0\.\w+'.*after epoch 1.*clip_norm"):
        train_local(module, samples(), LocalPlan(epochs=3), seed=0, device=CPU)


def test_devices_by_name() -> None:
    assert choose_device("cpu") == CPU
    assert choose_device("auto").type in ("cpu", "cuda", "mps")


def test_seeded_restores_cudnn_settings() -> None:
    before = (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark)
    with seeded(3, CPU):
        assert torch.backends.cudnn.deterministic
    assert (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark) == before
