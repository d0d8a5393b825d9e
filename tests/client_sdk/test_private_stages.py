"""DP-SGD of discriminators and federated generators: shares by hand, the account of all together, what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from client_sdk import data, errors, per_sample, privacy
from client_sdk.discriminator import adversarial_loss, train_privately
from client_sdk.gan import train_gan_privately
from client_sdk.training import train_local
from contract.architectures import CATALOGUE
from contract.local import Adam, DiscriminatorPlan, LocalPlan, Privacy, Sgd
from contract.nn import registry
from contract.nn.wgan import critic_loss, gradient_penalty, pair
from contract.recipes.parts import GeneratorFedGan
from contract.tensors import parse_header
from contract.wire.federations import Task
from tests.reference import accountant

pytest.importorskip("opacus", reason="the extra 'privacy' is not installed")

CPU = torch.device("cpu")
TASK = Task.model_validate({"num_classes": 2, "input": {"shape": [2], "dtype": "float32"}})
IMAGES = Task.model_validate({"num_classes": 2, "input": {"shape": [1, 8, 8], "dtype": "float32"}})
Run = Callable[..., Any]


def samples(x: Any, task: Task = TASK) -> data.Samples:
    taken = data.load((np.asarray(x, np.float32), np.zeros(len(x), np.int64)))
    taken.check(task)
    return taken


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# --------------------------------------------------------------------------------------------------- shares by sample
def discriminators_loss(call: per_sample.Call, real: Tensor, fake: Tensor, mix: Tensor) -> Tensor:
    return adversarial_loss(call(real), call(fake), "double_sigmoid")


def critics_loss(call: per_sample.Call, real: Tensor, fake: Tensor, mix: Tensor) -> Tensor:
    return critic_loss(call, real, fake, mix, penalty=10.0)


def slow_critic(critic: nn.Module, real: Tensor, fake: Tensor, mix: Tensor) -> Tensor:
    loss: Tensor = critic(fake).mean() - critic(real).mean() + 10.0 * gradient_penalty(critic, real, fake, mix)
    return loss


def slow_discriminator(module: nn.Module, real: Tensor, fake: Tensor, mix: Tensor) -> Tensor:
    return adversarial_loss(module(real), module(fake), "double_sigmoid")


@pytest.mark.parametrize(
    ("name", "options"),
    [("disc-mlp", {"hidden": [6]}), ("disc-cnn-digits", {"widths": [3, 4]}), ("disc-cnn-mlp", {"norm": "gn"})],
)
@pytest.mark.parametrize(
    ("fast", "slow"), [(discriminators_loss, slow_discriminator), (critics_loss, slow_critic)], ids=["disc", "critic"]
)
def test_shares_are_the_gradients_of_one_sample_after_another(
    name: str, options: dict[str, Any], fast: per_sample.SampleLoss, slow: Callable[..., Tensor]
) -> None:
    """The slow reference: autograd on batches of one. Their mean is the gradient of the whole batch."""
    module = registry.initialise(name, options, IMAGES, 3).train()
    real, fake, mix = drawn(1, 5, 1, 8, 8), drawn(2, 5, 1, 8, 8), torch.rand(5)
    found, losses = per_sample.gradients(module, fast, (real, fake, mix))
    parameters = dict(module.named_parameters())
    assert found.keys() == parameters.keys()
    for index in range(5):
        one = slice(index, index + 1)
        loss = slow(module, real[one], fake[one], mix[one])
        for parameter, expected in zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True):
            torch.testing.assert_close(found[parameter][index], expected, rtol=1e-3, atol=1e-5)
        assert losses[index].item() == pytest.approx(loss.item(), rel=1e-4)
    whole = torch.autograd.grad(slow(module, real, fake, mix), list(parameters.values()))
    for parameter, expected in zip(parameters, whole, strict=True):
        torch.testing.assert_close(found[parameter].mean(0), expected, rtol=1e-3, atol=1e-5)


class Line(nn.Module):
    """a(x) = w x, whose gradient by w for D = sigmoid(a) at w = 0 is (fake - real) / 2."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def step(noise: float, norm: float, x: Any, **options: Any) -> Tensor:
    """Return the weights after one step of rate 1 on all of x, with fakes at 0."""
    module, plan = Line(), DiscriminatorPlan(optimizer=Sgd(lr=1.0), epochs=1, batch_size=len(x), **options)
    given = {"link": "sigmoid", "input_range": (-1.0, 1.0), "device": CPU}
    rules = Privacy(noise_multiplier=noise, max_grad_norm=norm)
    train_privately(module, samples(x), lambda count: torch.zeros(count, 2), plan, rules, **given)  # type: ignore[arg-type]
    assert not any(hasattr(parameter, "grad_sample") for parameter in module.parameters())
    return module.weight.detach()


def test_a_discriminators_shares_are_clipped() -> None:
    """-x / 2 of (0.6, 0.8) has norm 0.5 and is scaled to 0.1; that of (0.02, 0) stays. w = 0 + mean of x's shares."""
    expected = (torch.tensor([0.6, 0.8]) * 0.1 + torch.tensor([0.01, 0.0])) / 2
    torch.testing.assert_close(step(1e-6, 0.1, [[0.6, 0.8], [0.02, 0.0]]), expected, rtol=1e-3, atol=1e-5)


