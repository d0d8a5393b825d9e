"""FedGO's client discriminator: which inputs look like this device's own data? (FedGO, Algorithm 3)"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from client_sdk import named
from client_sdk.data import Samples
from client_sdk.per_sample import Call, PrivateLoss
from client_sdk.privacy import Spent, secret_seed
from client_sdk.training import check_finite, seeded
from contract.local import CLIP, DiscriminatorPlan, Link, Privacy
from contract.nn.optim import make_optimizer
from contract.nn.scaling import mirrored, to_signed_unit

Fakes = Callable[[int], Tensor]
"""n -> n fresh generated inputs [n, *shape] in [-1, 1]"""


def adversarial_loss(real: Tensor, fake: Tensor, link: Link) -> Tensor:
    """Return -[mean ln D(real) + mean ln(1 - D(fake))].

    Algorithm 3 prints it without the minus sign; descent needs it.

    Args:
        real: scores a [B] of the device's data, before any sigmoid; probabilities D [B] for the link 'prob'.
        fake: the same of generated data.
        link: D = sigmoid(sigmoid(a)), as the paper trains it, or D = sigmoid(a). Both are written as logarithms of
            one sigmoid, so nothing overflows. For 'prob' D is clipped as it is when it weighs, so that D = 0 and
            D = 1 cost ln 1e6 at most; what lies outside the clip no longer learns.
    """
    if link == "prob":
        real, fake = (each.float().clamp(CLIP, 1 - CLIP) for each in (real, fake))
        return -real.log().mean() - torch.log1p(-fake).mean()
    if link == "double_sigmoid":
        real, fake = torch.sigmoid(real), torch.sigmoid(fake)
    return functional.softplus(-real).mean() + functional.softplus(fake).mean()


def generated(generator: nn.Module, latent: int, seed: int, device: torch.device) -> Fakes:
    """Return a source of fresh images of a trained generator, from noise z ~ N(0, 1) of size `latent`."""
    generator.to(device).eval()
    noise = torch.Generator().manual_seed(seed)

    def draw(count: int) -> Tensor:
        with torch.no_grad():
            fakes: Tensor = generator(torch.randn(count, latent, generator=noise).to(device))
        return fakes

    return draw


def train_discriminator(
    module: nn.Module,
    samples: Samples,
    fakes: Fakes,
    plan: DiscriminatorPlan,
    *,
    link: Link,
    input_range: tuple[float, float],
    seed: int,
    device: torch.device,
    on_epoch: Callable[[int, float], None] | None = None,
) -> float:
    """Train `module` ([B, *shape] -> what `link` reads [B]) in place; per minibatch as many fresh fakes as reals.

    Returns:
        The mean loss of the last epoch; 2 ln 2 = 1.386 is what knowing nothing costs with one sigmoid.

    Raises:
        TrainingError: the loss or a weight is not finite.
    """
    module.to(device).train()
    optimizer, loss = make_optimizer(plan.optimizer, list(module.parameters())), 0.0
    with seeded(seed, device) as order:
        for epoch in range(1, plan.epochs + 1):
            lost = torch.zeros((), device=device)
            for inputs in named.alone(samples.batches(plan.batch_size, order, device), "a discriminator"):
                real = to_signed_unit(inputs, input_range)
                if plan.flip:
                    real = mirrored(real, order)
                step_loss = adversarial_loss(module(real), module(fakes(len(real))), link)
                optimizer.zero_grad(set_to_none=True)
                step_loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                lost += step_loss.detach() * len(real)
            loss = float(lost) / len(samples)
            check_finite(module, loss, epoch, "lower the discriminators' plan.optimizer.lr")
            if on_epoch is not None:
                on_epoch(epoch, loss)
    return loss


def train_privately(
    module: nn.Module,
    samples: Samples,
    fakes: Fakes,
    plan: DiscriminatorPlan,
    privacy: Privacy,
    *,
    link: Link,
    input_range: tuple[float, float],
    device: torch.device,
    on_epoch: Callable[[int, float], None] | None = None,
) -> tuple[float, Spent]:
    """Train `module` in place as `train_discriminator` does, by DP-SGD; return the loss, and what that costs.

    A sample's share in the gradient is that of its own loss and of the fake beside it, which goes when the sample does.

    Args:
        fakes: from a seed that nobody knows.

    Raises:
        TrainingError: a weight is not finite.
        ModelMismatch: the module has BatchNorm, or no gradients sample by sample.
        UsageError: Opacus is not installed.
    """
    module.to(device).train()
    optimizer, mean = make_optimizer(plan.optimizer, list(module.parameters())), 0.0
    sizes = {"batch_size": plan.batch_size, "epochs": plan.epochs}
    private = PrivateLoss(privacy, module, optimizer, samples, device, **sizes, what="discriminator")

    def loss(call: Call, real: Tensor, fake: Tensor) -> Tensor:
        return adversarial_loss(call(real), call(fake), link)

    try:
        with seeded(secret_seed(), device):
            for epoch in range(1, plan.epochs + 1):
                lost, seen = torch.zeros((), device=device), 0
                for inputs in named.alone(private.batches(), "a discriminator"):
                    real = to_signed_unit(inputs, input_range) if len(inputs) else inputs
                    if plan.flip and len(real):
                        real = mirrored(real, private.order)
                    lost += private.take_gradient(loss, real, fakes(len(real)) if len(real) else real)
                    seen += len(real)
                    optimizer.step()
                mean = float(lost) / max(seen, 1)
                check_finite(module, mean, epoch, "lower the discriminators' plan.optimizer.lr")
                if on_epoch is not None:
                    on_epoch(epoch, mean)
    finally:
        private.close()
    return mean, private.spent
