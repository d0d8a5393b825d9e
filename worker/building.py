"""What jobs are told: a federation's configuration and the files that are there become a job's specification.

The service's workers, simulations and experiments differ in where they have the files from; what a job is told of
them is decided here.
"""

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.choices import walk
from contract.federation import SERVER, FederationConfig
from contract.networks.document import PREFIX
from contract.partition import SENT_BASE
from contract.recipes.parts import Discriminators, GeneratorImported
from contract.recipes.recipe import Recipe
from contract.tensors import TensorFile
from contract.updates import SEND
from contract.wire.ensembles import EnsembleDocument, Member, Network, PredictionDocument
from worker.masks import SecureGroup, SecureSum
from worker.specs import (
    Datasets,
    DrawnSpec,
    EnsembleSpec,
    GeneratorSpec,
    InitializeSpec,
    JobSpec,
    LabelsSpec,
    MemberSpec,
    NetworkFiles,
    NetworkRef,
    PackagedChoice,
    PredictSpec,
    PrototypeSpec,
    RegisteredSpec,
    RoundSpec,
    ScorerSpec,
    ScoreSpec,
    UpdateSpec,
)


@dataclass(frozen=True)
class Drawing:
    """What draws samples and scores them: the generator's file, its range of data values, discriminators by client."""

    generator: Path
    input_range: tuple[float, float]
    discriminators: Mapping[str, Path]


