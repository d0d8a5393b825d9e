"""Students: how they are validated and written."""

from collections.abc import Callable
from pathlib import Path

from torch import nn

from contract.nn.codec import state_arrays
from contract.tensors import TensorFile, write_file
from contract.wire.federations import Task
from worker.pipeline.networks import accuracy, read_inputs, read_labels


def validator(path: Path | None, task: Task, device: str) -> Callable[[nn.Module], float] | None:
    """Return a function that gives a student's accuracy on the validation set, or None where there is no set."""
    if path is None:
        return None
    inputs, labels = read_inputs(path, task, "validation"), read_labels(path, "validation")

    def validate(student: nn.Module) -> float:
        return accuracy(student, inputs, labels, device, owner="student")

    return validate


def save_like(student: nn.Module, base: Path, target: Path) -> None:
    """Write the student with the tensor order and metadata of `base`."""
    with TensorFile(base) as file:
        names, metadata = file.names, file.header.metadata
    arrays = state_arrays(student.state_dict())
    write_file(target, {name: arrays[name] for name in names}, metadata)
