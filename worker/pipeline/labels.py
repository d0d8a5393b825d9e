"""Pseudo-labels: every teacher sees every server sample once, one teacher in memory at a time."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contract.measures import meter
from contract.nn.losses import class_rows, from_class_rows
from contract.recipes import parts
from contract.tasks import OF_CLASSES, TaskKind
from contract.tensors import Array, TensorFile, TensorWriter
from contract.updates import PREDICTIONS
from contract.wire.federations import Task
from worker.checkpoints import Checkpoint, Contents, Saved
from worker.parts import combine
from worker.parts.arrays import Float
from worker.parts.flops import forward_flops, plus
from worker.parts.weigh import entropy, log_weights, log_weights_of_group, normalise, of_clients
from worker.pipeline.absent import read_scores
from worker.pipeline.blame import blame
from worker.pipeline.heard import Heard, Together
from worker.pipeline.networks import BATCH, batch_of, build_network, check_shape, moving, outputs, recalibrate
from worker.pipeline.shards import Shards
from worker.pipeline.targets import Targets, counted_in, rows_shape, targets_of
from worker.pipeline.teachers import Members, Teacher
from worker.registry import implements
from worker.specs import JobFailure


@dataclass(frozen=True)
class Ensemble:
    """What the teachers say of one set of S samples.

    Attributes:
        targets: pseudo-labels.
        weights: [m, S], float64, summing to 1 over the m teachers.
        names: the m teachers' names.
        forwards: samples that went through a teacher: m S; 0 where predictions came instead of models.
        flops: operations of these; None where a teacher's cannot be counted.
    """

    targets: Targets
    weights: Float
    names: list[str]
    forwards: int
    flops: int | None = 0


# ---------------------------------------------------------------------------------------------------------------- label
@dataclass
class _Tally:
    """One data set on its way through the teachers."""

    inputs: Tensor
    combiner: combine.Combiner
    counted: Tensor | None = None
    rows: list[Float] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    forwards: int = 0
    flops: int | None = 0

    def ensemble(self) -> Ensemble:
        weights = normalise(self.rows)
        targets = targets_of(self.combiner.result(weights), self.counted)
        return Ensemble(targets, weights, self.names, self.forwards, self.flops)

    def state(self) -> dict[str, Array]:
        return {"rows": np.stack(self.rows)} | {f"sum.{name}": held for name, held in self.combiner.state().items()}

    def restore(self, saved: Saved, name: str) -> None:
        found = saved.under(f"{name}/")
        self.rows, self.names = list(found.pop("rows")), list(saved.notes["names"])
        self.forwards, self.flops = int(saved.notes["forwards"][name]), saved.notes.get("flops", {}).get(name)
        self.combiner.restore({key.removeprefix("sum."): array for key, array in found.items()})


def _partial(tallies: Mapping[str, _Tally]) -> Contents:
    arrays = {f"{name}/{key}": array for name, tally in tallies.items() for key, array in tally.state().items()}
    names = next(iter(tallies.values())).names
    counted = {what: {name: getattr(tally, what) for name, tally in tallies.items()} for what in ("forwards", "flops")}
    return arrays, {"names": names, **counted}


def _without(logits: Float, counted: Tensor | None, rows: slice) -> Float:
    """Return logits [b, P, C], NaN where positions do not count."""
    if counted is None:
        return logits
    return np.where(counted[rows].numpy()[..., None], logits, np.nan)


Weigher = Callable[[slice, Float], Float]
"""Which samples, the teacher's logits [b, C] of them -> log weights [b]."""


def _weigher(weigh: parts.Weigh, teacher: Teacher, name: str, size: int) -> Weigher:
    """Return a teacher's weights on one set."""
    if teacher.is_group or teacher.counted is not None:
        counted = _counted(weigh, teacher, name, size)
        return lambda rows, logits: log_weights_of_group(
            weigh, logits, {factor: each[rows] for factor, each in counted.items()}
        )
    scores = None if teacher.scores is None else read_scores(teacher.scores).get(name)
    if scores is not None and scores.shape != (size,):
        raise _other_size(teacher, name, scores, size)
    return lambda rows, logits: log_weights(
        weigh, teacher.num_samples, logits, None if scores is None else scores[rows]
    )