@dataclass(frozen=True)
class Builder:
    """The jobs of one federation.

    Attributes:
        config: the federation's.
        seed: the federation's.
        datasets: the server's sets.
        samples: what the generator has drawn, where the recipe distils on that.
    """

    config: FederationConfig
    seed: int
    datasets: Datasets
    samples: Path | None = None

    def initialize(self, weights: Mapping[str, Path | None], folder: Path) -> InitializeSpec:
        """Return the first job; `weights` are of models to start from, by name."""
        server_model, prototypes = self._models(weights, {})
        parts = {each.name: each.parts for each in self.config.published if each.parted}
        return InitializeSpec(
            seed=self.seed,
            task=self.config.task,
            server_model=server_model,
            prototypes=[each.model_copy(update={"parts": parts.get(each.name)}) for each in prototypes],
            public=self.config.public,
            generator=self._joint_generator,
            datasets=self.datasets,
            packaged=[
                PackagedChoice(slot=each.slot, kind=each.kind, package=each.package)
                for each in walk([self.config.recipe, self.config.local, self.config.rounds])
                if each.package
            ],
            output_dir=folder,
        )

    def generator(
        self,
        imported: Path | None,
        folder: Path,
        gan_round: int = 0,
        gan: Path | None = None,
        updates: Sequence[UpdateSpec] = (),
    ) -> GeneratorSpec:
        """Return the job that makes the generator, or one round of its training by the clients.

        Args:
            imported: weights of the imported generator; read where the recipe imports one.
            folder: where the job writes.
            gan_round: the round that is averaged; 0 to begin.
            gan: what the clients were sent.
            updates: what they sent back.
        """
        stage = self._stage
        distil = self.config.recipe.distil
        discriminator = NetworkRef(architecture=stage.plan.architecture, options=stage.plan.options)
        return GeneratorSpec(
            seed=self.seed,
            task=self.config.task,
            generator=stage.generator,
            weights=imported if isinstance(stage.generator, GeneratorImported) else None,
            discriminator=discriminator if self.config.recipe.reads_scores else None,
            unlabeled=self.datasets.unlabeled,
            data=None if distil is None else distil.data,
            gan_round=gan_round,
            gan=gan,
            updates=list(updates),
            output_dir=folder,
        )

    def score(self, discriminators: Mapping[str, Path], input_range: tuple[float, float], folder: Path) -> ScoreSpec:
        """Return the job that scores the server sets; `input_range` is the generator's."""
        plan = self._stage.plan
        return ScoreSpec(
            task=self.config.task,
            architecture=plan.architecture,
            options=plan.options,
            discriminators=dict(discriminators),
            input_range=input_range,
            datasets=self._read,
            output_dir=folder,
        )

    def round(
        self,
        index: int,
        models: Mapping[str, Path],
        updates: Sequence[UpdateSpec],
        folder: Path,
        *,
        clients_total: Mapping[str, int],
        scores: Mapping[str, Path],
        state: Mapping[str, Path],
        min_updates: int | None = None,
        unmasking: Mapping[str, SecureGroup] | None = None,
        drawing: Drawing | None = None,
        registered: Mapping[str, RegisteredSpec] | None = None,
    ) -> RoundSpec:
        """Return the job that fuses a round.

        Args:
            index: the round's, 1 for the first.
            models: what the round started from, by name, the server's model too.
            updates: those that count.
            folder: where the job writes.
            clients_total: prototype -> N, clients of it that are enrolled.
            scores: what is there, by client; of those who answered the ones that the recipe reads are taken.
            state: what the recipe keeps between rounds, by name.
            min_updates: fewer are not fused; default: the plan's, or as many as an operator has closed the round with.
            drawing: what there is, where every round draws samples of its own.
            unmasking: of a secure round, what unmasks its sums, by model; None where its updates are not masked.
            registered: who is enrolled, or is fused here, by name; read where the recipe counts absent clients.
        """
        config, answered, (server, prototypes) = self.config, {u.client for u in updates}, self._models(models, state)
        spec = RoundSpec(
            seed=self.seed,
            round_index=index,
            rounds_total=config.rounds.total,
            task=config.task,
            recipe=config.recipe,
            local=config.local,
            on_bad_teacher=config.rounds.on_bad_teacher,
            min_updates=max(1, min(min_updates or config.rounds.least, len(updates))),
            max_distance=config.rounds.max_distance,
            explain=config.rounds.explain,
            gate=config.rounds.gate if config.rounds.runs_gate else None,
            metrics=config.rounds.metrics,
            staleness=config.rounds.counts_ages,
            hand_over=config.runs_ahead and index < config.rounds.total,
            keep_ensemble=config.rounds.keep_ensemble,
            secure=None if config.rounds.secure is None else SecureSum(plan=config.rounds.secure, groups=unmasking),
            clients_total=dict(clients_total),
            server_model=server,
            prototypes=prototypes,
            updates=list(updates),
            datasets=self._read,
            scores={k: path for k, path in scores.items() if k in answered} if config.recipe.reads_scores else {},
            drawn=None if drawing is None or not config.recipe.draws_anew else self._drawn(drawing, answered),
            state=dict(state),
            output_dir=folder,
        )
        return self._counting(spec, registered or {}) if config.recipe.counts_absent else spec

    def _counting(self, spec: RoundSpec, registered: Mapping[str, RegisteredSpec]) -> RoundSpec:
        """Tell a round who is registered, and give it teachers whose memory is within its bound."""
        recipe, said = self._fitting(spec.recipe, len(registered or spec.updates))
        return spec.model_copy(update={"recipe": recipe, "registered": dict(registered), "exchanged": said})

    def _fitting(self, recipe: Recipe, clients: int) -> tuple[Recipe, dict[str, Any]]:
        assert recipe.distil is not None
        members, task, sets = recipe.distil.members, self.config.task, self._read
        if not members.counts_absent:
            return recipe, {}
        values = math.prod(task.output_shape) * (2 if task.kind == "multilabel" else 1)  # as `losses.class_rows`
        needed = 4 * clients * values * sum(_samples(path) for path in (sets.unlabeled, sets.test))
        other = members.lighter(needed)
        if other is None:
            return recipe, {}
        distil = recipe.distil.model_copy(update={"members": other})
        said = {"kind": other.kind, "instead_of": members.kind, "needed_bytes": needed, "clients": clients}
        return recipe.model_copy(update={"distil": distil}), said

    def _drawn(self, drawing: Drawing, answered: Set[str]) -> DrawnSpec:
        stage, scorer = self._stage, None
        if self.config.recipe.reads_scores:
            plan, span = stage.plan, drawing.input_range
            scorer = ScorerSpec(architecture=plan.architecture, options=plan.options, input_range=span)
        generator = stage.generator
        network = NetworkRef(architecture=generator.architecture, options=generator.options, weights=drawing.generator)
        read = drawing.discriminators if scorer is not None else {}
        return DrawnSpec(
            generator=network,
            input_range=drawing.input_range,
            scorer=scorer,
            discriminators={name: path for name, path in read.items() if name in answered},
        )

    @property
    def _joint_generator(self) -> NetworkRef | None:
        networks = self.config.local.objective.networks
        found = [NetworkRef(architecture=name, options=given) for role, name, given in networks if role == "generator"]
        return found[0] if found else None

    @property
    def _stage(self) -> Discriminators:
        stage = self.config.recipe.discriminators
        assert stage is not None
        return stage

    @property
    def _read(self) -> Datasets:
        """The server data of scores and rounds: drawn samples take the place of the unlabelled set."""
        return self.datasets if self.samples is None else self.datasets.model_copy(update={"unlabeled": self.samples})

    def _models(
        self, weights: Mapping[str, Path | None], state: Mapping[str, Path]
    ) -> tuple[PrototypeSpec | None, list[PrototypeSpec]]:
        """Return the server's model and what clients train, with their weights and, of parted ones, their base."""
        made = {}
        for each in self.config.published:
            network = NetworkRef(
                architecture=each.architecture,
                options=each.options,
                weights=weights.get(each.name),
                base=state.get(SENT_BASE.named(each.name)),
            )
            made[each.name] = PrototypeSpec(name=each.name, network=network)
        server_model = made.pop(SERVER, None) if self.config.server_model else None
        return server_model, list(made.values())