def test_a_discriminators_noise_has_the_stated_size_and_comes_from_no_seed() -> None:
    """sigma C / B = 2 * 0.5 / 1."""
    found = np.array([step(2.0, 0.5, [[0.0, 0.0]]).numpy() for _ in range(60)])
    assert np.std(found) == pytest.approx(1.0, rel=0.25)
    assert len({row.tobytes() for row in found}) == 60


def gan(noise: float, **changes: Any) -> tuple[nn.ModuleDict, GeneratorFedGan, Any]:
    plan = GeneratorFedGan(
        options={"latent": 4, "hidden": [16]}, critic_options={"hidden": [16]}, input_range=(-4.0, 4.0),
        optimizer=Adam(lr=1e-2, betas=(0.0, 0.9)), **{"batch_size": 16, "epochs": 40, **changes},
    )  # fmt: skip
    both = pair(
        registry.initialise(plan.architecture, plan.options, TASK, 1),
        registry.initialise(plan.critic_architecture, plan.critic_options, TASK, 2),
    )
    x = np.array([2.4, -2.4]) + np.random.default_rng(0).normal(0, 0.2, (64, 2))
    rules = Privacy(noise_multiplier=noise, max_grad_norm=5.0)
    return both, plan, train_gan_privately(both, samples(x), plan, rules, seed=3, device=CPU)


def test_a_private_generator_learns_and_its_critics_steps_are_counted() -> None:
    """The data sit at (0.6, -0.6), a fresh generator around 0: it comes nearer, with little noise."""
    both, plan, (_, spent) = gan(0.05)
    with torch.no_grad():
        made = both["generator"](drawn(5, 200, 4)).mean(dim=0)
    assert float((made - torch.tensor([0.6, -0.6])).norm()) < 0.6
    assert spent == privacy.Spent(noise_multiplier=0.05, sample_rate=16 / 64, steps=4 * plan.epochs)


def test_two_private_generators_of_one_seed_differ() -> None:
    first, second = (gan(1.0, epochs=1)[0]["critic"].state_dict() for _ in range(2))
    assert not any(torch.equal(first[name], second[name]) for name in first)


def test_what_mixes_samples_or_cannot_be_told_apart_is_refused() -> None:
    given: dict[str, Any] = {"link": "sigmoid", "input_range": (-1.0, 1.0), "device": CPU}
    plan, x = DiscriminatorPlan(epochs=1), samples([[0.1, 0.2]] * 3)
    mixing = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1), nn.Flatten(0))
    with pytest.raises(errors.ModelMismatch, match="discriminator: layer '1' is BatchNorm.*GroupNorm"):
        train_privately(mixing, x, lambda count: torch.zeros(count, 2), plan, Privacy(), **given)

    class Counting(Line):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            self.seen.add_(x.sum(0))  # type: ignore[operator]
            return super().forward(x)

    with pytest.raises(errors.ModelMismatch, match="no sample's share"):
        train_privately(Counting(), x, lambda count: torch.zeros(count, 2), plan, Privacy(), **given)


class Summing(nn.Module):
    """Keeps a sum of its inputs in a buffer, which is sent with the weights."""

    total: Tensor

    def __init__(self, persistent: bool) -> None:
        super().__init__()
        self.body = nn.Linear(2, 2)
        self.register_buffer("total", torch.zeros(2), persistent=persistent)

    def forward(self, x: Tensor) -> Tensor:
        self.total = self.total + x.detach().sum(0)
        found: Tensor = self.body(x)
        return found


def test_a_buffer_that_training_changes_is_not_sent() -> None:
    plan = LocalPlan(privacy=Privacy(), optimizer=Sgd(lr=0.1), batch_size=4)
    x = samples([[0.5, 0.25]] * 8)
    with pytest.raises(errors.ModelMismatch, match="buffer 'total' changed.*without noise"):
        train_local(Summing(True), x, plan, seed=0, device=CPU)
    assert "total" not in train_local(Summing(False), x, plan, seed=0, device=CPU).tensors


# -------------------------------------------------------------------------------------------------------- the account
def test_the_account_is_that_of_numerical_integration() -> None:
    """Steps of three kinds together: a discriminator's, a generator's over its rounds, and those of two rounds."""
    spent = [(1.1, 0.2, 60), (1.1, 0.25, 36), (1.1, 0.1, 50), (1.1, 0.1, 50)]
    counted = [privacy.Spent(noise_multiplier=s, sample_rate=q, steps=n) for s, q, n in spent]
    expected = accountant.epsilon(spent, 1e-5)
    assert privacy.epsilon(counted, 1e-5) == pytest.approx(expected, rel=1e-3)
    alone = accountant.epsilon(spent[2:], 1e-5)
    assert privacy.epsilon(counted[2:], 1e-5) == pytest.approx(alone, rel=1e-3)
    assert expected > 1.5 * alone, "what comes before the rounds is most of it"


