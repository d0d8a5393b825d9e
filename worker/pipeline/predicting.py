"""Predictions of a data set, by one model or by an ensemble with the recipe's own weights and combination."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from contract.nn.scaling import to_signed_unit
from contract.tensors import TensorFile, check_file, write_file
from worker.checkpoints import Checkpoint, Checkpoints
from worker.parts.arrays import Float
from worker.parts.schedules import batches_of
from worker.pipeline import labels
from worker.pipeline.networks import BATCH, build_network, count_right, outputs, read_inputs, read_labels
from worker.pipeline.phases import Phases
from worker.pipeline.stages import scores_of
from worker.pipeline.teachers import Members, Teacher
from worker.specs import EnsembleSpec, JobResult, MemberSpec, NetworkRef, PredictSpec, Progress

_SET = "predicted"
"""What the data set is called where sets have names."""


def predict(
    spec: PredictSpec, report: Callable[[Progress], None], device: str = "cpu", checkpoints: Checkpoints | None = None
) -> JobResult:
    """Write `logits` F32 [N, C], whose softmax is the probabilities, and `predicted` I64 [N], the first largest's.

    Figures: `accuracy`, where the set has labels; of an ensemble `ensemble` and `teacher_weights` as in a round.

    Raises:
        JobFailure: schema_mismatch, bad_option, non_finite, architecture_failed, out_of_range.
    """
    phases = Phases(report)
    inputs = read_inputs(spec.dataset, spec.task, _SET)
    metrics: dict[str, Any] = {"samples": len(inputs)}
    if spec.ensemble is not None:
        seen = _together(spec, spec.ensemble, inputs, phases, device, checkpoints or Checkpoints(None))
        metrics |= {"ensemble": labels.describe(seen), "teacher_weights": labels.teacher_weights(seen)}
        logits = seen.targets.logits.double().numpy()
    else:
        assert spec.network is not None
        logits = _alone(spec, spec.network, inputs, phases, device)
    if _is_labelled(spec.dataset):
        metrics["accuracy"] = count_right(logits, read_labels(spec.dataset, _SET).numpy()) / len(logits)
    target = spec.output_dir / "predictions.safetensors"
    write_file(target, {"logits": logits.astype(np.float32), "predicted": logits.argmax(axis=1).astype(np.int64)})
    check_file(target)
    return JobResult(models={"predictions": target}, metrics=metrics | {"seconds": phases.seconds}, device=device)


def _is_labelled(path: Path) -> bool:
    with TensorFile(path) as file:
        return "labels" in file.header.tensors


def _alone(spec: PredictSpec, network: NetworkRef, inputs: Tensor, phases: Phases, device: str) -> Float:
    """Return one model's logits [N, C]."""
    module = build_network(network, spec.task, device, owner="model")
    found = np.empty((len(inputs), spec.task.num_classes))
    with phases.phase("predict", of=batches_of(len(inputs), BATCH)):
        for number, (start, logits) in enumerate(outputs(module, inputs, device, owner="model"), start=1):
            found[start : start + len(logits)] = logits
            phases.step(number)
    return found


def _together(
    spec: PredictSpec, ensemble: EnsembleSpec, inputs: Tensor, phases: Phases, device: str, checkpoints: Checkpoints
) -> labels.Ensemble:
    """Return what an ensemble says: its members are teachers, and label the set as they would for students."""
    scorable = None if ensemble.scorer is None else to_signed_unit(inputs, ensemble.scorer.input_range)
    teachers = Members(len(ensemble.members), _teachers(spec, ensemble, scorable, device))
    labeller = labels.Labeller(ensemble.weigh, ensemble.combine, spec.task, device, spec.output_dir)
    with phases.phase("predict", of=teachers.count):
        checkpoint = Checkpoint.of(checkpoints, "predict")
        if checkpoint.saved is not None:
            phases.step(checkpoint.saved.step, resumed=True)
        return labeller.label(teachers, {_SET: inputs}, phases.step, checkpoint)[_SET]


def _teachers(spec: PredictSpec, ensemble: EnsembleSpec, scorable: Tensor | None, device: str) -> Iterator[Teacher]:
    for number, member in enumerate(ensemble.members):
        yield Teacher(
            member.name,
            member.network,
            member.num_samples,
            _scores(spec, ensemble, member, number, scorable, device),
            counted=_counted(spec, member, number),
            is_group=member.is_group,
        )


def _scores(
    spec: PredictSpec, ensemble: EnsembleSpec, member: MemberSpec, number: int, scorable: Tensor | None, device: str
) -> Path | None:
    """Write a member's discriminator's scores of the set, as the federation's own sets were scored."""
    if member.discriminator is None or ensemble.scorer is None or scorable is None:
        return None
    scorer, path = ensemble.scorer, spec.output_dir / f"scores-{number}.safetensors"
    network = NetworkRef(architecture=scorer.architecture, options=scorer.options, weights=member.discriminator)
    owner = f"discriminator of {member.name!r}"
    write_file(path, scores_of(network, spec.task, {_SET: scorable}, device, owner))
    return path


def _counted(spec: PredictSpec, member: MemberSpec, number: int) -> Path | None:
    if member.counted is None:
        return None
    path = spec.output_dir / f"counted-{number}.safetensors"
    write_file(path, {f"{_SET}.{factor}": np.array([value]) for factor, value in member.counted.items()})
    return path
