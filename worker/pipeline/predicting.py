"""Predictions of a data set, by one model or by an ensemble with the recipe's own weights and combination."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from contract.measures import main_figure, meter
from contract.nn.scaling import to_signed_unit
from contract.tasks import TaskKind
from contract.tensors import Array, TensorFile, check_file, write_file
from contract.wire.federations import Task
from worker.checkpoints import Checkpoint, Checkpoints
from worker.parts.arrays import Float
from worker.parts.schedules import batches_of
from worker.parts.space import space
from worker.pipeline import labels
from worker.pipeline.evaluation import headline
from worker.pipeline.networks import batch_of, build_network, check_shape, outputs, read_inputs, read_labels
from worker.pipeline.phases import Phases
from worker.pipeline.stages import scores_of
from worker.pipeline.teachers import Members, Teacher
from worker.pipeline.token_ids import check_ids
from worker.specs import EnsembleSpec, JobResult, MemberSpec, NetworkRef, PredictSpec, Progress

_SET = "predicted"
"""What the data set is called where sets have names."""


def predict(
    spec: PredictSpec, report: Callable[[Progress], None], device: str = "cpu", checkpoints: Checkpoints | None = None
) -> JobResult:
    """Write `logits` F32 [N, C], whose softmax is the probabilities, and `predicted` I64 [N], the first largest's.

    Of other tasks likewise, in their outputs' and labels' shapes; of multilabel tasks and images `predicted` is U8. Of
    regressions there is `predicted` F32 alone.

    Figures: `accuracy`, or `measured` with `metric`, and all `measures`, where the set has labels; of an ensemble
    `ensemble` and `teacher_weights` as in a round.

    Raises:
        JobFailure: schema_mismatch, bad_option, non_finite, architecture_failed, out_of_range.
    """
    phases, task = Phases(report), spec.task
    check_ids({_SET: spec.dataset}, task, _networks_of(spec))
    inputs = read_inputs(spec.dataset, task, _SET)
    metrics: dict[str, Any] = {"samples": len(inputs)}
    if spec.ensemble is not None:
        seen = _together(spec, spec.ensemble, inputs, phases, device, checkpoints or Checkpoints(None))
        metrics |= {"ensemble": labels.describe(seen, task.kind), "teacher_weights": labels.teacher_weights(seen)}
        blocks = labels.said(seen, task)
    else:
        assert spec.network is not None
        blocks = _alone(spec, spec.network, inputs, phases, device)
    wanted = read_labels(spec.dataset, _SET, task) if _is_labelled(spec.dataset) else None
    arrays = _collected(blocks, len(inputs), spec, wanted, metrics)
    target = spec.output_dir / "predictions.safetensors"
    write_file(target, arrays)
    check_file(target)
    return JobResult(models={"predictions": target}, metrics=metrics | {"seconds": phases.seconds}, device=device)


def _networks_of(spec: PredictSpec) -> dict[str, NetworkRef]:
    """Return the networks that predict, by whose they are."""
    members = [] if spec.ensemble is None else spec.ensemble.members
    alone = {} if spec.network is None else {"model": spec.network}
    return alone | {f"teacher {each.name!r}": each.network for each in members}


def _collected(
    blocks: Iterator[tuple[slice, Float]], size: int, spec: PredictSpec, wanted: Tensor | None, metrics: dict[str, Any]
) -> dict[str, Array]:
    """Return the arrays of a prediction, and put what the labels say of it among the figures."""
    task, found = spec.task, meter(spec.task)
    outputs_of = space((size, *task.output_shape), np.float32, spec.output_dir / "logits")
    predicted = np.empty((size, *task.label_shape), _PREDICTED[task.kind])
    for rows, values in blocks:
        outputs_of[rows], predicted[rows] = values, predicted_of(values, task)
        if wanted is not None:
            found.add(values, wanted[rows].numpy())
    if wanted is not None:
        figures = found.figures()
        metrics |= headline(task, main_figure(task, figures)) | {"measures": figures}
    return {"predicted": predicted} if task.kind == "regression" else {"logits": outputs_of, "predicted": predicted}


_PREDICTED: Mapping[TaskKind, type[np.generic]] = {
    "classification": np.int64,
    "multilabel": np.uint8,
    "regression": np.float32,
    "dense": np.uint8,
    "tokens": np.int64,
}


def predicted_of(outputs_of: Float, task: Task) -> Array:
    """Return labels [b, *task.label_shape] that outputs mean: the first largest logit's, those above 0, or values."""
    if task.kind == "regression":
        return outputs_of
    if task.kind == "multilabel":
        return outputs_of > 0
    return np.asarray(outputs_of.argmax(axis=-1 if task.kind == "tokens" else 1))


def _is_labelled(path: Path) -> bool:
    with TensorFile(path) as file:
        return "labels" in file.header.tensors


def _alone(
    spec: PredictSpec, network: NetworkRef, inputs: Tensor, phases: Phases, device: str
) -> Iterator[tuple[slice, Float]]:
    """Yield one model's outputs, batch by batch."""
    module, batch = build_network(network, spec.task, device, owner="model"), batch_of(spec.task)
    with phases.phase("predict", of=batches_of(len(inputs), batch)):
        given = outputs(module, inputs, device, owner="model", batch=batch)
        for number, (start, values) in enumerate(given, start=1):
            check_shape(values, spec.task, "model")
            yield slice(start, start + len(values)), values
            phases.step(number)


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