def _samples(path: Path | None) -> int:
    """Return how many samples a set has; none, where there is no such set."""
    if path is None:
        return 0
    with TensorFile(path) as file:
        return file.info("inputs").shape[0]


def shard(whole: RoundSpec, teachers: Set[str], part: int, parts: int, folder: Path) -> LabelsSpec:
    """Return the job that asks some of a round's teachers; it is told of no others.

    Args:
        whole: the round's job.
        teachers: clients' names or, of a recipe of groups, names of models that are kept from round to round.
        part: which part of every set.
        parts: of so many.
        folder: where the job writes.
    """
    distil = whole.recipe.distil
    grouped = distil is not None and distil.members.are_groups
    sets = whole.datasets.model_copy(update={"validation": None})
    updates = [each.model_copy(update={"begun": None}) for each in whole.updates if each.client in teachers]
    changed = {
        "updates": [] if grouped else updates,
        "state": {
            name: path for name, path in whole.state.items() if name.startswith(SEND) or (grouped and name in teachers)
        },
        "datasets": sets,
        "scores": {},
        "registered": {},
        "drawn": whole.drawn and whole.drawn.model_copy(update={"scorer": None, "discriminators": {}}),
        "staleness": None,
        "server_model": None,
        "gate": None,
        "secure": None,
        "shards": [],
        "output_dir": folder,
    }
    return LabelsSpec(round=whole.model_copy(update=changed), part=part, parts=parts, output_dir=folder)


def documents_of(spec: JobSpec) -> list[str]:
    """Return the architectures that a job names and that are documents."""
    found: set[str] = set()
    _look(spec.model_dump(exclude={"networks"}), found)
    return sorted(found)


def _look(tree: Any, found: set[str]) -> None:
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if isinstance(value, dict | list | tuple):
            _look(value, found)
        elif isinstance(value, str) and str(key).endswith("architecture") and value.startswith(PREFIX):
            found.add(value)


def with_networks(spec: JobSpec, files_of: Callable[[str], NetworkFiles]) -> JobSpec:
    """Return a job that is told where the documents are of the networks that it names.

    Args:
        spec: the job.
        files_of: where the files of an architecture are.
    """
    return spec.model_copy(update={"networks": {name: files_of(name) for name in documents_of(spec)}})


def predict(document: PredictionDocument, dataset: Path, folder: Path, file_of: Callable[[str], Path]) -> PredictSpec:
    """Return the job that predicts a data set.

    Args:
        document: with what.
        dataset: the set's file.
        folder: where the job writes.
        file_of: where the file of a digest is.
    """
    model, ensemble = document.model, document.ensemble
    return PredictSpec(
        task=document.task,
        dataset=dataset,
        network=None if model is None else _network(model, file_of),
        ensemble=None if ensemble is None else _ensemble(ensemble, file_of),
        output_dir=folder,
    )


def _network(network: Network, file_of: Callable[[str], Path]) -> NetworkRef:
    base = None if network.base is None else file_of(network.base)
    weights = file_of(network.digest)
    return NetworkRef(architecture=network.architecture, options=network.options, weights=weights, base=base)


def _ensemble(document: EnsembleDocument, file_of: Callable[[str], Path]) -> EnsembleSpec:
    scorer = document.scorer
    return EnsembleSpec(
        members=[_member(member, file_of) for member in document.members],
        weigh=document.weigh,
        combine=document.combine,
        scorer=None if scorer is None else ScorerSpec(**scorer.model_dump()),
    )


def _member(member: Member, file_of: Callable[[str], Path]) -> MemberSpec:
    return MemberSpec(
        name=member.name,
        network=_network(member.network, file_of),
        num_samples=member.num_samples,
        is_group=member.group,
        counted=member.counted,
        discriminator=None if member.discriminator is None else file_of(member.discriminator),
    )
