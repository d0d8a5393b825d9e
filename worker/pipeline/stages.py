"""The jobs around the rounds: first models, the generator, and the discriminators' scores."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from contract.architectures import find
from contract.nn.codec import save_state
from contract.nn.scaling import to_signed_unit
from contract.seeds import derive_seed
from contract.tensors import check_file, write_file
from worker.generators import wgan
from worker.pipeline.networks import accuracy, build_network, outputs, read_inputs, read_labels
from worker.pipeline.phases import Phases
from worker.specs import (
    GeneratorSpec,
    InitializeSpec,
    JobFailure,
    JobResult,
    NetworkRef,
    Progress,
    PrototypeSpec,
    ScoreSpec,
)

Report = Callable[[Progress], None]


# ---------------------------------------------------------------------------------------------------------- initialize
def initialize(spec: InitializeSpec, report: Report, device: str = "cpu") -> JobResult:
    """Make the first model of every prototype: from the seed, or the imported file as it is, once it is checked.

    Figures: `accuracy` and `model` as in a round, where there is a test set.

    Raises:
        JobFailure: bad_option, schema_mismatch or non_finite, naming the prototype.
    """
    phases = Phases(report)
    models: dict[str, Path] = {}
    with phases.phase("initialize", of=len(spec.prototypes)):
        for index, prototype in enumerate(spec.prototypes):
            models[prototype.name] = spec.output_dir / f"model-{index}.safetensors"
            _first_model(spec, prototype, models[prototype.name])
            phases.step(index + 1)
    metrics = _first_accuracy(spec, models, phases, device)
    return JobResult(models=models, metrics=metrics | {"seconds": phases.seconds}, device=device)


def _first_model(spec: InitializeSpec, prototype: PrototypeSpec, target: Path) -> None:
    owner, network = f"prototype {prototype.name!r}", prototype.network
    runnable = find(network.architecture).server_side
    if network.weights is not None:
        check_file(network.weights)
        if runnable:
            build_network(network, spec.task, "cpu", owner=owner)
        shutil.copyfile(network.weights, target)
        return
    if not runnable:
        raise JobFailure(
            "bad_option",
            f"{owner}: architecture {network.architecture!r} cannot be built here; import a model and set "
            "initial_model",
        )
    seed = derive_seed(spec.seed, "model", prototype.name)
    save_state(build_network(network, spec.task, "cpu", seed=seed, owner=owner), target)


def _first_accuracy(spec: InitializeSpec, models: dict[str, Path], phases: Phases, device: str) -> dict[str, Any]:
    runnable = [each for each in spec.prototypes if find(each.network.architecture).server_side]
    if spec.datasets.test is None or not runnable:
        return {}
    inputs, labels = read_inputs(spec.datasets.test, spec.task, "test"), read_labels(spec.datasets.test, "test")
    found: dict[str, float] = {}
    with phases.phase("evaluate", of=len(runnable)):
        for done, prototype in enumerate(runnable, start=1):
            owner = f"prototype {prototype.name!r}"
            network = prototype.network.model_copy(update={"weights": models[prototype.name]})
            module = build_network(network, spec.task, device, owner=owner)
            found[prototype.name] = accuracy(module, inputs, labels, device, owner=owner)
            phases.step(done)
    mean = sum(found.values()) / len(found)
    return {"accuracy": mean, "model": {"accuracy": mean, "prototypes": found}}


# ----------------------------------------------------------------------------------------------------------- generator
def train_generator(spec: GeneratorSpec, report: Report, device: str = "cpu") -> JobResult:
    """Train the generator on the unlabelled set, scaled to [-1, 1] by its own minimum and maximum.

    Figures: `input_range` [lo, hi], `critic` curve of (step, loss), `steps`.

    Raises:
        JobFailure: bad_option (the data cannot be scaled, the architecture does not fit), non_finite.
    """
    phases, plan = Phases(report), spec.generator
    images = read_inputs(spec.unlabeled, spec.task, "unlabeled")
    span = _range(images)
    seed = derive_seed(spec.seed, "generator")
    ref = NetworkRef(architecture=plan.architecture, options=plan.options)
    generator = build_network(ref, spec.task, device, seed=seed, owner="generator")
    ref = NetworkRef(architecture=plan.critic_architecture, options=plan.critic_options)
    critic = build_network(ref, spec.task, device, seed=derive_seed(seed, "critic"), owner="critic")
    with phases.phase("generator", of=plan.steps):
        try:
            scaled = to_signed_unit(images, span).to(device)
            trained = wgan.train(generator, critic, scaled, plan, derive_seed(seed, "noise"), phases.step)
        except FloatingPointError as error:
            raise JobFailure("non_finite", f"generator: {error}; lower generator.optimizer.lr") from error
    target = spec.output_dir / "generator.safetensors"
    save_state(generator, target)
    check_file(target)
    metrics = {
        "input_range": list(span),
        "steps": trained.steps,
        "critic": [[step, loss] for step, loss in trained.critic_curve],
        "seconds": phases.seconds,
    }
    models = {"generator": target, "discriminator": _first_discriminator(spec)}
    return JobResult(models=models, metrics=metrics, device=device)


def _first_discriminator(spec: GeneratorSpec) -> Path:
    """Write a fresh discriminator: the service, which cannot build one, checks the clients' against its tensors."""
    seed = derive_seed(spec.seed, "discriminator")
    target = spec.output_dir / "discriminator.safetensors"
    save_state(build_network(spec.discriminator, spec.task, "cpu", seed=seed, owner="discriminator"), target)
    return target


