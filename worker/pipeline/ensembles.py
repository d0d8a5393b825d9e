"""A round's ensemble: each of its models in a file, as it taught, so that they predict together again."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from contract.tensors import TensorFile
from worker.pipeline.job import Round, copy_file
from worker.pipeline.teachers import Members, Teacher, members, participants
from worker.specs import KeptMember

if TYPE_CHECKING:
    from torch import Tensor


def keep(job: Round, calibration: "Callable[[], Tensor | None]") -> None:
    """Make files of the round's teachers, or of its clients' models where nobody teaches, and name them in the job.

    Models that are drawn are drawn once more, to the same bytes.

    Args:
        job: the round, whose teachers have taught.
        calibration: gives the inputs on which sampled models got their BatchNorm statistics.
    """
    found = participants(job) if job.spec.recipe.distil is None else members(job)
    with job.phases.phase("ensemble", of=found.count):
        job.ensemble = _kept(job, found, calibration)


def _kept(job: Round, found: Members, calibration: "Callable[[], Tensor | None]") -> list[KeptMember]:
    kept = []
    for number, teacher in enumerate(found.teachers):
        target = job.spec.output_dir / f"member-{number}.safetensors"
        kept.append(
            KeptMember(
                name=teacher.name,
                client=teacher.client,
                network=teacher.network.model_copy(update={"weights": _weights(job, teacher, target, calibration)}),
                num_samples=teacher.num_samples,
                is_group=teacher.is_group,
                counted=_counted(teacher),
            )
        )
        job.phases.step(number + 1)
    return kept


def _weights(job: Round, teacher: Teacher, target: Path, calibration: "Callable[[], Tensor | None]") -> Path:
    """Return the file of a teacher's weights: one that stays when the job is over, or a copy."""
    weights = teacher.network.weights
    assert weights is not None
    if teacher.recalibrate and (inputs := calibration()) is not None:
        _calibrated(job, teacher, target, inputs)
        return target
    stay = {*job.averages.values(), *job.state.values()}
    if weights.parent != job.spec.output_dir or weights in stay:
        return weights
    copy_file(weights, target)
    return target


def _calibrated(job: Round, teacher: Teacher, target: Path, inputs: "Tensor") -> None:
    from contract.nn.codec import save_state, state_arrays
    from worker.pipeline.networks import build_network, moving, recalibrate
    from worker.pipeline.students import write_like

    network = teacher.network
    module = build_network(network, job.spec.task, job.device, owner=f"update of {teacher.name!r}")
    recalibrate(module, inputs, job.device, moving(network))
    if network.base is None or network.weights is None:
        save_state(module, target)
    else:
        write_like(state_arrays(module.state_dict()), network.weights, target)


def _counted(teacher: Teacher) -> dict[str, float] | None:
    """Return ln of what a group's clients count together, by factor, where it is the same of every sample."""
    if teacher.counted is None:
        return None
    with TensorFile(teacher.counted) as file:
        rows = {name.rpartition(".")[2]: file.read(name) for name in file.names}
    return {factor: float(row[0]) for factor, row in rows.items() if row.shape == (1,)} or None
