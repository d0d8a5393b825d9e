"""One round: the average of every prototype, then, if the recipe says so, distillation from all teachers."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract.architectures import find
from contract.recipes.parts import FuseUniformMean
from contract.seeds import derive_seed
from contract.tensors import TensorFile
from worker.parts.fuse import Source, average_files, shares
from worker.pipeline.phases import Phases
from worker.specs import JobFailure, JobResult, NetworkRef, Progress, PrototypeSpec, RoundSpec, UpdateSpec

if TYPE_CHECKING:
    from torch import Tensor, nn

    from worker.pipeline.labels import Ensemble, Teacher


class _Round:
    """The state of one round's job: where its files are, what was measured."""

    def __init__(self, spec: RoundSpec, report: Callable[[Progress], None], device: str):
        self.spec = spec
        self.device = device
        self.phases = Phases(report)
        self.participants = _participants(spec)
        self.averages: dict[str, Path] = {}
        self.models: dict[str, Path] = {}
        self.metrics: dict[str, Any] = {}

    def file(self, what: str, prototype: str) -> Path:
        """Return where a file of a prototype goes; names may hold any letters, so its position names the file."""
        index = [each.name for each in self.spec.prototypes].index(prototype)
        return self.spec.output_dir / f"{what}-{index}.safetensors"

    @property
    def present(self) -> list[PrototypeSpec]:
        """The prototypes that somebody trained; the others keep their model byte for byte."""
        return [each for each in self.spec.prototypes if each.name in self.participants]


def _participants(spec: RoundSpec) -> dict[str, list[UpdateSpec]]:
    """Return the updates that count, per prototype, sorted by client name.

    Raises:
        JobFailure: no_participants, no_positive_weight, or bad_option for a prototype that the round does not have.
    """
    if not spec.updates:
        raise JobFailure("no_participants", "the round has no update; it should have been skipped")
    known = {each.name for each in spec.prototypes}
    found: dict[str, list[UpdateSpec]] = {}
    for update in sorted(spec.updates, key=lambda each: each.client):
        if update.prototype not in known:
            raise JobFailure("bad_option", f"update of {update.client!r}: no prototype {update.prototype!r} here")
        if update.num_samples > 0:
            found.setdefault(update.prototype, []).append(update)
    if not found:
        raise JobFailure("no_positive_weight", "every update has num_samples 0; nobody can be averaged")
    return found


def fuse_round(spec: RoundSpec, report: Callable[[Progress], None], device: str = "cpu") -> JobResult:
    """Fuse one round (FedAvg; FedDF Alg. 1 and 3; FedGO Alg. 1 and 2) and return the models of the present prototypes.

    Figures: `accuracy` (mean over prototypes, of what is published), `average`, `model` and `ensemble` with their test
    accuracies, `weights` and `teacher_weights` per client, `distil` per prototype, `teacher_forwards`, `seconds`.

    Raises:
        JobFailure: see `worker.pipeline.run`; errors name the client.
    """
    job = _Round(spec, report, device)
    _average(job)
    if spec.recipe.distil is not None:
        _distil(job)
    else:
        job.models = dict(job.averages)
    _evaluate(job)
    job.metrics["seconds"] = job.phases.seconds
    return JobResult(models=job.models, metrics=job.metrics, device=device)


# ------------------------------------------------------------------------------------------------------------- average
def _sources(job: _Round, prototype: str) -> list[Source]:
    uniform = isinstance(job.spec.recipe.fuse, FuseUniformMean)
    return [
        Source(update.client, update.weights, 1 if uniform else update.num_samples)
        for update in job.participants[prototype]
    ]


def _average(job: _Round) -> None:
    what = "average" if job.spec.recipe.distil is not None else "model"
    weights: dict[str, float] = {}
    with job.phases.phase("average", of=len(job.present)):
        for done, prototype in enumerate(job.present, start=1):
            sources = _sources(job, prototype.name)
            target = job.file(what, prototype.name)
            base = None
            if prototype.network.weights is not None:
                with TensorFile(prototype.network.weights) as file:
                    base = file.header
            average_files(sources, target, base=base)
            job.averages[prototype.name] = target
            parts = shares([source.weight for source in sources])
            weights |= {source.name: part for source, part in zip(sources, parts, strict=True)}
            job.phases.step(done)
    job.metrics["weights"] = weights


# ------------------------------------------------------------------------------------------------------------- distil
def _teachers(job: _Round) -> list["Teacher"]:
    """Return this round's teachers by client name; where scores are read, a client without a discriminator is none."""
    from worker.pipeline.labels import Teacher

    networks = {each.name: each.network for each in job.spec.prototypes}
    reads_scores = job.spec.recipe.discriminators is not None
    updates = sorted((u for group in job.participants.values() for u in group), key=lambda each: each.client)
    left_out = [update.client for update in updates if reads_scores and update.client not in job.spec.scores]
    if left_out:
        job.metrics["not_teachers"] = left_out
    return [
        Teacher(
            update.client,
            networks[update.prototype].model_copy(update={"weights": update.weights}),
            update.num_samples,
            job.spec.scores[update.client] if reads_scores else None,
        )
        for update in updates
        if update.client not in left_out
    ]


