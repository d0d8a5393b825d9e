"""WGAN-GP as FedGO's G1: a generator trained on the unlabelled server set (FedGO E.2)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from contract.nn.wgan import Training
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
    training = Training(
        generator, critic, optimizer=plan.optimizer, penalty=plan.penalty, seed=seed, device=images.device
    )
    batch = min(plan.batch_size, len(images))
    every = max(1, math.ceil(plan.steps / CURVE_POINTS))
    curve: list[tuple[int, float]] = []
    total, count = torch.zeros((), device=images.device), 0
    for step in range(1, plan.steps + 1):
        for _ in range(plan.critic_steps):
            rows = torch.randint(len(images), (batch,), generator=training.draw).to(images.device)
            total, count = total + training.critic_step(images[rows]), count + 1
        training.generator_step(batch)
        if step % every == 0 or step == plan.steps:
            mean = float(total) / count
            if not math.isfinite(mean):
                raise FloatingPointError(f"the critic's loss is no longer finite at step {step}")
            curve.append((step, mean))
            total, count = torch.zeros_like(total), 0
        on_step(step)
    return Trained(plan.steps, curve)
