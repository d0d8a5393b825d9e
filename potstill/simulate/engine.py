"""One federation in one process: what the service decides, what its worker makes, what its devices train.

Rounds equal the service's bit for bit: the same functions draw who takes part, who is in which group and which seed
is whose; `worker.pipeline.run` and the SDK's `DeviceRun` do the work. What is done is on the disk after each step, so
that a simulation that was stopped goes on with the same result.
"""

import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from client_sdk import named
from contract.federation import FederationConfig
from contract.local import SENT_PUBLIC
from contract.recipes.parts import Discriminators, GeneratorFedGan, GeneratorImported
from contract.tensors import TensorFile
from contract.wire.report import Bytes
from potstill.simulate import costs, gathering, server_sets
from potstill.simulate.central import Pooled
from potstill.simulate.config import SimulationConfig, SimulationError, planned, resolve
from potstill.simulate.crew import Crew, Team
from potstill.simulate.devices import Device, LocalRound
from potstill.simulate.fleet import Fleet
from potstill.simulate.gathering import Collected
from potstill.simulate.hands import Task
from potstill.simulate.history import History, Participation, RoundRecord
from potstill.simulate.jobs import Done, Jobs, OnProgress, threads
from potstill.simulate.lifecycle import Lifecycle, RoundDone
from potstill.simulate.speeds import Pace, Speeds, waited_for
from service.domain import secure, selection
from worker.building import Builder, Drawing
from worker.specs import Begun, GeneratorSpec, JobResult, RegisteredSpec, RoundSpec, UpdateSpec


