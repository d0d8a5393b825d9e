"""DaFKD on the device: three networks' steps against losses written out in numpy, and what is sent and kept."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from client_sdk import data
from client_sdk.errors import ModelMismatch, UnexpectedAnswer
from client_sdk.training import LocalResult, train_local
from contract.local import DafkdObjective, LocalPlan, SgdObjective
from contract.nn import codec
from contract.nn.registry import initialise
from contract.optimizers import Adam, Sgd
from contract.seeds import derive_seed
from contract.tensors import Header
from contract.updates import FEATURES_KEY
from contract.wire.federations import Task

CPU, LR = torch.device("cpu"), 0.2
TASK = Task.model_validate({"num_classes": 2, "input": {"shape": [2], "dtype": "float32"}})
RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(6, 2)).astype("float32"), np.array([0, 1, 1, 0, 1, 0])
START = RNG.normal(size=12)
HEAD = RNG.normal(size=4)
SMALL = {"latent": 2, "hidden": [3]}
SPAN = (-1.0, 2.0)
Array = np.ndarray


class Net(nn.Module):
    """tanh(W1 x) are 3 features, W2 of them 2 logits."""

    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2) if norm else nn.Identity()
        self.body, self.head = nn.Linear(2, 3, bias=False), nn.Linear(3, 2, bias=False)
        self.body.weight.data = torch.tensor(START[:6].reshape(3, 2)).float()
        self.head.weight.data = torch.tensor(START[6:].reshape(2, 3)).float()

    def features(self, x: Tensor) -> Tensor:
        return torch.tanh(self.body(self.norm(x)))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits


def generator() -> nn.Module:
    return initialise("gen-mlp", SMALL, TASK, 7)


@pytest.fixture
def extras(tmp_path: Path) -> dict[str, Path]:
    codec.save_state(generator(), tmp_path / "generator.safetensors")
    return {"generator": tmp_path / "generator.safetensors"}


MEMORY = {
    "discriminator.weight": torch.tensor(HEAD[None, :3]).float(),
    "discriminator.bias": torch.tensor(HEAD[3:]).float(),
}


def objective(**options: Any) -> DafkdObjective:
    adam = Adam(lr=0.01, betas=(0.5, 0.99))
    return DafkdObjective(options=SMALL, optimizer=adam, input_range=SPAN, **options)


def train(given: Any, extras: dict[str, Path], module: nn.Module | None = None, **options: Any) -> LocalResult:
    module = module or Net()
    header = codec.manifest(module)
    base = Header(header.tensors, {FEATURES_KEY: "3"})
    given_by_default: dict[str, Any] = {"seed": 0, "memory": MEMORY, "base": base}
    options = given_by_default | options
    samples = data.load(options.pop("data", (X, Y)))
    samples.check(TASK)
    plan = LocalPlan(objective=given, optimizer=Sgd(lr=LR), epochs=options.pop("epochs", 1), batch_size=6)
    return train_local(module, samples, plan, device=CPU, extras=extras, **options)


# ------------------------------------------------------------------------------------------------- written out by hand
def fakes(noise: Array, weights: Array) -> Array:
    """Return gen-mlp's samples: z -> 3 ReLU -> 2 tanh, moved from [-1, 1] to SPAN."""
    w1, b1, w2, b2 = np.split(weights, [6, 9, 15])
    inner = np.maximum(noise @ w1.reshape(3, 2).T + b1, 0)
    return np.asarray((np.tanh(inner @ w2.reshape(2, 3).T + b2) + 1) * 1.5 - 1)


def score(x: Array, w: Array, head: Array) -> Array:
    return np.asarray(np.tanh(x @ w[:6].reshape(3, 2).T) @ head[:3] + head[3])


def softplus(a: Array) -> Array:
    return np.asarray(np.logaddexp(0, a))


def slope(x: Array, w: Array, head: Array) -> Array:
    """Return ||grad_x D(x)|| with D = sigmoid(a)."""
    w1 = w[:6].reshape(3, 2)
    d = 1 / (1 + np.exp(-score(x, w, head)))
    return np.asarray(np.linalg.norm((d * (1 - d))[:, None] * ((1 - np.tanh(x @ w1.T) ** 2) * head[:3]) @ w1, axis=1))


def draws() -> tuple[Array, Array, Array]:
    """Return what a step of 6 samples draws: the discriminator's noise, the mix, the generator's noise."""
    draw = torch.Generator().manual_seed(derive_seed(0, "noise"))
    found = torch.randn(6, 2, generator=draw), torch.rand(6, generator=draw), torch.randn(6, 2, generator=draw)
    first, mix, second = (each.double().numpy() for each in found)
    return first, mix, second