def test_the_reference_gives_the_literatures_number() -> None:
    """Abadi et al. 2016, section 3.2: q = 0.01, sigma = 4, 10,000 steps, delta = 1e-5: epsilon 1.26."""
    assert accountant.epsilon([(4.0, 0.01, 10_000)], 1e-5, plain=True) == pytest.approx(1.26, abs=0.005)
    assert accountant.renyi(2.0, 1.0, 8.0) == pytest.approx(8 / (2 * 2.0**2)), "without sampling, a / (2 sigma^2)"


def test_a_device_counts_its_discriminator_and_generator_and_tells_no_loss(
    take_part: Run, service: Any, tmp_path: Path
) -> None:
    """40 samples. Generator: 2 rounds of 2 epochs of 5 steps; discriminator: 2 epochs of 1 step; rounds: 2 x 5."""
    service.plan["privacy"] = {"noise_multiplier": 1.5}
    service.want_gan()
    service.want_discriminator = True
    report = take_part()
    steps = [(1.5, 0.2, 10), (1.5, 0.2, 10), (1.5, 1.0, 2), (1.5, 0.2, 10), (1.5, 0.2, 10)]
    ledger = json.loads((tmp_path / "device" / "privacy.json").read_text())["spent"]
    assert [(entry["noise_multiplier"], entry["sample_rate"], entry["steps"]) for entry in ledger] == steps
    sent = [*service.gans, service.discriminator, *service.updates]
    metrics = [json.loads(parse_header(file, len(file)).metadata["metrics"]) for file in sent]
    for number, told in enumerate(metrics, start=1):
        assert told["epsilon"] == pytest.approx(accountant.epsilon(steps[:number], 1e-5), rel=1e-3)
        assert told.keys() <= {"epsilon", "steps"}
    assert report.epsilon == metrics[-1]["epsilon"] and report.epsilon_before == metrics[2]["epsilon"]


def test_a_crash_before_the_discriminator_is_delivered_costs_nothing_again(
    take_part: Run, service: Any, tmp_path: Path
) -> None:
    def crash(request: Any) -> Any:
        raise KeyboardInterrupt

    service.plan["privacy"] = {}
    service.want_discriminator = True
    service.fault("PUT", ".*/discriminator", crash)
    with pytest.raises(KeyboardInterrupt):
        take_part()
    before = (tmp_path / "device" / "pending.safetensors").read_bytes()
    report = take_part(rounds=1)
    assert service.discriminator == before
    assert len(json.loads((tmp_path / "device" / "privacy.json").read_text())["spent"]) == 2
    assert report.epsilon > report.epsilon_before > 0


# -------------------------------------------------------------------------------------------------------- the catalogue
DISCRIMINATORS = [
    (entry.name, {"norm": norm} if norm else {})
    for entry in CATALOGUE.values()
    if entry.role == "discriminator"
    for norm in entry.options.model_json_schema()["properties"].get("norm", {}).get("enum", [""])
]


@pytest.mark.parametrize(("name", "options"), DISCRIMINATORS)
def test_the_service_refuses_the_discriminators_that_a_device_would(name: str, options: dict[str, Any]) -> None:
    task = Task.model_validate({"num_classes": 2, "input": {"shape": [3, 32, 32]}})
    module = registry.build(name, options, task=task)
    try:
        privacy.check_apart(module, "discriminator")
    except errors.ModelMismatch:
        with pytest.raises(ValueError, match="local.privacy"):
            CATALOGUE[name].check_private(options)
    else:
        CATALOGUE[name].check_private(options)


def test_a_private_critic_sees_about_half_of_the_images_mirrored(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a draw that no seed tells."""
    seen: list[Tensor] = []

    class Watched(per_sample.PrivateLoss):
        def take_gradient(self, loss: per_sample.SampleLoss, *rows: Tensor) -> Tensor:
            seen.append(rows[0].clone())
            return super().take_gradient(loss, *rows)

    monkeypatch.setattr("client_sdk.gan.PrivateLoss", Watched)
    rules = Privacy(noise_multiplier=1.0, max_grad_norm=1.0)
    for flip in (True, False):
        plan = GeneratorFedGan(
            options={"latent": 4, "hidden": [4]}, critic_options={"hidden": [4]}, batch_size=100, epochs=2,
            input_range=(0.0, 4.0), flip=flip,
        )  # fmt: skip
        both = pair(
            registry.initialise(plan.architecture, plan.options, TASK, 1),
            registry.initialise(plan.critic_architecture, plan.critic_options, TASK, 2),
        )
        train_gan_privately(both, samples([[1.0, 3.0]] * 200), plan, rules, seed=1, device=CPU)
    half = len(seen) // 2
    first, later = torch.cat(seen[:half]), torch.cat(seen[half:])
    share = float((first[:, 0] > first[:, 1]).double().mean())
    assert len(first) > 100 and 0.3 < share < 0.7
    assert not (later[:, 0] > later[:, 1]).any()
