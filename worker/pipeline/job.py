"""The state of one round's job: whose updates count, where its files are, what was measured."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract.choices import Carried
from contract.tensors import Header, TensorFile
from worker.checkpoints import Checkpoints
from worker.parts.distances import Distance
from worker.pipeline.phases import Phases
from worker.specs import JobFailure, KeptMember, NetworkRef, Progress, PrototypeSpec, RoundSpec

if TYPE_CHECKING:
    from worker.pipeline.heard import Heard

SERVER = "server"
"""Name of Fed-ET's server model among a job's models."""


@dataclass(frozen=True)
class Update:
    """One update that counts.

    Attributes:
        client: its name.
        prototype: the model it trained.
        weights: a file with exactly the model's tensors; where predictions are sent instead (DS-FL), these.
        sent: the file as it was sent, with what it holds beside them.
        num_samples: n_k > 0.
        label_counts: samples per class [C], where the client shares them.
        trained: a file as `weights`, as the client trained it, where `weights` lays it onto the round's model: it began
            from an older one.
        factor: s_k, what it counts for its age.
    """

    client: str
    prototype: str
    weights: Path
    sent: Path
    num_samples: int
    label_counts: list[int] | None = None
    trained: Path | None = None
    factor: float = 1.0

    @property
    def model(self) -> Path:
        """The client's own model, as a network runs it."""
        return self.weights if self.trained is None else self.trained


@dataclass
class Round:
    """One round on its way.

    Attributes:
        spec: what is asked.
        phases: progress and times.
        device: torch device.
        updates: per prototype, in the order of the clients' names; prototypes without participants are not in it.
        averages: what fusing made, per prototype of `updates`.
        models: what is published.
        state: what is kept for the next round.
        scores: files of what clients' discriminators say of the round's sets, by client.
        metrics: figures.
        checkpoints: what an earlier attempt left, and what the next one would find.
        ensemble: who predicts together, where the round keeps that.
        heard: what clients say of a few samples, where the round is to be explained and they teach.
        measured: where updates lie, by prototype, as far as a mean has measured them; None when nobody asks any more.
    """

    spec: RoundSpec
    phases: Phases
    device: str
    updates: dict[str, list[Update]] = field(default_factory=dict)
    averages: dict[str, Path] = field(default_factory=dict)
    models: dict[str, Path] = field(default_factory=dict)
    state: dict[str, Path] = field(default_factory=dict)
    scores: dict[str, Path] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    checkpoints: Checkpoints = field(default_factory=lambda: Checkpoints(None))
    ensemble: list[KeptMember] | None = None
    heard: "Heard | None" = None
    measured: dict[str, dict[str, Distance]] | None = field(default_factory=dict)

    @classmethod
    def begin(
        cls,
        spec: RoundSpec,
        report: Callable[[Progress], None],
        device: str,
        checkpoints: Checkpoints | None = None,
    ) -> "Round":
        """Return the job before anything is done."""
        kept = checkpoints or Checkpoints(None)
        return cls(spec, Phases(report), device, state=dict(spec.state), scores=dict(spec.scores), checkpoints=kept)

    def file(self, what: str, prototype: str) -> Path:
        """Return where a file of a prototype goes; names may hold any letters, so its position names the file."""
        names = [each.name for each in self.spec.prototypes]
        index = names.index(prototype) if prototype in names else prototype
        return self.spec.output_dir / f"{what}-{index}.safetensors"

    @property
    def present(self) -> list[PrototypeSpec]:
        """The prototypes that somebody trained; without a student of theirs the others stay byte for byte."""
        return [each for each in self.spec.prototypes if each.name in self.updates]

    @property
    def participants(self) -> list[Update]:
        """All updates that count, in the order of the clients' names."""
        return sorted((each for group in self.updates.values() for each in group), key=lambda each: each.client)

    def prototype(self, name: str) -> PrototypeSpec:
        """Return a prototype by name."""
        return next(each for each in self.spec.prototypes if each.name == name)

    def network(self, name: str, weights: Path) -> NetworkRef:
        """Return a prototype's network with weights of one's own."""
        return self.prototype(name).network.model_copy(update={"weights": weights})

    def history(self, carried: Carried, model: str, longest: int) -> list[tuple[int, Path]]:
        """Return (round, file) of what is carried of a model, newest first; all but the `longest` newest are let go."""
        prefix = carried.named(model) + "."
        names = [name for name in self.state if name.startswith(prefix) and name[len(prefix) :].isdecimal()]
        found = sorted(((int(name[len(prefix) :]), self.state[name]) for name in names), reverse=True)
        for index, _ in found[longest:]:
            del self.state[f"{prefix}{index}"]
        return found[:longest]

    def current(self, name: str) -> Path:
        """Return a prototype's model before distillation: this round's average, or the old one if nobody trained it.

        Raises:
            JobFailure: bad_option, when there is neither.
        """
        if name in self.averages:
            return self.averages[name]
        return self.base(name)

    def base(self, name: str) -> Path:
        """Return the model that a prototype's clients started from.

        Raises:
            JobFailure: bad_option, when the job was not told.
        """
        weights = self.prototype(name).network.weights
        if weights is None:
            raise JobFailure("bad_option", f"prototype {name!r}: the recipe needs the round's model: network.weights")
        return weights


def copy_file(source: Path, target: Path) -> None:
    """Copy a file and see that it is on the disk."""
    shutil.copyfile(source, target)
    with target.open("rb+") as file:
        os.fsync(file.fileno())


def header_of(path: Path) -> Header:
    """Return a file's header."""
    with TensorFile(path) as file:
        return file.header