def loss_of_model(both: Array, order: Array, penalty: float) -> float:
    w, head = both[:12], both[12:]
    noise, mix, _ = draws()
    x, y = X[order].astype(float), Y[order]
    logits = np.tanh(x @ w[:6].reshape(3, 2).T) @ w[6:].reshape(2, 3).T
    own = -(logits - np.log(np.exp(logits).sum(1, keepdims=True)))[np.arange(6), y].mean()
    made = fakes(noise, flat(generator()))
    between = mix[:, None] * x + (1 - mix)[:, None] * made
    adversarial = softplus(-score(x, w, head)).mean() + softplus(score(made, w, head)).mean()
    return float(own + adversarial + penalty * ((slope(between, w, head) - 1) ** 2).mean())


def gradient(loss: Callable[[Array], float], at: Array) -> Array:
    return np.array([(loss(at + step) - loss(at - step)) / 2e-5 for step in np.eye(len(at)) * 1e-5])


def flat(module: nn.Module | dict[str, Tensor]) -> Array:
    state = module.state_dict() if isinstance(module, nn.Module) else module
    return np.concatenate([value.double().numpy().ravel() for value in state.values()])


def under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name: value for name, value in tensors.items() if name.startswith(prefix)}


@pytest.mark.parametrize("penalty", [0.0, 0.3])
def test_a_step_of_all_three_follows_the_losses_written_by_hand(penalty: float, extras: dict[str, Path]) -> None:
    result = train(objective(penalty=penalty), extras)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(0)).numpy()  # it matters to the mix alone
    both = np.concatenate([START, HEAD])
    stepped = both - LR * gradient(lambda v: loss_of_model(v, order, penalty), both)
    sent = under(result.tensors, "discriminator.")
    model = flat({name: result.tensors[name] for name in ("body.weight", "head.weight")})
    got = np.concatenate([model, flat(sent)])
    assert got == pytest.approx(stepped, abs=2e-5)
    assert float(np.abs(got - both).max()) > 0.05
    assert all(torch.equal(result.memory[name], sent[name]) for name in sent)

    _, _, noise = draws() if penalty else (None, None, _noise_without_mix())

    def loss(v: Array) -> float:
        return float(softplus(-score(fakes(noise, v), got[:12], got[12:])).mean())

    first = flat(generator())
    g = gradient(loss, first)
    moved = flat(under(result.tensors, "generator.")) - first
    clear = np.abs(g) > 1e-4
    np.testing.assert_allclose(moved[clear], -0.01 * np.sign(g[clear]), rtol=1e-2)  # Adam's first step


def _noise_without_mix() -> Array:
    draw = torch.Generator().manual_seed(derive_seed(0, "noise"))
    torch.randn(6, 2, generator=draw)
    return np.asarray(torch.randn(6, 2, generator=draw).double().numpy())


def test_rounds_beyond_the_limits_train_the_classifier_alone(extras: dict[str, Path]) -> None:
    given = objective(discriminator_rounds=2, generator_rounds=2)
    late, plain = train(given, extras, round_index=3), train(SgdObjective(), {})
    assert all(torch.equal(late.tensors[name], value) for name, value in plain.tensors.items())
    assert flat(under(late.tensors, "generator.")) == pytest.approx(flat(generator()))
    assert all(torch.equal(late.tensors[name], value) for name, value in MEMORY.items())
    assert not torch.equal(train(given, extras, round_index=2).tensors["body.weight"], plain.tensors["body.weight"])


def test_running_statistics_are_those_of_real_samples(extras: dict[str, Path]) -> None:
    joint = train(objective(), extras, Net(norm=True)).tensors
    plain = train(SgdObjective(), {}, Net(norm=True)).tensors
    for name in ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked"):
        assert torch.equal(joint[name], plain[name])


@pytest.mark.parametrize("norm", [False, True])
def test_one_sample_trains_all_three_and_repeats_itself(norm: bool, extras: dict[str, Path]) -> None:
    one, two = (train(objective(), extras, Net(norm), data=(X[:1], Y[:1]), epochs=3) for _ in range(2))
    assert all(torch.equal(value, two.tensors[name]) for name, value in one.tensors.items())
    assert flat(under(one.tensors, "generator.")) != pytest.approx(flat(generator()))


def test_a_device_without_a_head_begins_with_one_of_its_seed(extras: dict[str, Path]) -> None:
    given = objective(discriminator_rounds=0)
    one, same, other = (train(given, extras, memory={}, seed=seed).memory for seed in (1, 1, 2))
    assert torch.equal(one["discriminator.weight"], same["discriminator.weight"])
    assert not torch.equal(one["discriminator.weight"], other["discriminator.weight"])
    unfit = {"discriminator.weight": torch.zeros(1, 9), "discriminator.bias": torch.zeros(1)}
    assert torch.equal(
        train(given, extras, memory=unfit, seed=1).memory["discriminator.weight"], one["discriminator.weight"]
    )


def test_what_does_not_come_or_does_not_fit_is_said(extras: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UnexpectedAnswer, match=r"extras\.generator"):
        train(objective(), {})
    codec.save_state(initialise("gen-mlp", {"latent": 5}, TASK, 0), tmp_path / "other.safetensors")
    with pytest.raises(ModelMismatch, match="layers"):
        train(objective(), {"generator": tmp_path / "other.safetensors"})
