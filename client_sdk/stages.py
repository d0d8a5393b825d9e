"""What a device trains before the first round (FedGO): its discriminator, and the federated generator where there is
one. Both stay on the disk until they are delivered.
"""

from collections.abc import Callable

from torch import nn

from client_sdk import models
from client_sdk.discriminator import generated, train_discriminator
from client_sdk.errors import ModelMismatch
from client_sdk.gan import train_gan
from client_sdk.resources import Resources
from client_sdk.state import Pending, StateFolder
from contract.errors import RuleError
from contract.nn import codec, registry
from contract.nn.wgan import build_pair, check_critic
from contract.seeds import derive_seed
from contract.wire.devices import DiscriminatorAssignment, TrainGanAssignment

OnEpoch = Callable[[int, float], None]


def train_against(assignment: DiscriminatorAssignment, resources: Resources, *, on_epoch: OnEpoch) -> Pending:
    """Train the discriminator against the generator's images; store it as pending."""
    samples, device = resources.samples, resources.device
    source, plan, task = assignment.generator, assignment.plan, assignment.task
    seed = derive_seed(assignment.seed, "discriminator", assignment.client_name)
    generator = registry.build(source.architecture, source.options, task=task)
    models.load(generator, resources.download(source.model))
    module = registry.initialise(plan.architecture, plan.options, task, seed)
    latent = int(generator.latent)  # type: ignore[arg-type]
    loss = train_discriminator(
        module,
        samples,
        generated(generator, latent, derive_seed(seed, "fakes"), device),
        plan,
        link=assignment.link,
        input_range=source.input_range,
        seed=seed,
        device=device,
        on_epoch=on_epoch,
    )
    pending = Pending(
        kind="discriminator", purpose=source.model.id, base=source.model.id, loss=loss, num_samples=len(samples)
    )
    return _submit(resources.folder, module, pending, {})


def train_gan_round(assignment: TrainGanAssignment, resources: Resources, *, on_epoch: OnEpoch) -> Pending:
    """Train generator and critic for a round of the federated generator; store them as pending.

    The file's bytes depend on what was sent, data, plan and seed only.
    """
    model, samples = assignment.model, resources.samples
    resources.folder.prune_models(wanted={model.digest})
    try:
        both = build_pair(assignment.plan, assignment.task)
        check_critic(both["critic"])
    except (ValueError, RuleError) as error:
        raise ModelMismatch(f"generator: {error}; update potstill") from error
    models.load(both, resources.download(model))
    seed = derive_seed(assignment.seed, "gan", assignment.gan_round, assignment.client_name)
    loss = train_gan(both, samples, assignment.plan, seed=seed, device=resources.device, on_epoch=on_epoch)
    pending = Pending(kind="gan", purpose=model.id, base=model.id, loss=loss, num_samples=len(samples))
    return _submit(resources.folder, both, pending, {"base_model": model.id})


def _submit(folder: StateFolder, module: nn.Module, pending: Pending, metadata: dict[str, str]) -> Pending:
    codec.save_state(module, folder.draft, {"num_samples": str(pending.num_samples), **metadata})
    folder.submit(pending)
    return pending
