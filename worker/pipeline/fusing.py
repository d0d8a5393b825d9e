"""Fuse: one function per choice, from a prototype's updates to its next model. numpy only, files in pieces."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from contract.chains import chain
from contract.choices import Carried
from contract.groups import copies, original
from contract.local import FedMaObjective
from contract.objectives import JOINT_GENERATOR
from contract.recipes import parts
from contract.tensors import Header
from contract.updates import CONTROL, GENERATOR
from worker.parts import disco, robust, scaffold, server_optim
from worker.parts.blocks import Source
from worker.parts.errors import PartError
from worker.parts.fuse import average_files, shares
from worker.pipeline.job import Round, Update, header_of
from worker.pipeline.made import by_package
from worker.pipeline.outliers import measuring
from worker.pipeline.updates import rename_tensors
from worker.registry import implements
from worker.specs import JobFailure, RoundSpec

Fuser = Callable[[Round, str, Any, Path], dict[str, float]]
"""(job, prototype, choice, file to make) -> what each client counted."""


def fuse(job: Round) -> None:
    """Average every prototype that has participants, by the recipe's rule; what the rule keeps goes into the state.

    Raises:
        PartError: see the rules; it names the model.
        JobFailure: bad_option, where the rule lacks what it reads.
        PluginFault: the rule is another package's and failed, or made no model.
    """
    choice = job.spec.recipe.fuse
    if not choice.averages:
        return
    rule: Fuser = implements.of(choice)
    ruled = rule if type(choice).is_own() else partial(by_package, rule)
    weights: dict[str, float] = {}
    what = "average" if job.spec.recipe.distil is not None else "model"
    with job.phases.phase("average", of=len(job.present)):
        for done, prototype in enumerate(job.present, start=1):
            target = job.file(what, prototype.name)
            try:
                weights |= ruled(job, prototype.name, choice, target)
            except PartError as error:
                raise PartError(error.code, f"model {prototype.name!r}: {error.detail}") from error
            job.averages[prototype.name] = target
            job.phases.step(done)
    job.metrics["weights"] = weights


def _sources(updates: Sequence[Update], weights: Mapping[str, float] | None = None) -> list[Source]:
    """Return the updates with n_k, or with weights of one's own by client."""
    return [
        Source(each.client, each.weights, each.num_samples if weights is None else weights[each.client])
        for each in updates
    ]


def _counted(sources: Sequence[Source]) -> dict[str, float]:
    found = shares([source.weight for source in sources])
    return {source.name: share for source, share in zip(sources, found, strict=True)}


def _average(job: Round, prototype: str, sources: Sequence[Source], target: Path) -> dict[str, float]:
    meter = measuring(job, prototype, sources)
    with nullcontext() if meter is None else meter:
        average_files(sources, target, base=_header(job, prototype), on_source=job.phases.alive, meter=meter)
    if meter is not None and job.measured is not None:
        job.measured[prototype] = meter.found(sorted(source.name for source in sources))
    return _counted(sources)


def _header(job: Round, prototype: str) -> Header | None:
    weights = job.prototype(prototype).network.weights
    return None if weights is None else header_of(weights)


# ---------------------------------------------------------------------------------------------------------------- means
@implements(parts.FuseWeightedMean)
def _weighted_mean(job: Round, prototype: str, _: parts.FuseWeightedMean, target: Path) -> dict[str, float]:
    return _average(job, prototype, _sources(job.updates[prototype]), target)


@implements(parts.FuseJointMean)
def _joint_mean(job: Round, prototype: str, _: parts.FuseJointMean, target: Path) -> dict[str, float]:
    """Average the model and, once a round, the generators of all participants, whichever model they train (DaFKD)."""
    mean = job.spec.output_dir / "send-generator.safetensors"
    if job.state.get(JOINT_GENERATOR.named()) != mean:
        _average_generators(job, mean)
        job.state[JOINT_GENERATOR.named()] = mean
    return _average(job, prototype, _sources(job.updates[prototype]), target)