def _label(job: _Round) -> "tuple[Tensor, Ensemble]":
    from worker.pipeline.labels import describe, ensemble_accuracy, label
    from worker.pipeline.networks import read_inputs, read_labels

    spec, distil = job.spec, job.spec.recipe.distil
    assert distil is not None
    if spec.datasets.unlabeled is None:
        raise JobFailure("bad_option", "the recipe distils, which needs an unlabelled data set: datasets.unlabeled")
    inputs = read_inputs(spec.datasets.unlabeled, spec.task, "unlabeled")
    sets = {"unlabeled": inputs}
    if spec.datasets.test is not None:
        sets["test"] = read_inputs(spec.datasets.test, spec.task, "test")
    teachers = _teachers(job)
    with job.phases.phase("label", of=len(teachers)):
        ensembles = label(teachers, sets, distil, spec.task, job.device, job.phases.step)
    ensemble = ensembles["unlabeled"]
    job.metrics["ensemble"] = describe(ensemble)
    job.metrics["teacher_forwards"] = ensemble.forwards
    means = ensemble.weights.mean(axis=1)
    job.metrics["teacher_weights"] = {t.client: float(mean) for t, mean in zip(teachers, means, strict=True)}
    if spec.datasets.test is not None:
        labels = read_labels(spec.datasets.test, "test")
        job.metrics["ensemble"]["accuracy"] = ensemble_accuracy(ensembles["test"], labels)
    return inputs, ensemble


def _distil(job: _Round) -> None:
    """Label once; then every present prototype's average learns from the same labels (FedDF Alg. 3)."""
    from worker.pipeline.distil import Lesson
    from worker.pipeline.students import validator

    spec, distil = job.spec, job.spec.recipe.distil
    assert distil is not None
    inputs, ensemble = _label(job)
    inputs, targets = inputs.to(job.device), ensemble.logits.to(job.device)
    validate = validator(spec.datasets.validation, spec.task, job.device) if distil.schedule.early_stop else None
    job.metrics["distil"] = {}
    for prototype in job.present:
        seed = derive_seed(spec.seed, "round", spec.round_index, "distil", prototype.name)
        lesson = Lesson(inputs, targets, distil, seed, spec.round_index, spec.rounds_total, validate)
        _teach(job, prototype, lesson)


def _teach(job: _Round, prototype: PrototypeSpec, lesson: Any) -> None:
    from worker.parts.schedules import steps_of
    from worker.pipeline.distil import require_finite, teach
    from worker.pipeline.students import save_like

    owner = f"student of prototype {prototype.name!r}"
    average = job.averages[prototype.name]
    student = _load(job, prototype, average)
    with job.phases.phase(f"distil {prototype.name}", of=steps_of(lesson.distil.schedule, len(lesson.inputs))):
        job.metrics["distil"][prototype.name] = teach(student, lesson, job.phases.step)
    require_finite(student, owner)
    target = job.file("model", prototype.name)
    save_like(student, average, target)
    job.models[prototype.name] = target


def _load(job: _Round, prototype: PrototypeSpec, weights: Path) -> "nn.Module":
    from worker.pipeline.networks import build_network

    network = NetworkRef(
        architecture=prototype.network.architecture, options=prototype.network.options, weights=weights
    )
    return build_network(network, job.spec.task, job.device, owner=f"prototype {prototype.name!r}")


# ------------------------------------------------------------------------------------------------------------ evaluate
def _evaluate(job: _Round) -> None:
    """Measure averages and published models on the test set, where there is one and the service can run the network."""
    runnable = [each for each in job.present if find(each.network.architecture).server_side]
    if job.spec.datasets.test is None or not runnable:
        return
    from worker.pipeline.networks import accuracy, read_inputs, read_labels

    inputs = read_inputs(job.spec.datasets.test, job.spec.task, "test")
    labels = read_labels(job.spec.datasets.test, "test")

    def measure(files: dict[str, Path]) -> dict[str, Any]:
        found = {}
        for prototype in runnable:
            module = _load(job, prototype, files[prototype.name])
            owner = f"prototype {prototype.name!r}"
            found[prototype.name] = accuracy(module, inputs, labels, job.device, owner=owner)
        return {"accuracy": sum(found.values()) / len(found), "prototypes": found}

    with job.phases.phase("evaluate", of=len(runnable)):
        job.metrics["average"] = measure(job.averages)
        job.metrics["model"] = job.metrics["average"] if job.models == job.averages else measure(job.models)
    job.metrics["accuracy"] = job.metrics["model"]["accuracy"]
