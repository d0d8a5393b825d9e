"""What devices are sent beside the model: made after a round, by what the clients' objective reads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract import local
from contract.tensors import write_file
from contract.updates import TARGETS
from worker.parts.blocks import Source
from worker.parts.fuse import average_files
from worker.pipeline.job import Round, header_of


def prepare_sends(job: Round) -> None:
    """Put into the state what the objective of the next round reads, under names that begin with 'send.'.

    Raises:
        JobFailure: schema_mismatch or non_finite, naming the client.
    """
    objective = job.spec.local.objective
    SENDS[type(objective)](job, objective)


def _nothing(job: Round, objective: Any) -> None:
    """The model is all that this objective reads."""


def _ring(job: Round, prototype: str) -> list[tuple[int, str]]:
    """Return (round, name in the state) of a prototype's published models that are kept, newest first."""
    prefix = f"global.{prototype}."
    names = [name for name in job.state if name.startswith(prefix) and name[len(prefix) :].isdecimal()]
    return sorted(((int(name[len(prefix) :]), name) for name in names), reverse=True)


def _teacher(job: Round, objective: local.FedGkdObjective) -> None:
    """Keep the last M published models of every prototype, and send their plain mean, buffers too (FedGKD)."""
    for prototype, model in job.models.items():
        job.state[f"global.{prototype}.{job.spec.round_index}"] = model
        ring = _ring(job, prototype)
        for _, name in ring[objective.history :]:
            del job.state[name]
        target = job.file("teacher", prototype)
        sources = [Source(f"round {index:09}", job.state[name], 1) for index, name in ring[: objective.history]]
        average_files(sources, target, base=header_of(model))
        job.state[f"send.teacher.{prototype}"] = target


def _class_prototypes(job: Round, objective: local.FedTgpObjective) -> None:
    """Train the prototypes of the classes on the clients' class means (FedTGP)."""
    from worker.pipeline.tgp import train_prototypes

    with job.phases.phase("prototypes"):
        made: dict[str, Path] = train_prototypes(job)
    job.state |= made


def send_targets(job: Round, targets: NDArray[np.float32]) -> None:
    """Put the labels of the server set, probabilities [P, C], into the state: devices imitate them next (DS-FL)."""
    path = job.spec.output_dir / "targets.safetensors"
    write_file(path, {TARGETS: targets})
    job.state[f"send.{TARGETS}"] = path


SENDS: dict[type, Callable[[Round, Any], None]] = {
    local.SgdObjective: _nothing,
    local.FedProxObjective: _nothing,
    local.ScaffoldObjective: _nothing,  # the control variate is the business of fuse 'scaffold'
    local.FedGkdObjective: _teacher,
    local.MoonObjective: _nothing,  # the previous model is on the device
    local.FedUvObjective: _nothing,
    local.FedTgpObjective: _class_prototypes,
    local.DsFlObjective: _nothing,  # the targets are sent when they are made
}
