"""The SDK's own device loop with a client that has no network: it hands out assignments and takes in files."""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

from client_sdk import data
from client_sdk.client import Client, Kind
from client_sdk.progress import Progress
from client_sdk.resources import Resources
from client_sdk.runner import DeviceRun
from client_sdk.state import Identity, StateFolder
from client_sdk.training import choose_device
from contract.federation import FederationConfig
from contract.recipes.parts import GeneratorFederated
from contract.recipes.recipe import discriminator_link
from contract.seeds import derive_seed
from contract.tensors import TensorFile, synced_later
from contract.updates import extras
from contract.wire.devices import (
    AssignedRound,
    Assignment,
    Declaration,
    DiscriminatorAssignment,
    DoneAssignment,
    GeneratorRef,
    TrainAssignment,
    TrainGanAssignment,
    UpdateMetadata,
)
from contract.wire.federations import ModelRef
from potstill.simulate import liars
from potstill.simulate.config import SimulatedClient
from potstill.simulate.history import Participation, digest_of
from service.domain.buffered import Work

FEDERATION = "fed_simulation"
Falsify = Callable[[Path], None]
_NEVER = datetime(9999, 12, 31, tzinfo=UTC)


@dataclass(frozen=True)
class LocalRound:
    """What all participants of a round are told: the models by prototype and the state, of which some goes out.

    `turn` counts a device's works from the same model, where rounds do not wait; None where they do.
    """

    index: int
    models: Mapping[str, Path]
    state: Mapping[str, Path]
    folder: Path
    turn: int | None = None


def reference(path: Path) -> ModelRef:
    """Return an assignment's reference to a file; its digest serves as its id."""
    digest = digest_of(path)
    return ModelRef(id=digest, digest=digest, size=path.stat().st_size, url=path.absolute().as_uri())


class LocalClient:
    """Stands where a device has its `Client`: one assignment, and a place for what is delivered.

    How a delivery travels (its URL, what remembers and watches an upload) means nothing here.

    Args:
        assignment: what the device is to do.
        over: what it is told when it has delivered and asks again.
        files: digest -> path of what it may fetch.
        target: where its delivery goes.
        falsify: rewrites what a liar delivers; None for an honest device.
    """

    def __init__(
        self,
        assignment: Assignment,
        over: Assignment,
        files: Mapping[str, Path],
        target: Path,
        falsify: Falsify | None = None,
    ):
        self._next: Assignment = assignment
        self._falsify = falsify
        self._over, self._files, self._target = over, files, target

    def assignment(self, wait: float, *, heartbeats: bool = False) -> Assignment:
        """Return what is to be done."""
        return self._next

    def declare(self, declaration: Declaration) -> None:
        """Take what the device has; the simulation gave it its samples."""

    def download(self, model: ModelRef, target: Path) -> Path:
        """Return the file itself; it is read only."""
        return self._files[model.digest]

    def deliver(self, kind: Kind, url: str, file: str | Path, **_: object) -> None:
        """Take what the device was asked for."""
        self._target.parent.mkdir(parents=True, exist_ok=True)
        part = self._target.with_suffix(".part")
        shutil.copyfile(file, part)
        if self._falsify is not None:
            self._falsify(part)
        os.replace(part, self._target)  # it is there whole or not at all
        self._next = self._over


