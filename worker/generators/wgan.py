"""WGAN-GP as FedGO's G1: a generator trained on the unlabelled server set (FedGO E.2)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from contract.nn.scaling import mirrored
from contract.nn.seeding import global_seed
from contract.nn.wgan import Training
from contract.recipes.parts import GeneratorWganGp
from worker.checkpoints import Checkpoint, Contents, Saved
from worker.parts.resume import (
    generator_array,
    global_arrays,
    module_arrays,
    optimizer_arrays,
    prefixed,
    restore_generator,
    restore_global,
    restore_module,
    restore_optimizer,
)

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
    checkpoint: Checkpoint | None = None,
) -> Trained:
    """Train both networks in place; `plan.steps` = 0 leaves the generator as it was initialised (FedGO Table 12).

    Args:
        generator: z [B, latent] -> [B, ...] in [-1, 1]; has an attribute `latent`.
        critic: [B, ...] -> scores [B]; without BatchNorm.
        images: the server set [U, ...], scaled to [-1, 1], on the device.
        plan: steps, batch size, optimiser, penalty, and whether real images are mirrored at random.
        seed: of noise, mini-batches, mirrored images and whatever layers draw.
        on_step: called after every generator step with its number.
        checkpoint: where the training is kept from time to time, and found again.

    Raises:
        FloatingPointError: the critic's loss is no longer finite.
        RuleError: the critic has BatchNorm.
    """
    checkpoint = checkpoint or Checkpoint()
    training = Training(
        generator, critic, optimizer=plan.optimizer, penalty=plan.penalty, seed=seed, device=images.device
    )
    with global_seed(seed, images.device):
        state = _State(training, images.device)
        before = 0
        if checkpoint.saved is not None:
            state.restore(checkpoint.saved)
            before = checkpoint.saved.step
        for step in range(before + 1, plan.steps + 1):
            state.step(step, images, plan)
            on_step(step)
            if checkpoint.due() and step < plan.steps:
                checkpoint.save(step, *state.contents())
    return Trained(plan.steps, state.curve)


class _State:
    """A training on its way: all that its next step depends on."""

    def __init__(self, training: Training, device: torch.device):
        self._training, self._device = training, device
        self.curve: list[tuple[int, float]] = []
        self._total, self._count = torch.zeros((), device=device), 0

    def step(self, step: int, images: Tensor, plan: GeneratorWganGp) -> None:
        training, batch = self._training, min(plan.batch_size, len(images))
        for _ in range(plan.critic_steps):
            rows = torch.randint(len(images), (batch,), generator=training.draw).to(images.device)
            real = mirrored(images[rows], training.draw) if plan.flip else images[rows]
            self._total, self._count = self._total + training.critic_step(real), self._count + 1
        training.generator_step(batch)
        every = max(1, math.ceil(plan.steps / CURVE_POINTS))
        if step % every == 0 or step == plan.steps:
            mean = float(self._total) / self._count
            if not math.isfinite(mean):
                raise FloatingPointError(f"the critic's loss is no longer finite at step {step}")
            self.curve.append((step, mean))
            self._total, self._count = torch.zeros_like(self._total), 0

    def _networks(self) -> dict[str, tuple[nn.Module, torch.optim.Optimizer]]:
        training = self._training
        return {
            "generator": (training.generator, training.generator_optimizer),
            "critic": (training.critic, training.critic_optimizer),
        }

    def contents(self) -> Contents:
        arrays = {
            **prefixed("torch.", global_arrays(self._device)),
            "draw": generator_array(self._training.draw),
            "total": np.asarray(self._total.cpu().numpy()),
        }
        notes: dict[str, Any] = {"curve": self.curve, "count": self._count}
        for name, (module, optimizer) in self._networks().items():
            memory, notes[name] = optimizer_arrays(optimizer)
            arrays |= prefixed(f"{name}.model.", module_arrays(module))
            arrays |= prefixed(f"{name}.optimizer.", memory)
        return arrays, notes

    def restore(self, saved: Saved) -> None:
        for name, (module, optimizer) in self._networks().items():
            restore_module(module, saved.under(f"{name}.model."))
            restore_optimizer(optimizer, saved.under(f"{name}.optimizer."), saved.notes[name])
        restore_global(self._device, saved.under("torch."))
        restore_generator(self._training.draw, saved.arrays["draw"])
        self.curve = [(int(step), float(loss)) for step, loss in saved.notes["curve"]]
        self._total, self._count = torch.from_numpy(saved.arrays["total"]).to(self._device), int(saved.notes["count"])
