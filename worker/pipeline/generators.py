"""Where generators come from, one function per choice, and what is drawn from them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from contract.errors import RuleError
from contract.nn.codec import save_state
from contract.nn.scaling import from_signed_unit, to_signed_unit
from contract.nn.wgan import check_critic, pair
from contract.recipes import parts
from contract.seeds import derive_seed
from contract.updates import GENERATOR
from worker.checkpoints import Checkpoint, Checkpoints
from worker.generators import wgan
from worker.parts.blocks import Source
from worker.parts.fuse import average_files
from worker.pipeline.job import header_of
from worker.pipeline.networks import BATCH, build_network, read_inputs
from worker.pipeline.phases import Phases
from worker.pipeline.updates import rename_tensors
from worker.registry import implements
from worker.specs import GeneratorSpec, JobFailure, NetworkRef


@dataclass(frozen=True)
class Made:
    """A generator that is ready.

    Attributes:
        module: z [B, latent] -> [B, ...] in [-1, 1].
        span: the data values that -1 and 1 stand for.
        figures: of its training.
    """

    module: nn.Module
    span: tuple[float, float]
    figures: dict[str, Any] = field(default_factory=dict)


Maker = Callable[[GeneratorSpec, Any, Phases, str, Checkpoints], "Made | Path"]
"""(job, choice, phases, device, checkpoints) -> the generator, or a file of one that has rounds to go."""


@implements(parts.GeneratorWganGp)
def _trained(
    spec: GeneratorSpec, plan: parts.GeneratorWganGp, phases: Phases, device: str, checkpoints: Checkpoints
) -> Made:
    """Train on the unlabelled set, scaled to [-1, 1] by its own minimum and maximum (FedGO, G1)."""
    if spec.unlabeled is None:
        raise JobFailure("bad_option", "a WGAN-GP is trained on unlabelled data: datasets.unlabeled")
    images = read_inputs(spec.unlabeled, spec.task, "unlabeled")
    span = _range(images)
    seed = derive_seed(spec.seed, "generator")
    ref = NetworkRef(architecture=plan.architecture, options=plan.options)
    generator = build_network(ref, spec.task, device, seed=seed, owner="generator")
    ref = NetworkRef(architecture=plan.critic_architecture, options=plan.critic_options)
    critic = _critic(ref, spec, device, derive_seed(seed, "critic"))
    with phases.phase("generator", of=plan.steps):
        try:
            scaled = to_signed_unit(images, span).to(device)
            checkpoint = Checkpoint.of(checkpoints, "generator")
            if checkpoint.saved is not None:
                phases.step(checkpoint.saved.step, resumed=True)
            trained = wgan.train(generator, critic, scaled, plan, derive_seed(seed, "noise"), phases.step, checkpoint)
        except FloatingPointError as error:
            raise JobFailure("non_finite", f"generator: {error}; lower generator.optimizer.lr") from error
    figures = {"steps": trained.steps, "critic": [[step, loss] for step, loss in trained.critic_curve]}
    return Made(generator, span, figures)


def _critic(ref: NetworkRef, spec: GeneratorSpec, device: str, seed: int) -> nn.Module:
    critic = build_network(ref, spec.task, device, seed=seed, owner="critic")
    try:
        check_critic(critic)
    except RuleError as error:
        raise JobFailure(error.code, error.detail) from error
    return critic


def _range(images: Tensor) -> tuple[float, float]:
    if not images.is_floating_point():
        raise JobFailure("bad_option", "a generator makes float32 samples; token ids (int64) have no range to scale")
    low, high = float(images.min()), float(images.max())
    if not (np.isfinite([low, high]).all() and high > low):
        raise JobFailure("bad_option", f"unlabeled inputs lie within [{low}, {high}]; they must be finite and differ")
    return low, high


@implements(parts.GeneratorImported)
def _imported(
    spec: GeneratorSpec, plan: parts.GeneratorImported, phases: Phases, device: str, checkpoints: Checkpoints
) -> Made:
    """Take the uploaded weights as they are (FedGO, G2)."""
    if spec.weights is None:
        raise JobFailure("bad_option", "an imported generator needs its weights: generator.model")
    low, high = plan.input_range
    if not high > low:
        raise JobFailure("bad_option", f"generator.input_range [{low}, {high}]: the upper end must be above the lower")
    ref = NetworkRef(architecture=plan.architecture, options=plan.options, weights=spec.weights)
    with phases.phase("generator"):
        return Made(build_network(ref, spec.task, device, owner="generator"), (low, high))


@implements(parts.GeneratorFedGan)
def _federated(
    spec: GeneratorSpec, plan: parts.GeneratorFedGan, phases: Phases, device: str, checkpoints: Checkpoints
) -> Made | Path:
    """Make the first networks, average a round's, or take the generator out of the last average (FedGO, G3; FedGAN)."""
    target = spec.output_dir / "gan.safetensors"
    with phases.phase("generator"):
        if spec.gan_round == 0:
            _first_gan(spec, plan, target)
        else:
            _average_gan(spec, target)
        if spec.gan_round < plan.rounds:
            return target
        alone = spec.output_dir / "gan-generator.safetensors"
        names = {name.removeprefix(GENERATOR): name for name in header_of(target).tensors if name.startswith(GENERATOR)}
        rename_tensors(target, alone, names)
        ref = NetworkRef(architecture=plan.architecture, options=plan.options, weights=alone)
        return Made(build_network(ref, spec.task, device, owner="generator"), plan.input_range)


def _first_gan(spec: GeneratorSpec, plan: parts.GeneratorFedGan, target: Path) -> None:
    seed = derive_seed(spec.seed, "generator")
    generator = NetworkRef(architecture=plan.architecture, options=plan.options)
    critic = NetworkRef(architecture=plan.critic_architecture, options=plan.critic_options)
    both = pair(
        build_network(generator, spec.task, "cpu", seed=seed, owner="generator"),
        _critic(critic, spec, "cpu", derive_seed(seed, "critic")),
    )
    save_state(both, target)


def _average_gan(spec: GeneratorSpec, target: Path) -> None:
    """Write the n_k average of generators and critics; every file must have exactly the tensors that were sent out."""
    if spec.gan is None:
        raise JobFailure("bad_option", "a round of the federated generator needs what the clients were sent: gan")
    if not spec.updates:
        raise JobFailure("no_participants", "nobody sent a generator; the round should have been skipped")
    sources = [Source(each.client, each.weights, each.num_samples) for each in spec.updates]
    average_files(sources, target, base=header_of(spec.gan))


def draw(made: Made, count: int, seed: int, device: str) -> Tensor:
    """Return samples [count, ...] of a generator in the data's own range, float32 on the CPU (FedGO, D2).

    Noise is drawn on the CPU, sample by sample, so that neither device nor batch size matters.

    Raises:
        JobFailure: non_finite.
    """
    random = torch.Generator().manual_seed(seed)
    latent = int(made.module.latent)  # type: ignore[arg-type]
    noise = torch.randn(count, latent, generator=random)
    made.module.eval()
    pieces = []
    with torch.no_grad():
        for start in range(0, count, BATCH):
            pieces.append(made.module(noise[start : start + BATCH].to(device)).float().cpu())
    samples = from_signed_unit(torch.cat(pieces), made.span)
    if not bool(torch.isfinite(samples).all()):
        raise JobFailure("non_finite", "the generator makes NaN or infinity")
    return samples
