"""WGAN-GP (Gulrajani et al. 2017), step by step: the worker trains with it (FedGO, G1), and so do clients (G3)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad

from contract.errors import RuleError
from contract.local import Adam
from contract.nn import registry
from contract.nn.optim import make_optimizer
from contract.recipes.parts import GeneratorFederated
from contract.updates import GENERATOR
from contract.wire.federations import Task

CRITIC = "critic."
"""Prefix of the critic in the file that clients of a federated generator train, beside `GENERATOR`'s."""


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


def check_critic(critic: nn.Module) -> None:
    """Refuse a critic with BatchNorm: the penalty is on the gradient of one sample's score by that sample.

    Raises:
        RuleError: bad_option, naming the layer and the remedy.
    """
    for name, layer in critic.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            raise RuleError(
                "bad_option",
                f"generator.critic_architecture: layer {name!r} of the critic is BatchNorm, which mixes the samples of "
                "a batch, and WGAN-GP's gradient penalty is per sample; take GroupNorm or no norm",
            )


def critic_loss(call: Callable[[Tensor], Tensor], real: Tensor, fake: Tensor, mix: Tensor, *, penalty: float) -> Tensor:
    """Return D(fake) - D(real) + penalty (||grad D(x^)||_2 - 1)^2 of one sample, with x^ = mix real + (1 - mix) fake.

    Its mean over a batch is `Training.critic_step`'s loss; here it can be differentiated inside `torch.func`.

    Args:
        call: the critic, [...] -> its score.
        real, fake: one of each [...].
        mix: scalar in [0, 1).
    """
    norm = torch.linalg.vector_norm(grad(call)(mix * real + (1 - mix) * fake))
    loss: Tensor = call(fake) - call(real) + penalty * (norm - 1) ** 2
    return loss


class Training:
    """Networks, fresh optimisers and one seeded source of noise; draws on the CPU so that the device does not matter.

    Args:
        generator: z [B, latent] -> [B, ...] in [-1, 1]; has an attribute `latent`.
        critic: [B, ...] -> scores [B]; see `check_critic`.
        optimizer: of both networks.
        penalty: weight of the gradient penalty.
        seed: of `draw`.
        device: where the networks are.

    Raises:
        RuleError: the critic has BatchNorm.
    """

    def __init__(
        self, generator: nn.Module, critic: nn.Module, *, optimizer: Adam, penalty: float, seed: int, device: Any
    ):
        check_critic(critic)
        self.generator, self.critic, self.penalty, self.device = generator, critic, penalty, device
        self.latent = int(generator.latent)  # type: ignore[arg-type]
        self.draw = torch.Generator().manual_seed(seed)
        self.generator_optimizer = make_optimizer(optimizer, generator.parameters())
        self.critic_optimizer = make_optimizer(optimizer, critic.parameters())
        generator.train()
        critic.train()

    def fakes(self, count: int) -> Tensor:
        """Return fresh fakes [B, ...]: two where one is asked for, since BatchNorm has no statistics of one."""
        noise = torch.randn(max(count, 2), self.latent, generator=self.draw)
        fakes: Tensor = self.generator(noise.to(self.device))
        return fakes

    def critic_step(self, real: Tensor) -> Tensor:
        """mean D(fake) - mean D(real) + penalty, minimised over the critic; returned without a graph.

        Args:
            real: [B, ...], scaled to [-1, 1].
        """
        with torch.no_grad():
            fake = self.fakes(len(real))[: len(real)]
        mix = torch.rand(len(real), generator=self.draw).to(self.device)
        loss: Tensor = self.critic(fake).mean() - self.critic(real).mean()
        loss = loss + self.penalty * gradient_penalty(self.critic, real, fake, mix)
        self.critic_optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.critic_optimizer.step()
        return loss.detach()

    def generator_step(self, count: int) -> None:
        """-mean D(G(z)) over `count` samples, two at least, minimised over the generator.

        The critic's gradients are not used.
        """
        loss: Tensor = -self.critic(self.fakes(count)).mean()
        self.generator_optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.generator_optimizer.step()


def pair(generator: nn.Module, critic: nn.Module) -> nn.ModuleDict:
    """Return both networks as one module, whose tensors are named as in the file that travels."""
    return nn.ModuleDict({GENERATOR.rstrip("."): generator, CRITIC.rstrip("."): critic})


def build_pair(plan: GeneratorFederated, task: Task) -> nn.ModuleDict:
    """Return both networks of a federated generator, to load what the service sent into."""
    generator = registry.build(plan.architecture, plan.options, task=task)
    return pair(generator, registry.build(plan.critic_architecture, plan.critic_options, task=task))
