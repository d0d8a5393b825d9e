"""A client's part in the federated generator: WGAN-GP on local data (FedGO, G3, E.2; FedGAN)."""

from collections.abc import Callable

import torch
from torch import nn

from client_sdk.data import Samples
from client_sdk.training import check_finite, seeded
from contract.nn.scaling import to_signed_unit
from contract.nn.wgan import Training
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
    both.to(device)
    training = Training(
        both["generator"],
        both["critic"],
        optimizer=plan.optimizer,
        penalty=plan.penalty,
        seed=derive_seed(seed, "noise"),
        device=device,
    )
    size, waiting, loss = min(plan.batch_size, len(samples)), 0, 0.0
    with seeded(seed, device) as order:
        for epoch in range(1, plan.epochs + 1):
            lost = torch.zeros((), device=device)
            for inputs, _ in samples.batches(plan.batch_size, order, device):
                lost += training.critic_step(to_signed_unit(inputs, plan.input_range)) * len(inputs)
                waiting += 1
                if waiting == plan.critic_steps:
                    training.generator_step(size)
                    waiting = 0
            loss = float(lost) / len(samples)
            if epoch == plan.epochs and waiting:
                training.generator_step(size)
            check_finite(both, loss, epoch, "lower the generator's optimizer.lr")
            if on_epoch is not None:
                on_epoch(epoch, loss)
    return loss