def _average_generators(job: Round, target: Path) -> None:
    base, sources = header_of(job.spec.state[JOINT_GENERATOR.named()]), []
    for number, update in enumerate(job.participants):
        path = job.spec.output_dir / f"generator-{number}.safetensors"
        rename_tensors(update.sent, path, {name: GENERATOR + name for name in base.tensors})
        sources.append(Source(update.client, path, update.num_samples))
    average_files(sources, target, base=base, on_source=job.phases.alive)
    for source in sources:
        source.path.unlink()


@implements(parts.FuseUniformMean)
def _uniform_mean(job: Round, prototype: str, _: parts.FuseUniformMean, target: Path) -> dict[str, float]:
    updates = job.updates[prototype]
    return _average(job, prototype, _sources(updates, {each.client: 1 for each in updates}), target)


@implements(parts.FuseDisco)
def _disco(job: Round, prototype: str, choice: parts.FuseDisco, target: Path) -> dict[str, float]:
    """FedDisco counts all tensors by its weights, buffers too, as the authors' code does."""
    updates = job.updates[prototype]
    counts = [_counts(each) for each in updates]
    num_samples = [each.num_samples for each in updates]
    found = disco.weights(num_samples, counts, metric=choice.metric, a=choice.a, b=choice.b, target=choice.target)
    discrepancies = job.metrics.setdefault("discrepancy", {})
    discrepancies |= {each.client: float(d) for each, d in zip(updates, found.discrepancy, strict=True)}
    weights = {each.client: float(weight) for each, weight in zip(updates, found.weights, strict=True)}
    return dict.fromkeys(weights, 0.0) | _average(job, prototype, _sources(updates, weights), target)


# ---------------------------------------------------------------------------------------------------- server optimisers
def _server_step(
    job: Round, prototype: str, optimizer: server_optim.Optimizer, memory: Carried, target: Path
) -> dict[str, float]:
    mean = job.file("mean", prototype)
    counted = _average(job, prototype, _sources(job.updates[prototype]), mean)
    name, kept = memory.named(prototype), job.file(memory.name, prototype)
    server_optim.step_files(optimizer, job.base(prototype), mean, job.state.get(name), target, kept)
    mean.unlink()
    job.state[name] = kept
    return counted


@implements(parts.FuseMomentum)
def _momentum(job: Round, prototype: str, choice: parts.FuseMomentum, target: Path) -> dict[str, float]:
    optimizer = server_optim.Momentum(choice.beta, choice.lr, choice.form)
    return _server_step(job, prototype, optimizer, parts.VELOCITY, target)


@implements(parts.FuseAdam, parts.FuseYogi, parts.FuseAdagrad)
def _adaptive(
    job: Round, prototype: str, choice: parts.FuseAdam | parts.FuseYogi | parts.FuseAdagrad, target: Path
) -> dict[str, float]:
    optimizer = server_optim.Adaptive(choice.kind, choice.lr, choice.beta1, choice.beta2, choice.tau)
    return _server_step(job, prototype, optimizer, parts.MOMENTS, target)


@implements(parts.FuseScaffold)
def _scaffold(job: Round, prototype: str, choice: parts.FuseScaffold, target: Path) -> dict[str, float]:
    """Move x and c.

    Each prototype has a c, the mean over the clients that it has. All its groups share that one, so that it stays the
    mean when clients change groups.
    """
    updates = job.updates[prototype]
    sources = [Source(each.client, each.sent, each.num_samples) for each in updates]
    owner = original(prototype)
    name, kept = parts.CONTROL.named(owner), job.file("control", prototype)
    scaffold.server_step_files(
        sources,
        job.base(prototype),
        job.state.get(name),
        target,
        kept,
        clients_total=job.spec.clients_total.get(owner, 0),
        lr=choice.lr,
        n_weighted=choice.n_weighted,
    )
    job.state[name] = kept
    sent = job.file("send-control", prototype)
    rename_tensors(kept, sent, {tensor.removeprefix(CONTROL): tensor for tensor in header_of(kept).tensors})
    for model in group_of(job.spec, prototype):
        job.state[parts.SENT_CONTROL.named(model)] = sent
    return _counted(sources if choice.n_weighted else [Source(each.name, each.path, 1) for each in sources])