def _counted(weigh: parts.Weigh, teacher: Teacher, name: str, size: int) -> dict[int, Float]:
    """Return what a group's clients count together, by factor; one that nobody trained has nothing to count."""
    nothing = of_clients(weigh, [], size)
    if teacher.counted is None or not nothing:
        return nothing
    found = read_scores(teacher.counted)
    rows = {factor: found[f"{name}.{factor}"] for factor in nothing}
    for row in rows.values():
        if row.shape not in ((1,), (size,)):
            raise _other_size(teacher, name, row, size)
    return {factor: np.broadcast_to(row, (size,)) for factor, row in rows.items()}


def _other_size(teacher: Teacher, name: str, found: Float, size: int) -> JobFailure:
    detail = f"scores of {teacher.name!r} on the {name} set: {found.shape}, wanted ({size},)"
    return JobFailure("schema_mismatch", detail)


_BLOCK = 16
"""Samples of many positions that are looked at at once."""
Outputs = Callable[[str, Tensor], Iterator[tuple[int, Float]]]
"""A set's name and its inputs [S, ...] -> (start, logits [b, C]) of one batch after another."""


def _predicted(path: Path, size: int, owner: str) -> Iterator[tuple[int, Float]]:
    """Yield what a client predicted, as logits whose softmax it is."""
    with TensorFile(path) as file:
        rows, classes = file.info(PREDICTIONS).shape
        if rows != size:
            raise JobFailure("schema_mismatch", f"{owner}: {rows} predictions for a server set of {size} samples")
        for start in range(0, rows, BATCH):
            count = min(BATCH, rows - start)
            block = file.read_block(PREDICTIONS, start * classes, count * classes).reshape(count, classes)
            yield start, combine.log_probabilities(block.astype(np.float64))


def _said(path: Path, name: str, shape: tuple[int, ...], owner: str) -> Iterator[tuple[int, Float]]:
    """Yield what was kept of a teacher's logits, of the shape [S, C]."""
    width = math.prod(shape[1:])
    with TensorFile(path) as file:
        if name not in file.header.tensors or file.info(name).shape != shape:
            raise JobFailure("schema_mismatch", f"{owner}: what it said of the {name} set is of another set")
        for start in range(0, shape[0], BATCH):
            count = min(BATCH, shape[0] - start)
            block = file.read_block(name, start * width, count * width).reshape(count, *shape[1:])
            yield start, block.astype(np.float64)


