"""A client's part in the federated generator: WGAN-GP on local data (FedGO, G3, E.2; FedGAN)."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from client_sdk import named
from client_sdk.data import Samples
from client_sdk.named import Inputs
from client_sdk.per_sample import PrivateLoss
from client_sdk.privacy import Spent, secret_seed
from client_sdk.training import check_finite, seeded
from contract.local import Privacy
from contract.nn.scaling import mirrored, to_signed_unit
from contract.nn.wgan import Training, critic_loss
from contract.recipes.parts import GeneratorFederated
from contract.seeds import derive_seed


def train_gan(
    both: nn.ModuleDict,
    samples: Samples,
    plan: GeneratorFederated,
    *,
    seed: int,
    device: torch.device,
    on_epoch: Callable[[int, float], None] | None = None,
) -> float:
    """Train generator and critic in place for `plan.epochs` epochs, with fresh optimisers.

    An epoch is one pass of the critic over the local data. The generator steps after every `plan.critic_steps`
    mini-batches, counted across epochs, and after those that are left at the end: it also learns where there are few
    data. The paper says no more than "local epochs".

    Args:
        both: `generator` and `critic` as they were sent (`contract.nn.wgan.build_pair`).
        samples: the device's data; labels are not used.
        seed: of noise and order.

    Returns:
        The critic's mean loss over the last epoch.

    Raises:
        TrainingError: the loss or a weight is not finite.
        RuleError: bad_option, the critic has BatchNorm.
    """
    training = _begin(both, plan, derive_seed(seed, "noise"), device)
    with seeded(seed, device) as order:

        def batches() -> Iterator[tuple[Inputs, Tensor]]:
            return samples.batches(plan.batch_size, order, device)

        def critic_step(inputs: Tensor) -> Tensor:
            real = to_signed_unit(inputs, plan.input_range)
            real = mirrored(real, training.draw) if plan.flip else real
            return training.critic_step(real) * len(inputs)

        return _train(both, training, plan, len(samples), batches, critic_step, on_epoch)


def train_gan_privately(
    both: nn.ModuleDict,
    samples: Samples,
    plan: GeneratorFederated,
    privacy: Privacy,
    *,
    seed: int,
    device: torch.device,
    on_epoch: Callable[[int, float], None] | None = None,
) -> tuple[float, Spent]:
    """Train both in place as `train_gan` does, the critic by DP-SGD; return its loss, and what that costs.

    The generator learns from the critic alone, so what it has of the data is what noise has reached (Xie et al. 2018).
    Each step makes as many fakes, however many samples were drawn; each sample then draws one of them, so that its
    share in the gradient is that of its own three scores.

    Args:
        seed: of the generator's noise, which tells nothing of the data.

    Raises:
        TrainingError: a weight is not finite.
        ModelMismatch: the critic has no gradients sample by sample.
        RuleError: bad_option, the critic has BatchNorm.
        UsageError: Opacus is not installed.
    """
    training, size = _begin(both, plan, derive_seed(seed, "noise"), device), min(plan.batch_size, len(samples))
    sizes = {"batch_size": plan.batch_size, "epochs": plan.epochs}
    critic, optimizer = training.critic, training.critic_optimizer
    private = PrivateLoss(privacy, critic, optimizer, samples, device, **sizes, what="generator's critic")
    loss = partial(critic_loss, penalty=plan.penalty)

    def critic_step(inputs: Tensor) -> Tensor:
        with torch.no_grad():
            fakes = training.fakes(size)
        real = to_signed_unit(inputs, plan.input_range) if len(inputs) else inputs
        real = mirrored(real, private.order) if plan.flip and len(real) else real
        drawn = torch.randint(len(fakes), (len(real),), generator=private.order)
        mix = torch.rand(len(real), generator=private.order).to(device)
        lost = private.take_gradient(loss, real, fakes[drawn.to(device)], mix)
        optimizer.step()
        return lost

    try:
        with seeded(secret_seed(), device):
            mean = _train(both, training, plan, len(samples), private.batches, critic_step, on_epoch)
    finally:
        private.close()
    return mean, private.spent


def _begin(both: nn.ModuleDict, plan: GeneratorFederated, seed: int, device: torch.device) -> Training:
    both.to(device)
    generator, critic = both["generator"], both["critic"]
    return Training(generator, critic, optimizer=plan.optimizer, penalty=plan.penalty, seed=seed, device=device)


def _train(
    both: nn.ModuleDict,
    training: Training,
    plan: GeneratorFederated,
    count: int,
    batches: Callable[[], Iterator[tuple[Inputs, Tensor]]],
    critic_step: Callable[[Tensor], Tensor],
    on_epoch: Callable[[int, float], None] | None,
) -> float:
    """Train both on `count` samples; a critic's step returns its loss, summed over the batch."""
    size, waiting, loss = min(plan.batch_size, count), 0, 0.0
    for epoch in range(1, plan.epochs + 1):
        lost = torch.zeros((), device=training.device)
        for inputs in named.alone(batches(), "a critic"):
            lost += critic_step(inputs)
            waiting += 1
            if waiting == plan.critic_steps:
                training.generator_step(size)
                waiting = 0
        loss = float(lost) / count
        if epoch == plan.epochs and waiting:
            training.generator_step(size)
        check_finite(both, loss, epoch, "lower the generator's optimizer.lr")
        if on_epoch is not None:
            on_epoch(epoch, loss)
    return loss