@implements(parts.FuseMatchedMean)
def _matched_mean(job: Round, prototype: str, choice: parts.FuseMatchedMean, target: Path) -> dict[str, float]:
    """FedMA: layers that the clients left as they were sent are alike, and stay."""
    from worker.parts import fedma  # SciPy, which no other rule needs

    network, task, updates = job.prototype(prototype).network, job.spec.task, job.updates[prototype]
    try:
        layers = chain(network.architecture, network.options, task.input.shape, task.num_classes)
    except ValueError as error:
        raise JobFailure("bad_option", str(error)) from error
    by_rounds = isinstance(job.spec.local.objective, FedMaObjective)
    sources = _sources(updates, None if choice.count == "samples" else {each.client: 1 for each in updates})
    fedma.fuse_files(
        sources,
        target,
        layers,
        header_of(job.base(prototype)),
        prior=fedma.Prior(choice.sigma, choice.sigma0, choice.gamma),
        sweeps=choice.sweeps,
        frozen=layers.fused_in(job.spec.round_index - 1) if by_rounds else 0,
        label_counts={each.client: np.asarray(_counts(each)) for each in updates} if choice.by_class else None,
        on_source=job.phases.alive,
    )
    return _counted(sources)


def _counts(update: Update) -> list[int]:
    if update.label_counts is None:
        raise JobFailure("bad_option", f"the rule reads label counts; {update.client!r} has none, enrol it with them")
    return update.label_counts


# --------------------------------------------------------------------------------------------------------------- robust
@implements(parts.FuseMedian)
def _median(job: Round, prototype: str, _: parts.FuseMedian, target: Path) -> dict[str, float]:
    return _robust(robust.median_files, job, prototype, target)


@implements(parts.FuseTrimmedMean)
def _trimmed_mean(job: Round, prototype: str, choice: parts.FuseTrimmedMean, target: Path) -> dict[str, float]:
    return _robust(robust.trimmed_mean_files, job, prototype, target, trim=choice.trim)


def _robust(rule: Callable[..., Any], job: Round, prototype: str, target: Path, **options: Any) -> dict[str, float]:
    sources = _sources(job.updates[prototype], {each.client: 1 for each in job.updates[prototype]})
    rule(sources, target, base=_header(job, prototype), **options)
    return _counted(sources)


@implements(parts.FuseKrum)
def _krum(job: Round, prototype: str, choice: parts.FuseKrum, target: Path) -> dict[str, float]:
    sources = _sources(job.updates[prototype])
    base = _header(job, prototype)
    kept = robust.krum_files(sources, target, byzantine=choice.byzantine, keep=choice.keep, base=base).kept
    return {each.name: 1 / len(kept) if each.name in kept else 0.0 for each in sources}


@implements(parts.FuseClippedMean)
def _clipped_mean(job: Round, prototype: str, choice: parts.FuseClippedMean, target: Path) -> dict[str, float]:
    sources = _sources(job.updates[prototype])
    norms = job.metrics.setdefault("norms", {})
    norms |= robust.clipped_mean_files(sources, job.base(prototype), target, max_norm=choice.max_norm)
    return _counted(sources)


# --------------------------------------------------------------------------------------------------------------- groups
@implements(parts.GroupsPrototype)
def _one_model(_: parts.GroupsPrototype, prototype: str) -> list[str]:
    return [prototype]


@implements(parts.GroupsRandom)
def _several_models(choice: parts.GroupsRandom, prototype: str) -> list[str]:
    return copies(prototype, choice.count)


def group_of(spec: RoundSpec, prototype: str) -> list[str]:
    """Return the models of the prototype that this one belongs to, the main one first."""
    models: Callable[[Any, str], list[str]] = implements.of(spec.recipe.groups)
    return models(spec.recipe.groups, original(prototype))


def check_groups(spec: RoundSpec) -> None:
    """Refuse a round whose models are not the ones that the recipe's groups have.

    Raises:
        JobFailure: bad_option.
    """
    names = [each.name for each in spec.prototypes]
    wanted = sorted({name for prototype in names for name in group_of(spec, prototype)})
    if sorted(names) != wanted:
        raise JobFailure("bad_option", f"the groups of this recipe are the models {wanted}, and the round has {names}")