@dataclass(frozen=True)
class Labeller:
    """The ensemble's part of a recipe, ready to run.

    Attributes:
        weigh: what each teacher counts.
        combine: how their outputs become one.
        task: the federation's.
        device: torch device.
        scratch: folder for what does not fit into memory.
        calibration: inputs on which sampled models get their BatchNorm statistics; None: they keep their own.
        heard: listens to what clients say.
        shards: what other jobs found networks to say.
    """

    weigh: parts.Weigh
    combine: parts.Combine
    task: Task
    device: str
    scratch: Path
    calibration: Tensor | None = None
    heard: Heard | None = None
    shards: Shards | None = None

    def label(
        self,
        members: Members,
        sets: Mapping[str, Tensor],
        on_teacher: Callable[[int], None],
        checkpoint: Checkpoint | None = None,
    ) -> dict[str, Ensemble]:
        """Let every teacher look once at every sample of every set (FedDF Alg. 1; FedGO Alg. 2, labels once per round).

        Memory: one teacher, [S, C] float64 per set, and [m, S] float64 for the weights.

        Args:
            members: the teachers.
            sets: 'unlabeled', 'test' or both -> inputs [S, ...].
            on_teacher: called with the number of teachers done.
            checkpoint: where the sums over the teachers so far are kept, and found again.

        Raises:
            JobFailure: non_finite, naming the client; schema_mismatch; architecture_failed; no_participants.
        """
        if members.count == 0:
            raise JobFailure("no_participants", "no client of this round can be a teacher")
        make: combine.MakeCombiner = implements.of(self.combine)
        checkpoint = checkpoint or Checkpoint()
        with ExitStack() as stack:
            tallies = {}
            for name, inputs in sets.items():
                scratch = self.scratch / f"outputs-{name}"
                form = combine.Form(len(inputs), rows_shape(self.task), self.task.kind)
                tallies[name] = _Tally(inputs, make(self.combine, form, scratch, stack), counted_in(inputs, self.task))
            before = 0
            if checkpoint.saved is not None:
                before = checkpoint.saved.step
                for name, tally in tallies.items():
                    tally.restore(checkpoint.saved, name)
            for done, teacher in enumerate(members.teachers, start=1):
                self.hear(teacher, sets)
                if done <= before:
                    continue
                self._visit(teacher, tallies)
                on_teacher(done)
                if checkpoint.due() and done < members.count:
                    checkpoint.save(done, *_partial(tallies))
            return {name: tally.ensemble() for name, tally in tallies.items()}

    def hear(self, teacher: Teacher, sets: Mapping[str, Tensor]) -> None:
        """Write what a client of the round says of the sets, F32 [S, C] each, where that is kept for later rounds.

        Raises:
            JobFailure: non_finite, naming the client; architecture_failed.
        """
        if teacher.said is None or not teacher.runs:
            return
        infos = {name: ("F32", (len(inputs), *rows_shape(self.task))) for name, inputs in sets.items()}
        with blame(teacher.client), TensorWriter(teacher.said, infos) as writer:
            outputs_of = self._run(teacher)
            for name, inputs in sets.items():
                for _, logits in outputs_of(name, inputs):
                    writer.write(name, logits.astype(np.float32))

    def _outputs(self, teacher: Teacher) -> Outputs:
        """Return a function that gives a teacher's logits for inputs: by its network, or read where they are kept."""
        owner, path = f"update of {teacher.name!r}", teacher.said
        if path is not None:
            return lambda name, inputs: _said(path, name, (len(inputs), *rows_shape(self.task)), owner)
        if teacher.predictions is not None:
            predictions = teacher.predictions
            return lambda _, inputs: _predicted(predictions, len(inputs), owner)
        return self._run(teacher)

    def _run(self, teacher: Teacher) -> Outputs:
        owner = f"update of {teacher.name!r}"
        asked = self._asked(teacher, owner)
        if self.task.kind == "classification":
            return asked
        return lambda name, inputs: self._rows(asked(name, inputs), owner)

    def _asked(self, teacher: Teacher, owner: str) -> Outputs:
        """Return a function that gives what a network says: as it is asked, or as another job has asked it."""
        if self.shards is not None and not teacher.recalibrate:
            return self.shards.outputs_of(teacher.network, owner)
        module = build_network(teacher.network, self.task, self.device, owner=owner)
        if teacher.recalibrate and self.calibration is not None:
            recalibrate(module, self.calibration, self.device, moving(teacher.network))
        return lambda _, inputs: outputs(module, inputs, self.device, owner=owner, batch=batch_of(self.task))

    def _rows(self, asked: Iterator[tuple[int, Float]], owner: str) -> Iterator[tuple[int, Float]]:
        for start, values in asked:
            check_shape(values, self.task, owner)
            yield start, class_rows(torch.from_numpy(values), self.task.kind).numpy()

    def _visit(self, teacher: Teacher, sets: Mapping[str, _Tally]) -> None:
        with blame(teacher.client):
            self._ask(teacher, sets)

    def _ask(self, teacher: Teacher, sets: Mapping[str, _Tally]) -> None:
        outputs_of = self._outputs(teacher)
        for name, tally in sets.items():
            weigher = _weigher(self.weigh, teacher, name, len(tally.inputs))
            row, age = np.empty(len(tally.inputs)), math.log(teacher.factor)
            for start, logits in outputs_of(name, tally.inputs):
                rows = slice(start, start + len(logits))
                row[rows] = weigher(rows, _without(logits, tally.counted, rows)) + age
                if self.heard is not None and teacher.client is not None:
                    self.heard.take(name, teacher.client, start, logits)
                tally.combiner.add(start, logits, row[rows])
                tally.forwards += len(logits) if teacher.runs else 0
            if teacher.runs:
                network = teacher.network
                more = forward_flops(network.architecture, network.options, self.task, len(tally.inputs))
                tally.flops = plus(tally.flops, more)
            tally.rows.append(row)
            tally.names.append(teacher.name)


