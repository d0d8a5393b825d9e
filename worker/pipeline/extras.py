"""What devices are sent beside the model: made after a round, by what the clients' objective reads."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract import local
from contract.guard import theirs
from contract.tensors import write_file
from contract.updates import TARGETS
from worker.parts.blocks import Source
from worker.parts.fuse import average_files
from worker.pipeline.job import Round, header_of
from worker.registry import implements


def prepare_extras(job: Round) -> None:
    """Put into the state what the objective of the next round reads, where the worker makes it from the round's models.

    Raises:
        JobFailure: schema_mismatch or non_finite, naming the client.
    """
    objective = job.spec.local.objective
    make: Callable[[Round, Any], None] | None = implements.get(objective)
    if make is not None:
        with theirs(objective):
            make(job, objective)


@implements(local.FedGkdObjective)
def _teacher(job: Round, objective: local.FedGkdObjective) -> None:
    """Keep the last M published models of every prototype, and send their plain mean, buffers too (FedGKD)."""
    for prototype, model in job.models.items():
        job.state[local.GLOBAL.named(prototype, job.spec.round_index)] = model
        newest = job.history(local.GLOBAL, prototype, objective.history)
        target = job.file("teacher", prototype)
        sources = [Source(f"round {index:09}", path, 1) for index, path in newest]
        average_files(sources, target, base=header_of(model))
        job.state[local.SENT_TEACHER.named(prototype)] = target


@implements(local.FedTgpObjective)
def _class_prototypes(job: Round, objective: local.FedTgpObjective) -> None:
    """Train the prototypes of the classes on the clients' class means (FedTGP)."""
    from worker.pipeline.tgp import train_prototypes

    with job.phases.phase("prototypes"):
        job.state |= train_prototypes(job, objective)


def send_targets(job: Round, targets: NDArray[np.float32]) -> None:
    """Put the labels of the server set, probabilities [P, C], into the state: devices imitate them next (DS-FL)."""
    path = job.spec.output_dir / "targets.safetensors"
    write_file(path, {TARGETS: targets})
    job.state[local.SENT_TARGETS.named()] = path
