"""What a simulation leaves: a record a round, with its files."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from contract.evaluation import Evaluation
from contract.federation import FederationConfig
from contract.notes import Note
from contract.tasks import measured_of
from contract.wire.report import Cost


class Participation(BaseModel):
    """One client's part in a round.

    Attributes:
        evaluation: what it measured of the model that it was sent, where the plan asks for it.
        update: its file as it was sent, None once it is removed.
        excluded: why it was not fused.
        begun: the round whose model it began from, where rounds do not wait.
        label: what its update is called there; empty: the client's name.
        staleness: how often that model was replaced since.
    """

    client: str
    prototype: str
    num_samples: int
    loss: float | None = None
    accuracy: float | None = None
    steps: int | None = None
    epsilon: float | None = None
    evaluation: Evaluation | None = None
    control_reset: bool = False
    update: Path | None = None
    excluded: str | None = None
    begun: int | None = None
    label: str = ""
    staleness: int = 0

    @property
    def called(self) -> str:
        """What the update is called in figures."""
        return self.label or self.client


class RoundRecord(BaseModel):
    """One round; index 0 stands for the first models.

    Attributes:
        accuracy: mean test accuracy over the prototypes, in [0, 1]; None without a test set, and where the gate turned
            models away.
        models: the global model files after the round, by prototype (`server` is Fed-ET's larger one).
        published: those of them that this round made.
        outcome: skipped where nothing was published; failed where too few answered and the plan says to fail.
        reason: why nothing was published, or not all.
        participants: who trained, sorted by name.
        state: what the recipe keeps for the next round, by name.
        metrics: the worker's figures; see `worker.pipeline.rounds.fuse_round`.
        seconds: wall-clock time of the devices and of the server, one after the other.
        cost: bytes of its files and seconds by phase; None where nobody counted.
        clock: when its models were there, in seconds of the virtual clock; None without speeds.
    """

    index: int
    accuracy: float | None = None
    models: dict[str, Path]
    published: list[str] = []
    outcome: Literal["published", "skipped", "failed"] = "published"
    reason: str | None = None
    participants: list[Participation] = []
    state: dict[str, Path] = {}
    metrics: dict[str, Any] = {}
    seconds: float = 0.0
    cost: Cost | None = None
    clock: float | None = None

    @property
    def measured(self) -> float | None:
        """The task's main metric on the test set, such as the accuracy; None where that is not there."""
        return measured_of(self.metrics)

    @property
    def ensemble_measured(self) -> float | None:
        """The same of the teachers' ensemble, where the recipe has one."""
        return measured_of(self.metrics.get("ensemble") or {})

    @property
    def average_measured(self) -> float | None:
        """The same of the averages before they are distilled, where the recipe does that."""
        return measured_of(self.metrics.get("average") or {})

    def figure(self, name: str) -> float | None:
        """One of the task's figures on the test set, mean over the prototypes; None where that is not there."""
        told = (self.metrics.get("model") or {}).get("measures") or {}
        found = [float(figures[name]) for figures in told.values() if name in figures]
        return sum(found) / len(found) if found and self.measured is not None else None

    @property
    def ensemble_accuracy(self) -> float | None:
        """Test accuracy of the teachers' ensemble, where the recipe has one."""
        found = (self.metrics.get("ensemble") or {}).get("accuracy")
        return None if found is None else float(found)

    @property
    def client_models(self) -> dict[str, Path]:
        """The clients' files by name; empty once they are removed (`SimulationConfig.keep_updates`)."""
        return {each.client: each.update for each in self.participants if each.update is not None}

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of each global model's file, as the service names its models."""
        return {name: digest_of(path) for name, path in self.models.items()}


class Ending(BaseModel):
    """How a federation ended; a paused one waits in the service for an operator, whom a simulation does not have."""

    state: Literal["finished", "failed", "paused"]
    error: str | None = None
    detail: str | None = None


@dataclass
class History:
    """A simulation's rounds.

    Attributes:
        initial: the first models.
        rounds: the rounds from 1 on.
        generator: files of FedGO's stage: `generator`, `discriminator`, `samples`.
        discriminators: every client's, by name.
        scores: the server sets' scores by each client's discriminator, by name.
        notes: what was left out, taken by default or changed of what was asked for, as a service's creation notes it.
        ending: how it ended; None while it runs.
        seed: the federation's.
        before: what was before the rounds has cost, but for operations.
        sizes: bytes of the first models' files, by name; `generator_sizes` of FedGO's stage's.
        efforts: what each network costs, by name; `generator_efforts` those of FedGO's stage.
        discriminator_samples: of each client that trained a discriminator.
        public_samples: of the set that devices predict on, where they do.
        planned: the configuration by the round from which it holds.
    """

    initial: RoundRecord
    rounds: list[RoundRecord] = field(default_factory=list)
    generator: dict[str, Path] = field(default_factory=dict)
    discriminators: dict[str, Path] = field(default_factory=dict)
    scores: dict[str, Path] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    ending: Ending | None = None
    seed: int = 0
    before: Cost = field(default_factory=Cost)
    sizes: dict[str, int] = field(default_factory=dict)
    efforts: dict[str, Any] = field(default_factory=dict)
    generator_sizes: dict[str, int] = field(default_factory=dict)
    generator_efforts: dict[str, Any] = field(default_factory=dict)
    discriminator_samples: list[int] = field(default_factory=list)
    public_samples: int = 0
    planned: dict[int, FederationConfig] = field(default_factory=dict)

    def plan_of(self, index: int) -> FederationConfig | None:
        """Return the configuration of a round; None where no round was run."""
        known = [first for first in self.planned if first <= index]
        return self.planned[max(known)] if known else None

    @property
    def models(self) -> dict[str, Path]:
        """The newest global models by prototype."""
        return (self.rounds[-1] if self.rounds else self.initial).models

    @property
    def measurements(self) -> list[float]:
        """The task's main metric after each round; rounds without one are left out."""
        return [value for record in self.rounds if (value := record.measured) is not None]

    @property
    def accuracies(self) -> list[float]:
        """Test accuracy after each round, in [0, 1]; rounds without one are left out."""
        return [record.accuracy for record in self.rounds if record.accuracy is not None]


def digest_of(path: Path) -> str:
    """Return a file's digest as the service writes it."""
    with path.open("rb") as file:
        return f"sha256-{hashlib.file_digest(file, 'sha256').hexdigest()}"