def pack(ensembles: Mapping[str, Ensemble]) -> Contents:
    """Return finished labels as arrays and notes."""
    arrays: dict[str, Array] = {}
    for name, each in ensembles.items():
        arrays[f"{name}/weights"] = each.weights
        for what in ("logits", "labels", "diversity", "counted"):
            held = getattr(each.targets, what)
            if held is not None:
                arrays[f"{name}/{what}"] = held.numpy()
    notes = {
        name: {"names": each.names, "forwards": each.forwards, "flops": each.flops} for name, each in ensembles.items()
    }
    return arrays, {"done": True, "ensembles": notes}


def unpack(saved: Saved) -> dict[str, Ensemble]:
    """Return the labels that `pack` gave."""
    found = {}
    for name, said in saved.notes["ensembles"].items():
        held = saved.under(f"{name}/")
        weights = held.pop("weights")
        targets = Targets(**{what: torch.from_numpy(array) for what, array in held.items()})
        found[name] = Ensemble(targets, weights, list(said["names"]), int(said["forwards"]), said.get("flops"))
    return found


def _mean_entropy(targets: Targets) -> float:
    """Return the mean entropy of the labels, of those of positions that count."""
    if targets.logits.ndim == 2:
        return float(entropy(targets.logits.double().numpy()).mean())
    total = count = 0.0
    for start in range(0, len(targets.logits), _BLOCK):
        rows = slice(start, start + _BLOCK)
        values = entropy(targets.logits[rows].double().numpy())
        kept = np.ones(values.shape, bool) if targets.counted is None else targets.counted[rows].cpu().numpy()
        total, count = total + float(values[kept].sum()), count + int(kept.sum())
    return total / max(count, 1)


def describe(ensemble: Ensemble, kind: TaskKind = "classification") -> dict[str, Any]:
    """Return figures of an ensemble: mean entropy of its labels in nats, how many teachers it comes from in effect."""
    effective, has_classes = combine.effective_teachers(ensemble.weights), kind in OF_CLASSES
    figures = {
        "teachers": len(ensemble.weights),
        "entropy": _mean_entropy(ensemble.targets) if has_classes else None,
        "effective_teachers": {"mean": float(effective.mean()), "min": float(effective.min())},
    }
    figures = {name: value for name, value in figures.items() if value is not None}
    if ensemble.targets.diversity is not None:
        figures["dissent"] = float(ensemble.targets.diversity.double().sum(dim=1).mean())
    return figures


def together(ensemble: Ensemble) -> Together:
    """Return what is told of an ensemble: who counted how much, and which class each sample became."""
    classes = ensemble.targets.logits.argmax(dim=1).cpu().numpy().astype(np.int64)
    return Together(ensemble.names, ensemble.weights, classes)


def teacher_weights(ensemble: Ensemble) -> dict[str, float]:
    """Return each teacher's mean weight; of those that have one name, what they count together."""
    found: dict[str, float] = {}
    for name, mean in zip(ensemble.names, ensemble.weights.mean(axis=1), strict=True):
        found[name] = found.get(name, 0.0) + float(mean)
    return found


def block_of(task: Task) -> int:
    """Return how many samples of an ensemble's labels are looked at at once."""
    return _BLOCK if task.positions else BATCH


def said(ensemble: Ensemble, task: Task) -> Iterator[tuple[slice, Float]]:
    """Yield what an ensemble says of one block of samples after another, as a network would: float64 outputs."""
    for start in range(0, len(ensemble.targets.logits), block_of(task)):
        rows = slice(start, start + block_of(task))
        yield rows, from_class_rows(ensemble.targets.logits[rows].double(), task.kind).numpy()


def ensemble_figures(ensemble: Ensemble, labels: Tensor, task: Task) -> dict[str, Any]:
    """Return the figures of pseudo-labels beside the true ones, as of a network's outputs."""
    found = meter(task)
    for rows, outputs_of in said(ensemble, task):
        found.add(outputs_of, labels[rows].numpy())
    return found.figures()
