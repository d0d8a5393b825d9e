"""FedGO's client discriminator."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from client_sdk import data
from client_sdk.discriminator import adversarial_loss, generated, train_discriminator
from client_sdk.errors import TrainingError
from contract.local import Adam, DiscriminatorPlan, Sgd
from contract.nn import registry
from contract.nn.scaling import to_signed_unit
from contract.wire.federations import Task

CPU = torch.device("cpu")
TASK = Task.model_validate({"num_classes": 2, "input": {"shape": [2], "dtype": "float32"}})
PLAN = DiscriminatorPlan(architecture="disc-mlp", optimizer=Adam(lr=1e-2), epochs=15, batch_size=16)


def cloud(centre: float, count: int = 65) -> torch.Tensor:
    return torch.randn(count, 2, generator=torch.Generator().manual_seed(int(centre))) * 0.1 + centre


def own_data() -> data.Samples:
    """A cloud around 3 in data values [0, 4]; around 0.5 in the generator's range."""
    samples = data.load((cloud(3.0), torch.zeros(65, dtype=torch.int64)))
    samples.check(TASK)
    return samples


def far_fakes(count: int) -> torch.Tensor:
    return cloud(-0.5, count)


def test_one_sigmoid_by_hand() -> None:
    """D(real) = sigmoid(ln 3) = 3/4, D(fake) = sigmoid(-ln 4) = 1/5: loss = -(ln 3/4 + ln 4/5) = ln 5/3."""
    loss = adversarial_loss(torch.tensor([math.log(3)]), torch.tensor([-math.log(4)]), "sigmoid")
    assert float(loss) == pytest.approx(math.log(5 / 3))


def test_two_sigmoids_by_hand() -> None:
    """a = 0: D = sigmoid(1/2) for both; the loss is -(ln D + ln(1 - D)), a mean over two reals and two fakes."""
    d = 1 / (1 + math.exp(-0.5))
    loss = adversarial_loss(torch.zeros(2), torch.zeros(2), "double_sigmoid")
    assert float(loss) == pytest.approx(-math.log(d) - math.log(1 - d), rel=1e-6)


def test_probabilities_by_hand() -> None:
    """D(real) = 3/4 and 1/2, D(fake) = 1/5: loss = -((ln 3/4 + ln 1/2) / 2 + ln 4/5)."""
    loss = adversarial_loss(torch.tensor([0.75, 0.5]), torch.tensor([0.2]), "prob")
    assert float(loss) == pytest.approx(-(math.log(0.75 * 0.5) / 2 + math.log(0.8)), rel=1e-6)


def test_probabilities_cost_and_teach_what_their_scores_do() -> None:
    scores = torch.linspace(-8, 8, 33)
    found = []
    for link in ("sigmoid", "prob"):
        real, fake = scores.clone().requires_grad_(), scores.clone().requires_grad_()
        ends = (real, fake) if link == "sigmoid" else (real.sigmoid(), fake.sigmoid())
        loss = adversarial_loss(*ends, link)
        loss.backward()
        found.append((loss.detach(), real.grad, fake.grad))
    for raw, probability in zip(*found, strict=True):
        torch.testing.assert_close(probability, raw, rtol=1e-3, atol=1e-6)  # 1 - D has few digits left near 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_probabilities_of_exactly_0_and_1_give_finite_losses_and_gradients(dtype: torch.dtype) -> None:
    """Half of the reals and half of the fakes are wrong; each half costs -(ln 1e-6 + ln(1 - 1e-6)) / 2."""
    scores = torch.tensor([-1e4, 1e4], dtype=dtype, requires_grad=True)
    ends = scores.sigmoid()
    assert ends.tolist() == [0.0, 1.0]
    loss = adversarial_loss(ends, ends, "prob")
    loss.backward()
    assert float(loss.detach()) == pytest.approx(-math.log(1e-6), rel=2e-3)
    assert scores.grad is not None and torch.isfinite(scores.grad).all()