def _range(images: Tensor) -> tuple[float, float]:
    if not images.is_floating_point():
        raise JobFailure("bad_option", "a generator makes float32 samples; token ids (int64) have no range to scale")
    low, high = float(images.min()), float(images.max())
    if not (np.isfinite([low, high]).all() and high > low):
        raise JobFailure("bad_option", f"unlabeled inputs lie within [{low}, {high}]; they must be finite and differ")
    return low, high


# --------------------------------------------------------------------------------------------------------------- score
def score(spec: ScoreSpec, report: Report, device: str = "cpu") -> JobResult:
    """Write, per client, its discriminator's scores a on the server sets, float32 and before any sigmoid (FedGO eq. 9).

    Raises:
        JobFailure: non_finite, schema_mismatch or architecture_failed, naming the client.
    """
    phases = Phases(report)
    paths = {"unlabeled": spec.datasets.unlabeled, "test": spec.datasets.test}
    sets = {
        name: to_signed_unit(read_inputs(path, spec.task, name), spec.input_range)
        for name, path in paths.items()
        if path is not None
    }
    models: dict[str, Path] = {}
    spread: dict[str, float] = {}
    with phases.phase("score", of=len(spec.discriminators)):
        for index, client in enumerate(sorted(spec.discriminators)):
            scores = _scores_of(spec, client, sets, device)
            models[client] = spec.output_dir / f"scores-{index}.safetensors"
            write_file(models[client], scores)
            spread[client] = float(np.std(scores["unlabeled"], dtype=np.float64)) if "unlabeled" in scores else 0.0
            phases.step(index + 1)
    return JobResult(models=models, metrics={"spread": spread, "seconds": phases.seconds}, device=device)


def _scores_of(spec: ScoreSpec, client: str, sets: dict[str, Tensor], device: str) -> dict[str, np.ndarray]:
    owner = f"discriminator of {client!r}"
    ref = NetworkRef(architecture=spec.architecture, options=spec.options, weights=spec.discriminators[client])
    module = build_network(ref, spec.task, device, owner=owner)
    found = {}
    for name, inputs in sets.items():
        parts = [values for _, values in outputs(module, inputs, device, owner=owner)]
        found[name] = np.concatenate(parts).astype(np.float32)
    return found
