"""WGAN-GP (Gulrajani et al. 2017), as FedGO's G1: a generator trained on the unlabelled server set (FedGO E.2)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from contract.local import Adam
from contract.recipes.parts import GeneratorWganGp

CURVE_POINTS = 50


@dataclass(frozen=True)
class Trained:
    """What a training gave.

    Attributes:
        steps: generator steps done.
        critic_curve: (step, mean critic loss over the steps since the last point); at most fifty points.
    """

    steps: int
    critic_curve: list[tuple[int, float]]


def gradient_penalty(critic: nn.Module, real: Tensor, fake: Tensor, mix: Tensor) -> Tensor:
    """Return mean_x (||grad critic(x^)||_2 - 1)^2 with x^ = mix real + (1 - mix) fake, a scalar.

    Args:
        critic: [B, ...] -> scores [B].
        real: [B, ...].
        fake: [B, ...], without a graph.
        mix: [B], uniform in [0, 1).
    """
    shape = (-1, *(1 for _ in real.shape[1:]))
    between = (mix.view(shape) * real + (1 - mix.view(shape)) * fake).requires_grad_(True)
    scores = critic(between)
    (gradient,) = torch.autograd.grad(scores.sum(), between, create_graph=True)
    norm: Tensor = gradient.flatten(1).norm(dim=1)
    return ((norm - 1) ** 2).mean()


def _adam(module: nn.Module, plan: Adam) -> torch.optim.Adam:
    return torch.optim.Adam(module.parameters(), lr=plan.lr, betas=plan.betas, weight_decay=plan.weight_decay)


class _Training:
    """Networks, optimisers and one seeded source of noise; draws on the CPU so that the device does not matter."""

    def __init__(self, generator: nn.Module, critic: nn.Module, images: Tensor, plan: GeneratorWganGp, seed: int):
        self.generator, self.critic, self.images, self.plan = generator, critic, images, plan
        self.latent = int(generator.latent)  # type: ignore[arg-type]
        self.draw = torch.Generator().manual_seed(seed)
        self.batch = min(plan.batch_size, len(images))
        self.generator_optimizer = _adam(generator, plan.optimizer)
        self.critic_optimizer = _adam(critic, plan.optimizer)

    def noise(self) -> Tensor:
        return torch.randn(self.batch, self.latent, generator=self.draw).to(self.images.device)

    def critic_step(self) -> Tensor:
        """mean D(fake) - mean D(real) + penalty, minimised over the critic; returned without a graph."""
        rows = torch.randint(len(self.images), (self.batch,), generator=self.draw).to(self.images.device)
        real = self.images[rows]
        with torch.no_grad():
            fake = self.generator(self.noise())
        mix = torch.rand(self.batch, generator=self.draw).to(real.device)
        loss: Tensor = self.critic(fake).mean() - self.critic(real).mean()
        loss = loss + self.plan.penalty * gradient_penalty(self.critic, real, fake, mix)
        self.critic_optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.critic_optimizer.step()
        return loss.detach()

    def generator_step(self) -> None:
        """-mean D(G(z)), minimised over the generator; the critic's gradients of this pass are not used."""
        loss: Tensor = -self.critic(self.generator(self.noise())).mean()
        self.generator_optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.generator_optimizer.step()


def train(
    generator: nn.Module,
    critic: nn.Module,
    images: Tensor,
    plan: GeneratorWganGp,
    seed: int,
    on_step: Callable[[int], None],
) -> Trained:
    """Train both networks in place; `plan.steps` = 0 leaves the generator as it was initialised (FedGO Table 12).

    Args:
        generator: z [B, latent] -> [B, ...] in [-1, 1]; has an attribute `latent`.
        critic: [B, ...] -> scores [B]; without BatchNorm, which the per-sample penalty forbids.
        images: the server set [U, ...], scaled to [-1, 1], on the device.
        plan: steps, batch size, optimiser, penalty.
        seed: of noise and mini-batches.
        on_step: called after every generator step with its number.

    Raises:
        FloatingPointError: the critic's loss is no longer finite.
    """
    training = _Training(generator, critic, images, plan, seed)
    every = max(1, math.ceil(plan.steps / CURVE_POINTS))
    curve: list[tuple[int, float]] = []
    total, count = torch.zeros((), device=images.device), 0
    generator.train()
    critic.train()
    for step in range(1, plan.steps + 1):
        for _ in range(plan.critic_steps):
            total, count = total + training.critic_step(), count + 1
        training.generator_step()
        if step % every == 0 or step == plan.steps:
            mean = float(total) / count
            if not math.isfinite(mean):
                raise FloatingPointError(f"the critic's loss is no longer finite at step {step}")
            curve.append((step, mean))
            total, count = torch.zeros_like(total), 0
        on_step(step)
    return Trained(plan.steps, curve)