@pytest.mark.parametrize("link", ["double_sigmoid", "sigmoid"])
def test_extreme_scores_give_finite_losses_and_gradients(link: Any) -> None:
    real, fake = torch.tensor([-1e4, 1e4], requires_grad=True), torch.tensor([-1e4, 1e4], requires_grad=True)
    loss = adversarial_loss(real, fake, link)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(each.grad is not None and torch.isfinite(each.grad).all() for each in (real, fake))


def test_data_values_are_mapped_to_the_generators_range() -> None:
    assert to_signed_unit(torch.tensor([0.0, 8.0, 16.0]), (0.0, 16.0)).tolist() == [-1.0, 0.0, 1.0]


@pytest.mark.parametrize("link", ["double_sigmoid", "sigmoid", "prob"])
def test_it_learns_to_tell_its_own_data_from_the_fakes(link: Any) -> None:
    output = "probability" if link == "prob" else "score"
    module = registry.initialise("disc-mlp", {"hidden": [16], "output": output}, TASK, 1)
    told: list[int] = []
    loss = train_discriminator(
        module,
        own_data(),
        far_fakes,
        PLAN,
        link=link,
        input_range=(0.0, 4.0),
        seed=1,
        device=CPU,
        on_epoch=lambda epoch, loss: told.append(epoch),
    )
    module.eval()
    with torch.no_grad():
        own, fake = module(to_signed_unit(cloud(3.0), (0.0, 4.0))), module(far_fakes(65))
    if link == "prob":
        own, fake = torch.logit(own), torch.logit(fake)
    assert float(own.min() - fake.max()) > 2
    assert told == list(range(1, 16))
    best = -math.log(1 / (1 + math.exp(-1))) + math.log(2) if link == "double_sigmoid" else 0.0
    assert best <= loss < best + 0.2


def test_each_minibatch_gets_as_many_fresh_fakes_as_reals() -> None:
    asked: list[int] = []

    def fakes(count: int) -> torch.Tensor:
        asked.append(count)
        return far_fakes(count)

    module = registry.initialise("disc-mlp", {"hidden": [4]}, TASK, 1)
    plan = PLAN.model_copy(update={"epochs": 2})
    train_discriminator(module, own_data(), fakes, plan, link="sigmoid", input_range=(0.0, 4.0), seed=1, device=CPU)
    assert asked == [16, 16, 16, 17] * 2


def test_generated_images_are_fresh_seeded_and_in_range() -> None:
    generator = registry.initialise("gen-mlp", {"latent": 4, "hidden": [8]}, TASK, 3)
    draw, again = generated(generator, 4, 9, CPU), generated(generator, 4, 9, CPU)
    first, second = draw(5), draw(5)
    assert first.shape == (5, 2) and not torch.equal(first, second)
    assert torch.equal(again(5), first) and float(first.abs().max()) <= 1 and not first.requires_grad


def test_flip_mirrors_about_half_of_the_images() -> None:
    seen: list[torch.Tensor] = []

    class Watch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x)
            return self.scale * x[:, 0]

    samples = data.load((np.tile(np.array([[1.0, 3.0]]), (200, 1)), np.zeros(200, int)))
    samples.check(TASK)
    for flip in (True, False):
        plan = DiscriminatorPlan(flip=flip, epochs=1, batch_size=200, optimizer=Sgd())
        train_discriminator(
            Watch(), samples, far_fakes, plan, link="sigmoid", input_range=(0.0, 4.0), seed=1, device=CPU
        )
    flipped, plain = (int((reals[:, 0] > reals[:, 1]).sum()) for reals in (seen[0], seen[2]))
    assert 70 < flipped < 130 and plain == 0


def test_a_loss_that_is_not_finite_stops_it() -> None:
    module = registry.initialise("disc-mlp", {"hidden": [4]}, TASK, 1)
    with pytest.raises(TrainingError, match="after epoch 1"):
        train_discriminator(
            module,
            own_data(),
            lambda count: torch.full((count, 2), torch.nan),
            PLAN,
            link="sigmoid",
            input_range=(0.0, 4.0),
            seed=1,
            device=CPU,
        )