class Device:
    """One device with its data and its state folder.

    Args:
        client: who it is.
        config: the federation's.
        seed: the federation's.
        folder: for its state.
        device: torch device.

    Raises:
        DatasetError: its data do not fit the task.
        SimulationError: it cannot tell its lie here.
    """

    def __init__(self, client: SimulatedClient, config: FederationConfig, seed: int, folder: Path, device: str):
        self.name = client.name
        self.prototype = client.prototype or config.prototypes[0].name
        self.lie = client.lie
        if self.lie is not None:
            liars.check(self.lie, config)
        shifts = self.lie == "label-shift"
        self.samples = data.load(liars.shifted(client.dataset, config.task) if shifts else client.dataset)
        self.samples.check(config.task)
        self._model, self._config, self._seed = client.model, config, seed
        self._device = choose_device(device)
        self._folder = StateFolder(folder)
        self._tried = client.model is None  # what is built by name needs no trial, what is the user's own needs one

    def replan(self, config: FederationConfig) -> None:
        """Train by another plan from the next round on."""
        self._config = config

    @property
    def label_counts(self) -> list[int] | None:
        """Samples per class [C], where all labels were seen."""
        if self.samples.labels is None or self._config.task.kind != "classification":
            return None
        return [int(n) for n in self.samples.labels.bincount(minlength=self._config.task.num_classes)]

    def train(self, round_: LocalRound, copy: str) -> Participation:
        """Train the round's model `copy` and deliver; a delivery that is there already is not made again."""
        named = self._number if round_.turn is None else f"{self._number}-{round_.index}-{round_.turn}"
        target, work = round_.folder / f"{named}.safetensors", Work(f"round-{round_.index}", round_.turn or 0)
        if not target.exists() or self._folder.pending() is not None:
            beside = extras(round_.state, copy)
            assignment = TrainAssignment(
                **self._common("running"),
                round=AssignedRound(
                    id=str(work),
                    index=round_.index,
                    total=self._config.rounds.total,
                    deadline_at=_NEVER,
                    turn=work.turn,
                ),
                model=reference(round_.models[copy]),
                extras={what: reference(path) for what, path in beside.items()},
                local=self._config.work_of(self._seed, round_.index, self.name, copy),
                evaluate=self._config.rounds.evaluate,
                upload_url="simulation",
            )
            falsify = self._falsify(round_.models[copy], round_.index)
            self._work(assignment, [round_.models[copy], *beside.values()], target, rounds=1, falsify=falsify)
        return _participation(self.name, copy, target)

    def train_gan(self, plan: GeneratorFederated, gan_round: int, gan: Path, target: Path) -> Path:
        """Train the federated generator and its critic for a round, as they were sent; return the file."""
        if not target.exists():
            assignment = TrainGanAssignment(
                **self._common("training_generator"),
                model=reference(gan),
                plan=plan,
                privacy=self._config.local.privacy,
                gan_round=gan_round,
                deadline_at=_NEVER,
                upload_url="simulation",
            )
            self._work(assignment, [gan], target, rounds=None)
        return target

    def train_discriminator(self, generator: Path, input_range: tuple[float, float], target: Path) -> Path:
        """Train the discriminator against the generator's images, once; return its file."""
        if target.exists():
            return target
        stage = self._config.recipe.discriminators
        assert stage is not None
        assignment = DiscriminatorAssignment(
            **self._common("collecting_discriminators"),
            generator=GeneratorRef(
                model=reference(generator),
                architecture=stage.generator.architecture,
                options=stage.generator.options,
                input_range=input_range,
            ),
            plan=stage.plan,
            privacy=self._config.local.privacy,
            link=discriminator_link(self._config.recipe),
            upload_url="simulation",
        )
        falsify = liars.assure if self.lie == "discriminator" else None
        self._work(assignment, [generator], target, rounds=None, falsify=falsify)
        return target

    def _falsify(self, base: Path, index: int) -> Falsify | None:
        if self.lie is None:
            return None
        seed = derive_seed(self._seed, "simulate", "lie", self.name, index)
        return partial(liars.falsify, base=base, lie=self.lie, seed=seed)

    @property
    def _number(self) -> str:
        return self._folder.path.name

    def _work(
        self,
        assignment: Assignment,
        files: list[Path],
        target: Path,
        rounds: int | None,
        falsify: Falsify | None = None,
    ) -> None:
        over = DoneAssignment(**self._common("finished"))
        client = LocalClient(assignment, over, {digest_of(path): path for path in files}, target, falsify)
        with self._folder.locked(), synced_later():  # a power cut may cost a simulation; each device's fsyncs cost more
            if self._folder.identity() is None:
                self._folder.remember(
                    Identity(url="simulation", federation=FEDERATION, name=self.name, key="", client_id=self.name)
                )
            resources = Resources(cast(Client, client), self._folder, self.samples, self._device)
            DeviceRun(resources, Progress(False), self._model, tried=self._tried).run(rounds, self.name)
            self._tried = True

    def _common(self, state: str) -> dict[str, Any]:
        return {
            "federation_id": FEDERATION,
            "federation_name": "simulation",
            "state": state,
            "task": self._config.task,
            "prototype": self._config.prototype(self.prototype),
            "seed": self._seed,
            "client_name": self.name,
        }


def _participation(name: str, prototype: str, update: Path) -> Participation:
    with TensorFile(update) as file:
        parsed = UpdateMetadata.read(file.header.metadata)
    metrics = parsed.metrics.model_dump(exclude={"seconds"}) if parsed.metrics else {}
    return Participation(
        client=name, prototype=prototype, num_samples=parsed.num_samples, control_reset=parsed.control_reset,
        update=update, **metrics,
    )  # fmt: skip