class Simulation:
    """One federation.

    Args:
        config: what to run.
        on_progress: called with (what, step, of) as devices and jobs go on.
        crew: who trains devices; by default this process.

    Raises:
        SimulationError: the configuration is impossible, or the folder holds another simulation.
        DatasetError: a client's data do not fit the task.
    """

    def __init__(self, config: SimulationConfig, on_progress: OnProgress | None = None, crew: Crew | None = None):
        self.config = resolve(config)
        self._planned = planned(config, self.config)
        self._now = self.config
        self.seed = config.federation.seed
        self._given = config
        self._folder = config.folder.absolute()
        self._report: OnProgress = on_progress or (lambda what, step, of: None)
        device = config.device.partition(",")[0]
        self._jobs = Jobs(self._folder, device, self._report, self.config.rounds.job_seconds)
        ordered = sorted(config.clients, key=lambda client: client.name)
        self._folder.mkdir(parents=True, exist_ok=True)
        at = [(client, self._folder / "devices" / f"{number:04}") for number, client in enumerate(ordered)]
        self._devices = {each.name: Device(each, self.config, self.seed, home, device) for each, home in at}
        self._crew = crew or Crew()
        self._team = Team(self._devices, at, self._planned, self.seed, self._folder)
        self._claim_folder()
        self._build = Builder(
            self.config, self.seed, server_sets.paths(config.server, self.config, self._folder / "data")
        )
        self._drawing: Drawing | None = None
        speeds = config.speeds or (Speeds() if self.config.rounds.buffering is not None else None)
        self._pace = None if speeds is None else Pace(speeds, self.seed)
        models = {name: device.prototype for name, device in self._devices.items()}
        self._fleet = Fleet(self.config.rounds, self._pace, models, self._trained) if self._pace is not None else None

    def run(self, on_round: Callable[[RoundRecord], None] | None = None) -> History:
        """Run to the end; rounds that are done already are read from the folder.

        Args:
            on_round: called after each round that is run now, while its clients' models are still there.

        Raises:
            JobFailure: the service would have failed this job; its code is stable.
            TrainingError: a client's training is not finite.
        """
        with threads(self._given.threads), self._team:
            history, begun = self._prepared()
            history.planned, self.history = self._planned, history
            lifecycle = Lifecycle(self.config, history.initial, begun.note["state"])
            while (ending := lifecycle.ending()) is None:
                record, fresh = self._round(lifecycle, history)
                history.rounds.append(record)
                if fresh and on_round is not None:
                    on_round(record)
                self._tidy(lifecycle, history)  # also of a round that is read: the process may have been stopped before
                self._replan(lifecycle)
        history.ending = ending
        return history

    def _replan(self, lifecycle: Lifecycle) -> None:
        """Change the plan, where the round that comes has another."""
        plan = self._planned.get(lifecycle.record.index + 1)
        if plan is not None:
            self._now, self._build = plan, replace(self._build, config=plan)
            self._team.since = lifecycle.record.index + 1
            lifecycle.replan(plan)
            self._jobs.allow(plan.rounds.job_seconds)
            if self._fleet is not None:
                self._fleet.plan = plan.rounds
            for device in self._devices.values():
                device.replan(plan)

    # ------------------------------------------------------------------------------------------- before the rounds
    def _prepared(self) -> tuple[History, Done]:
        """Make the first models and, where the recipe reads discriminators, all that they need."""
        given = self._given.initial_models
        begun = self._jobs.run("initialize", lambda folder: self._build.initialize(given, folder))
        history = History(_first(begun.result), notes=self.config.notes, seed=self.seed)
        history.sizes, history.efforts = begun.note.get("sizes", {}), begun.result.metrics.get("networks", {})
        history.before = costs.job_cost("initialize", begun.note)
        history.public_samples = _public_samples(begun.result)
        if self.config.recipe.discriminators is not None:
            self._discriminate(self.config.recipe.discriminators, history)
        return history, begun

    def _discriminate(self, stage: Discriminators, history: History) -> None:
        """Make the generator and, where it is read, every client's discriminator and its scores of the server sets."""
        if isinstance(stage.generator, GeneratorFedGan):
            done = self._federated(stage.generator, history)
        else:
            done = self._jobs.run("generator", self._generator)
            history.before += costs.job_cost("generator", done.note)
        made = done.result
        history.generator, history.generator_efforts = dict(made.models), made.metrics.get("networks", {})
        history.generator_sizes = done.note.get("sizes", {})
        if "samples" in made.models:
            self._build = replace(self._build, samples=made.models["samples"])
        low, high = made.metrics["input_range"]
        self._drawing = Drawing(made.models["generator"], (low, high), history.discriminators)
        if not self.config.recipe.reads_scores:
            return
        targets = [self._folder / "discriminators" / f"{step:04}.safetensors" for step in range(len(self._devices))]
        told = [(made.models["generator"], (low, high), target) for target in targets]
        tasks = [Task(name, "train_discriminator", each) for name, each in zip(self._devices, told, strict=True)]
        history.discriminators.update(zip(self._devices, self._do("discriminators", tasks), strict=True))
        found = history.discriminators
        scored = self._jobs.run("score", lambda folder: self._build.score(found, (low, high), folder))
        down = len(found) * history.generator_sizes.get("generator", 0)
        sent = Bytes(down=down, up=sum(path.stat().st_size for path in found.values()))
        history.before += costs.job_cost("score", scored.note, sent)
        history.discriminator_samples = [len(self._devices[name].samples) for name in found]
        history.scores = dict(scored.result.models)

    def _federated(self, plan: GeneratorFedGan, history: History) -> Done:
        """Let all clients train the generator for its rounds (FedGO, G3); return the last job."""
        made = self._jobs.run("gan/00000", self._generator)
        history.before += costs.job_cost("generator", made.note)
        for index in range(1, plan.rounds + 1):
            name, gan = f"gan/{index:05}", made.result.models["gan"]
            done = self._jobs.done(name)
            if done is None:
                updates = self._train_gan(plan, index, gan, self._folder / name / "updates")
                up = sum(each.weights.stat().st_size for each in updates)
                note = {"files": {"down": len(updates) * gan.stat().st_size, "up": up}}
                done = self._jobs.run(name, partial(self._generator, gan_round=index, gan=gan, updates=updates), note)
            shutil.rmtree(self._folder / name / "updates", ignore_errors=True)
            history.before += costs.job_cost("generator", done.note, Bytes(**done.note.get("files", {})))
            made = done
        return made

    def _train_gan(self, plan: GeneratorFedGan, index: int, gan: Path, folder: Path) -> list[UpdateSpec]:
        tasks = [
            Task(name, "train_gan", (plan, index, gan, folder / f"{step:04}.safetensors"))
            for step, name in enumerate(self._devices)
        ]
        files = self._do(f"generator {index}/{plan.rounds}", tasks, plan.rounds - index)
        return [
            UpdateSpec(client=name, prototype="gan", weights=file, num_samples=len(device.samples))
            for (name, device), file in zip(self._devices.items(), files, strict=True)
        ]

    def _do(self, what: str, tasks: Sequence[Task], again: int = 0) -> list[Any]:
        """Have devices do tasks; return what came of each. `again`: how often as many are still to come."""
        return self._crew.do(self._team, tasks, again, lambda step: self._report(what, step, len(tasks)))

    def _generator(self, folder: Path, **given: Any) -> GeneratorSpec:
        stage = self.config.recipe.discriminators
        if stage is not None and isinstance(stage.generator, GeneratorImported) and self._given.generator is None:
            raise SimulationError("generator: the recipe imports one; give its weights")
        return self._build.generator(self._given.generator, folder, **given)

    # ---------------------------------------------------------------------------------------------------- one round
    def participants(self, index: int, eligible: list[str]) -> dict[str, str]:
        """Return who is asked in a round, by name, and the model that each trains: a prototype or a group's copy."""
        sizes = {name: len(self._devices[name].samples) for name in eligible}
        asked = selection.choose(self._now.rounds, self.seed, index, sizes, self._now.recipe.selection)
        prototypes = {name: self._devices[name].prototype for name in asked}
        return dict(sorted(selection.deal(self._now, self.seed, index, prototypes).items()))

    def _eligible(self, history: History) -> list[str]:
        reads = self.config.recipe.reads_scores
        return [name for name in self._devices if name in history.scores or not reads]

    def _trained(self, name: str, index: int) -> int:
        """Return the samples that a device trains on in a round, in all of its epochs."""
        device = self._devices[name]
        return len(device.samples) * self._now.work_of(self.seed, index, name, device.prototype).epochs

    def _round(self, lifecycle: Lifecycle, history: History) -> tuple[RoundRecord, bool]:
        """Run a round, or read it; return its record and whether it was run now."""
        before, eligible = lifecycle.record, self._eligible(history)
        name = f"rounds/{before.index + 1:05}"
        if len(eligible) < lifecycle.wanted:
            ready = f"{len(eligible)} can take part"
            raise SimulationError(f"round {before.index + 1}: it opens with {lifecycle.wanted} clients, and {ready}")
        go = self._collected if self._now.rounds.buffering is None else self._buffered
        collected = go(lifecycle, history, eligible, self._folder / name / "updates")
        done = self._jobs.done(name)
        fresh = done is None
        if done is None:
            started = time.monotonic()
            participants = collected.train()
            seconds = time.monotonic() - started
            sent = costs.sent([history.initial, *history.rounds], participants).model_dump()
            noted = [self._noted(part) for part in participants]
            note = {"participants": noted, "device_seconds": seconds, "files": sent}
            if collected.closing.action == "aggregate":
                done = self._jobs.run(name, lambda folder: self._fuse(folder, before, participants, history), note)
            else:
                done = self._jobs.keep(name, JobResult(models={}), note | {"job_seconds": 0.0})
        participants = [self._known(part) for part in done.note["participants"]]
        seconds = done.note["device_seconds"] + done.note["job_seconds"]
        result = done.result if collected.closing.action == "aggregate" else None
        cost = costs.round_cost(done.note, done.result.metrics)
        told = RoundDone(participants, result, done.note["state"], seconds, cost, collected.clock)
        return lifecycle.accept(told, collected.closing), fresh

    def _collected(self, lifecycle: Lifecycle, history: History, eligible: list[str], folder: Path) -> Collected:
        """Return a round that waits for those whom it asks."""
        before, plan, clock = lifecycle.record, self._now.rounds, None
        asked = told = self.participants(before.index + 1, eligible)
        if self._pace is not None:
            samples = {name: self._trained(name, before.index + 1) for name in told}
            answers = waited_for(self._pace, plan, before.index + 1, samples, selection.needed(plan, len(eligible)))
            asked = {name: told[name] for name in sorted(answers.names)}
            clock = (before.clock or 0.0) + answers.seconds + self._pace.speeds.fuse_seconds
        closing = lifecycle.closing(len(told), len(eligible), len(asked))
        if plan.secure is not None:
            asked = secure.in_large_groups(asked, plan.secure)
            closing = secure.too_few(len(told), "keys", plan.least) if len(asked) < plan.least else closing
        return Collected(lambda: self._train(asked, before, folder), closing, clock)

    def _buffered(self, lifecycle: Lifecycle, history: History, _: list[str], folder: Path) -> Collected:
        """Return a buffer of updates that began from models of several ages."""
        assert self._fleet is not None
        self._fleet.published(lifecycle.record.index, lifecycle.record.published)
        left = self._now.rounds.total - lifecycle.record.index - 1
        return gathering.buffered(self._fleet, history, folder, lambda tasks: self._do("train", tasks, left))

    def _noted(self, part: Participation) -> dict[str, Any]:
        assert part.update is not None
        return part.model_dump() | {"update": str(part.update.relative_to(self._folder))}

    def _known(self, noted: dict[str, Any]) -> Participation:
        path = self._folder / noted["update"]
        return Participation.model_validate(noted | {"update": path if path.exists() else None})

    def _train(self, asked: Mapping[str, str], before: RoundRecord, folder: Path) -> list[Participation]:
        round_ = LocalRound(before.index + 1, before.models, before.state, folder)
        tasks = [Task(name, "train", (round_, copy)) for name, copy in asked.items()]
        return self._do("train", tasks, self._now.rounds.total - round_.index)

    def _fuse(
        self, folder: Path, before: RoundRecord, participants: list[Participation], history: History
    ) -> RoundSpec:
        return self._build.round(
            before.index + 1,
            before.models,
            [self._update(part, before, history) for part in participants],
            folder,
            clients_total=Counter(device.prototype for device in self._devices.values()),
            scores=gathering.called(history.scores, participants),
            state=before.state,
            drawing=self._drawing
            and replace(self._drawing, discriminators=gathering.called(self._drawing.discriminators, participants)),
            registered={
                name: RegisteredSpec(
                    prototype=device.prototype, num_samples=len(device.samples), scores=history.scores.get(name)
                )
                for name, device in self._devices.items()
            },
        )

    def _update(self, part: Participation, before: RoundRecord, history: History) -> UpdateSpec:
        assert part.update is not None
        base = [history.initial, *history.rounds][(part.begun or before.index + 1) - 1].models[part.prototype]
        old = base != before.models[part.prototype]
        return UpdateSpec(
            client=part.called,
            prototype=part.prototype,
            weights=part.update,
            num_samples=part.num_samples,
            label_counts=self._devices[part.client].label_counts,
            control_reset=part.control_reset,
            begun=Begun(base=base, staleness=part.staleness) if old else None,
        )

    # -------------------------------------------------------------------------------------------------- the folder
    def _tidy(self, lifecycle: Lifecycle, history: History) -> None:
        """Remove what nobody reads any more: the round's updates, and the files that the lifecycle no longer names."""
        rounds = self._folder / "rounds"
        if not self._given.keep_updates:
            shutil.rmtree(rounds / f"{lifecycle.record.index:05}" / "updates", ignore_errors=True)
            for part in lifecycle.record.participants:
                part.update = None
        named = {path.absolute() for path in lifecycle.files(self._given.keep_models)}
        if self._fleet is not None and self._now.rounds.buffering is not None:
            named |= gathering.begun_from(self._fleet, history)
        for index in range(1, lifecycle.record.index + 1):
            for path in (rounds / f"{index:05}").glob("job/*"):
                if path.absolute() not in named and path.is_file():
                    path.unlink()

    def _claim_folder(self) -> None:
        """Note whose folder this is.

        Raises:
            SimulationError: it holds another simulation.
        """
        mark = {"simulation": self._fingerprint(), "server": server_sets.fingerprint(self._given.server, self.config)}
        path = self._folder / "simulation.json"
        if path.exists():
            known = json.loads(path.read_text(encoding="utf-8"))
            if known != {name: mark[name] for name in known}:  # older ones do not know the server's data
                raise SimulationError(
                    f"{self._folder}: holds a simulation with other data or settings; choose another folder"
                )
            return
        if (self._folder / "initialize").exists():
            raise SimulationError(f"{self._folder}: is no simulation's folder; choose another")
        path.write_text(json.dumps(mark), encoding="utf-8")

    def _fingerprint(self) -> str:
        digest = hashlib.sha256(_canonical(self.config, self.seed).encode())
        for index, plan in list(self._planned.items())[1:]:
            digest.update(f"\0{index}\0{_canonical(plan, self.seed)}".encode())
        for name, device in self._devices.items():
            digest.update(f"\0{name}\0{device.prototype}\0{len(device.samples)}\0".encode())
            if self._given.speeds is not None and name == min(self._devices):
                digest.update(self._given.speeds.model_dump_json().encode())
            if device.lie is not None:
                digest.update(f"lie\0{device.lie}\0".encode())
            inputs = device.samples.inputs
            for values in (None if inputs is None else named.one(inputs, "a simulation"), device.samples.labels):
                if values is not None:
                    digest.update(values.numpy().data)
            if isinstance(device.samples, Pooled):
                digest.update(f"\0{device.samples.count}".encode())
        return digest.hexdigest()


def _canonical(config: FederationConfig, seed: int) -> str:
    """Return the configuration as text; the number of rounds is part of it, since learning rates may fall with it."""
    return json.dumps([config.model_dump(mode="json", exclude={"notes"}), seed], sort_keys=True)


def _public_samples(result: JobResult) -> int:
    """Return the size of the set whose inputs devices are sent, where they are (DS-FL)."""
    path = (result.state or {}).get(SENT_PUBLIC.named())
    if path is None or not path.exists():
        return 0
    with TensorFile(path) as file:
        return file.header.tensors["inputs"].shape[0]


def _first(result: JobResult) -> RoundRecord:
    return RoundRecord(
        index=0,
        accuracy=result.metrics.get("accuracy"),
        models=result.models,
        published=sorted(result.models),
        state=dict(result.state or {}),
        metrics=result.metrics,
    )
