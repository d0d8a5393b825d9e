"""WGAN-GP learns a distribution that an untrained generator does not know."""

import pytest
import torch

from contract.local import Adam
from contract.nn.registry import initialise
from contract.nn.wgan import Training
from contract.recipes.parts import GeneratorWganGp
from contract.wire.federations import Task
from worker.generators import wgan

TASK = Task.model_validate({"num_classes": 2, "input": {"shape": [2]}})


def test_it_moves_towards_the_data() -> None:
    """The data sit at (0.6, -0.6); a fresh generator sits around 0."""
    images = torch.tensor([0.6, -0.6]) + 0.05 * torch.randn(64, 2, generator=torch.Generator().manual_seed(1))
    plan = GeneratorWganGp(steps=150, critic_steps=5, batch_size=32, optimizer=Adam(lr=1e-2, betas=(0.0, 0.9)))
    generator = initialise("gen-mlp", {"latent": 4, "hidden": [32]}, TASK, 1)
    critic = initialise("disc-mlp", {"hidden": [32]}, TASK, 2)
    noise = torch.randn(200, 4, generator=torch.Generator().manual_seed(3))

    def distance() -> float:
        with torch.no_grad():
            return float((generator(noise).mean(dim=0) - torch.tensor([0.6, -0.6])).norm())

    before, steps = distance(), list[int]()
    trained = wgan.train(generator, critic, images, plan, 4, steps.append)
    assert distance() < 0.2 * before
    assert steps == list(range(1, 151))
    assert len(trained.critic_curve) <= wgan.CURVE_POINTS


@pytest.mark.parametrize("architecture", ["gen-mlp", "gen-resnet", "gen-dcgan"])
@pytest.mark.parametrize(("images", "batch"), [(1, 64), (3, 1)])
def test_one_image_at_a_time_is_enough(architecture: str, images: int, batch: int) -> None:
    """Generators with BatchNorm have no statistics of one sample."""
    task = Task.model_validate({"num_classes": 2, "input": {"shape": [1, 8, 8]}})
    plan = GeneratorWganGp(architecture=architecture, steps=2, critic_steps=1, batch_size=batch)
    generator, critic = initialise(architecture, {}, task, 1), initialise("disc-mlp", {"hidden": [8]}, task, 2)
    before = [each.detach().clone() for each in generator.parameters()]
    scaled = torch.rand(images, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    wgan.train(generator, critic, scaled, plan, 4, lambda step: None)
    after = list(generator.parameters())
    assert all(bool(torch.isfinite(each).all()) for each in after)
    assert any(not torch.equal(one, two) for one, two in zip(before, after, strict=True))


def test_the_critic_sees_mirrored_images_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each image is brighter on its left; about half are seen the other way round, the same ones with the same seed."""
    images, seen = torch.tensor([1.0, 0.0]).expand(64, 1, 1, 2).clone(), list[torch.Tensor]()
    task = Task.model_validate({"num_classes": 2, "input": {"shape": [1, 1, 2]}})

    def look(self: Training, real: torch.Tensor) -> torch.Tensor:
        seen.append(real)
        return torch.zeros(())

    monkeypatch.setattr(Training, "critic_step", look)
    for flip in (True, True, False):
        plan = GeneratorWganGp(steps=2, critic_steps=1, batch_size=64, flip=flip)
        generator, critic = initialise("gen-mlp", {}, task, 1), initialise("disc-mlp", {}, task, 2)
        wgan.train(generator, critic, images, plan, 4, lambda step: None)
    mirrored = [int((each[..., 1] > each[..., 0]).sum()) for each in seen]
    assert all(18 < count < 46 for count in mirrored[:4])
    assert mirrored[4:] == [0, 0]
    assert torch.equal(seen[0], seen[2]) and torch.equal(seen[1], seen[3])
