"""Students: who learns, one function per choice, and the task that each of them gets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from contract.groups import is_main
from contract.nn.codec import state_arrays
from contract.recipes import parts
from contract.seeds import derive_seed
from contract.tensors import Array, TensorFile, write_file
from contract.wire.federations import Task
from worker.checkpoints import Checkpoint
from worker.parts.flops import plus, training_flops
from worker.parts.schedules import samples_of, steps_of
from worker.pipeline import head
from worker.pipeline.data import Augmenter
from worker.pipeline.distil import DistillationTask, require_finite, teach
from worker.pipeline.job import SERVER, Round
from worker.pipeline.networks import batch_of, build_network, main_measure, moving, outputs, read_inputs, read_labels
from worker.pipeline.targets import Targets
from worker.registry import implements
from worker.specs import NetworkRef


@dataclass(frozen=True)
class Student:
    """A model that is to learn: its name among the job's models, and the network it starts as."""

    name: str
    network: NetworkRef

    @property
    def owner(self) -> str:
        """Who it is, for errors."""
        return f"student of prototype {self.name!r}"


# ------------------------------------------------------------------------------------------------------------------ who
def _own(job: Round, name: str) -> Student:
    return Student(name, job.network(name, job.current(name)))


@implements(parts.StudentsPrototypes)
def _prototypes(job: Round, choice: parts.StudentsPrototypes) -> list[Student]:
    if choice.start == "previous":
        return [Student(each.name, job.network(each.name, job.base(each.name))) for each in job.present]
    return [_own(job, each.name) for each in job.present]


@implements(parts.StudentsPrototypesAndServer)
def _prototypes_and_server(job: Round, _: parts.StudentsPrototypesAndServer) -> list[Student]:
    """Every average, and the server's model as the round before left it (DS-FL)."""
    return [*(_own(job, each.name) for each in job.present), Student(SERVER, head.server_of(job).network)]


@implements(parts.StudentsMain)
def _main(job: Round, _: parts.StudentsMain) -> list[Student]:
    """The main models, also where their group was empty this round (FedSDD)."""
    return [_own(job, each.name) for each in job.spec.prototypes if is_main(each.name)]


@implements(parts.StudentsAll)
def _all(job: Round, choice: parts.StudentsAll) -> list[Student]:
    """Every model, also those that nobody trained; nobody during the warm-up."""
    if job.spec.round_index <= choice.warmup_rounds:
        return []
    return [_own(job, each.name) for each in job.spec.prototypes]


@implements(parts.StudentsServer)
def _server(job: Round, _: parts.StudentsServer) -> list[Student]:
    """The server's model with the clients' mean head (Fed-ET eq. 2)."""
    return [Student(SERVER, head.with_mean_head(job))]


@implements(parts.StudentsNone)
def _nobody(job: Round, _: parts.StudentsNone) -> list[Student]:
    return []


def students_of(job: Round) -> list[Student]:
    """Return who learns in this round.

    Raises:
        JobFailure: bad_option, when the recipe's student is not there.
    """
    assert job.spec.recipe.distil is not None
    choice = job.spec.recipe.distil.students
    who: Callable[[Round, Any], list[Student]] = implements.of(choice)
    return who(job, choice)


# ------------------------------------------------------------------------------------------------------------- learning
def validator(path: Path | None, task: Task, device: str) -> Callable[[nn.Module], float] | None:
    """Return a function that gives a student's main figure on the validation set, or None where there is no set."""
    if path is None:
        return None
    inputs, labels = read_inputs(path, task, "validation"), read_labels(path, "validation", task)

    def validate(student: nn.Module) -> float:
        return main_measure(student, inputs, labels, task, device, owner="student")

    return validate


def teach_all(job: Round, students: list[Student], inputs: Any, targets: Targets) -> None:
    """Let all students learn from the same labels; one student is in memory at a time.

    Raises:
        JobFailure: non_finite, naming the student.
    """
    spec, distil = job.spec, job.spec.recipe.distil
    assert distil is not None
    inputs, targets = inputs.to(job.device), targets.to(job.device)
    validate = validator(spec.datasets.validation, spec.task, job.device) if distil.schedule.early_stop else None
    job.metrics["distil"] = {}
    for student in students:
        seed = derive_seed(spec.seed, "round", spec.round_index, "distil", student.name)
        augment = Augmenter(distil.data.augment, spec.task, derive_seed(seed, "augment"))
        task = DistillationTask(
            inputs,
            targets,
            distil,
            seed,
            spec.round_index,
            spec.rounds_total,
            augment,
            validate,
            moving(student.network),
            spec.task.kind,
            spec.task.main_metric,
        )
        _teach(job, student, task)


def _teach(job: Round, student: Student, task: DistillationTask) -> None:
    phase, steps = f"distil {student.name}", steps_of(task.distil.schedule, len(task.inputs))
    base, target = student.network.weights, job.file("student", student.name)
    assert base is not None
    with job.phases.phase(phase, of=steps):
        checkpoint = Checkpoint.of(job.checkpoints, phase)
        if checkpoint.saved is not None:
            job.phases.step(checkpoint.saved.step, resumed=True)
        if checkpoint.saved is not None and checkpoint.saved.notes.get("done"):
            figures = checkpoint.saved.notes["figures"]
            write_like(checkpoint.saved.under("model."), base, target)
        else:
            module = build_network(student.network, job.spec.task, job.device, owner=student.owner)
            figures = teach(module, task, job.phases.step, checkpoint)
            require_finite(module, student.owner)
            for _ in outputs(module, task.inputs[: batch_of(job.spec.task)], job.device, owner=student.owner):
                pass  # finite weights may give none of a finite output; devices would be the first to see it
            write_like(state_arrays(module.state_dict()), base, target)
    job.metrics["distil"][student.name] = figures
    _count(job, student, samples_of(figures["steps"], len(task.inputs), task.distil.schedule.batch_size))
    job.models[student.name] = target
    checkpoint.complete(figures["steps"], lambda: (_arrays_of(target), {"done": True, "figures": figures}))


def _count(job: Round, student: Student, samples: int) -> None:
    network, counted = student.network, job.metrics["flops"]
    more = training_flops(network.architecture, network.options, job.spec.task, samples, moving(network))
    counted["distillation"] = plus(counted["distillation"], more)


def _arrays_of(path: Path) -> dict[str, Array]:
    with TensorFile(path) as file:
        return {f"model.{name}": file.read(name) for name in file.names}


def write_like(arrays: Mapping[str, Array], base: Path, target: Path) -> None:
    """Write a student with the tensor order and metadata of `base`."""
    with TensorFile(base) as file:
        names, metadata = file.names, file.header.metadata
    write_file(target, {name: arrays[name] for name in names}, metadata)
