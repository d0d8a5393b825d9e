"""What a device trains before the first round (FedGO): its discriminator, and the federated generator where there is
one. Both stay on the disk until they are delivered.
"""

import json
from collections.abc import Callable
from typing import Any

from torch import nn

from client_sdk import models
from client_sdk.discriminator import generated, train_discriminator, train_privately
from client_sdk.errors import ModelMismatch
from client_sdk.gan import train_gan, train_gan_privately
from client_sdk.privacy import Spent, epsilon, secret_seed
from client_sdk.resources import Resources
from client_sdk.state import Pending, StateFolder
from contract.errors import RuleError
from contract.local import Privacy
from contract.nn import codec, registry
from contract.nn.wgan import build_pair, check_critic
from contract.seeds import derive_seed
from contract.wire.devices import DiscriminatorAssignment, TrainGanAssignment

OnEpoch = Callable[[int, float], None]


def train_against(assignment: DiscriminatorAssignment, resources: Resources, *, on_epoch: OnEpoch) -> Pending:
    """Train the discriminator against the generator's images; store it as pending.

    With differential privacy its cost is counted before it leaves, beside that of the rounds.
    """
    samples, device = resources.samples, resources.device
    source, plan, task = assignment.generator, assignment.plan, assignment.task
    seed = derive_seed(assignment.seed, "discriminator", assignment.client_name)
    resources.have(source.architecture)
    resources.have(plan.architecture, weights=True)
    generator = registry.build(source.architecture, source.options, task=task)
    models.load(generator, resources.download(source.model))
    module = registry.initialise(plan.architecture, plan.options, task, seed)
    latent = int(generator.latent)  # type: ignore[arg-type]
    given: dict[str, Any] = {"link": assignment.link, "input_range": source.input_range}
    given |= {"device": device, "on_epoch": on_epoch}
    privacy, spent = assignment.privacy, None
    if privacy is None:
        fakes = generated(generator, latent, derive_seed(seed, "fakes"), device)
        loss = train_discriminator(module, samples, fakes, plan, seed=seed, **given)
    else:
        fakes = generated(generator, latent, secret_seed(), device)
        loss, spent = train_privately(module, samples, fakes, plan, privacy, **given)
    pending = Pending(
        kind="discriminator", purpose=source.model.id, base=source.model.id, loss=loss, num_samples=len(samples)
    )
    return _submit(resources.folder, module, _counted(resources.folder, pending, privacy, spent), {})


def train_gan_round(assignment: TrainGanAssignment, resources: Resources, *, on_epoch: OnEpoch) -> Pending:
    """Train generator and critic for a round of the federated generator; store them as pending.

    The file's bytes depend on what was sent, data, plan and seed only (and, with differential privacy, on secret
    noise).
    """
    model, samples = assignment.model, resources.samples
    resources.folder.prune_models(wanted={model.digest})
    resources.have(assignment.plan.architecture, assignment.plan.critic_architecture)
    try:
        both = build_pair(assignment.plan, assignment.task)
        check_critic(both["critic"])
    except (ValueError, RuleError) as error:
        raise ModelMismatch(f"generator: {error}; update potstill") from error
    models.load(both, resources.download(model))
    seed = derive_seed(assignment.seed, "gan", assignment.gan_round, assignment.client_name)
    given: dict[str, Any] = {"seed": seed, "device": resources.device, "on_epoch": on_epoch}
    privacy, spent = assignment.privacy, None
    if privacy is None:
        loss = train_gan(both, samples, assignment.plan, **given)
    else:
        loss, spent = train_gan_privately(both, samples, assignment.plan, privacy, **given)
    pending = Pending(kind="gan", purpose=model.id, base=model.id, loss=loss, num_samples=len(samples))
    pending = _counted(resources.folder, pending, privacy, spent)
    return _submit(resources.folder, both, pending, {"base_model": model.id})


def _counted(folder: StateFolder, pending: Pending, privacy: Privacy | None, spent: Spent | None) -> Pending:
    """Add what a training costs to the device's account, and note the sum."""
    if privacy is None or spent is None:
        return pending
    return pending.model_copy(update={"epsilon": epsilon(folder.spend(spent), privacy.delta)})


def _submit(folder: StateFolder, module: nn.Module, pending: Pending, metadata: dict[str, str]) -> Pending:
    metadata = {"num_samples": str(pending.num_samples), **metadata}
    if pending.epsilon is not None:
        metadata["metrics"] = json.dumps({"epsilon": pending.epsilon})
    codec.save_state(module, folder.draft, metadata)
    folder.submit(pending)
    return pending
