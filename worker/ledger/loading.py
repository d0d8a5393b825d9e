"""What a job needs: rows become its specification, with paths of blobs."""

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.federation import SERVER, FederationConfig
from contract.recipes.parts import GeneratorFedGan, GeneratorImported
from contract.wire.federations import Prototype
from service.infra.blobs import BlobCache
from service.operations.progress import reading
from service.persistence.tables import (
    ClientRow,
    DatasetRow,
    DiscriminatorRow,
    FederationRow,
    ModelRow,
    ParticipantRow,
    RoundRow,
    UpdateRow,
)
from worker.specs import (
    Datasets,
    GeneratorSpec,
    InitializeSpec,
    JobFailure,
    JobSpec,
    NetworkRef,
    PrototypeSpec,
    RoundSpec,
    ScoreSpec,
    UpdateSpec,
)


@dataclass(frozen=True)
class Claimed:
    """A job that this worker holds, as long as `fence` is the newest."""

    id: str
    kind: str
    fence: int
    attempt: int
    federation_id: str
    round_id: str | None


class Loader:
    """Reads from the database what a job needs, and where its files are."""

    def __init__(self, cache: BlobCache):
        self._cache = cache

    def load(self, session: Session, job: Claimed, folder: Path) -> JobSpec:
        """Return everything the job needs; what it makes goes into `folder`."""
        federation = session.get_one(FederationRow, job.federation_id)
        config = reading.config_of(federation)
        if job.kind == "initialize":
            return self._initialize(session, federation, config, folder)
        if job.kind == "generator":
            return self._generator(session, federation, config, folder)
        if job.kind == "score":
            return self._score(session, federation, config, folder)
        return self._round(session, federation, config, session.get_one(RoundRow, job.round_id), folder)

    def _datasets(self, session: Session, config: FederationConfig) -> Datasets:
        paths = {}
        for role, id_ in config.datasets.model_dump().items():
            if id_ is not None:
                row = session.get(DatasetRow, id_)
                if row is None:
                    raise JobFailure("bad_option", f"the {role} data set was deleted; create the federation again")
                paths[role] = self._cache.path(row.digest)
        return Datasets(**paths)

    def _weights(self, session: Session, model_id: str | None) -> Path | None:
        return None if model_id is None else self._cache.path(session.get_one(ModelRow, model_id).digest)

    def _prototype(self, session: Session, prototype: Prototype, model_id: str | None) -> PrototypeSpec:
        network = NetworkRef(
            architecture=prototype.architecture,
            options=prototype.options,
            weights=self._weights(session, model_id),
        )
        return PrototypeSpec(name=prototype.name, network=network)

    def _initialize(
        self, session: Session, federation: FederationRow, config: FederationConfig, folder: Path
    ) -> InitializeSpec:
        made = {p.name: self._prototype(session, p, p.initial_model) for p in config.published}
        return InitializeSpec(
            seed=federation.seed,
            task=config.task,
            server_model=made.pop(SERVER, None) if config.server_model else None,
            prototypes=list(made.values()),
            public=config.public,
            datasets=self._datasets(session, config),
            output_dir=folder,
        )

    def _generator(
        self, session: Session, federation: FederationRow, config: FederationConfig, folder: Path
    ) -> GeneratorSpec:
        stage = config.recipe.discriminators
        assert stage is not None
        imported = stage.generator.model if isinstance(stage.generator, GeneratorImported) else None
        federated = isinstance(stage.generator, GeneratorFedGan) and federation.gan_round > 0
        current = reading.current_models(session, federation.id)
        return GeneratorSpec(
            seed=federation.seed,
            task=config.task,
            generator=stage.generator,
            weights=self._weights(session, imported),
            discriminator=NetworkRef(architecture=stage.plan.architecture, options=stage.plan.options),
            unlabeled=self._datasets(session, config).unlabeled,
            data=config.recipe.distil.data if config.recipe.distil else None,
            gan_round=federation.gan_round,
            gan=self._weights(session, current[reading.GAN]) if federated else None,
            updates=self._gan_updates(session, federation) if federated else [],
            output_dir=folder,
        )

    def _gan_updates(self, session: Session, federation: FederationRow) -> list[UpdateSpec]:
        return [
            UpdateSpec(
                client=client.name,
                prototype=reading.GAN,
                weights=self._cache.path(row.digest),
                num_samples=row.num_samples,
            )
            for client, row in reading.gan_updates(session, federation, federation.gan_round)
        ]

    def _score(self, session: Session, federation: FederationRow, config: FederationConfig, folder: Path) -> ScoreSpec:
        stage = config.recipe.discriminators
        assert stage is not None
        generator = session.get_one(ModelRow, reading.current_models(session, federation.id)[reading.GENERATOR])
        unscored = {
            client.name: self._cache.path(row.digest) for client, row in reading.unscored(session, federation.id)
        }
        return ScoreSpec(
            task=config.task,
            architecture=stage.plan.architecture,
            options=stage.plan.options,
            discriminators=unscored,
            input_range=generator.metrics["input_range"],
            datasets=self._server_sets(session, federation, config),
            output_dir=folder,
        )

    def _server_sets(self, session: Session, federation: FederationRow, config: FederationConfig) -> Datasets:
        """Return the server data of scores and rounds: drawn samples take the place of the unlabelled set."""
        sets = self._datasets(session, config)
        samples = reading.current_models(session, federation.id).get(reading.SAMPLES)
        return sets if samples is None else sets.model_copy(update={"unlabeled": self._weights(session, samples)})

    def _round(
        self, session: Session, federation: FederationRow, config: FederationConfig, round_: RoundRow, folder: Path
    ) -> RoundSpec:
        bases, updates = round_.base_models, self._updates(session, round_)
        prototypes = {p.name: self._prototype(session, p, bases[p.name]) for p in config.published}
        return RoundSpec(
            seed=federation.seed,
            round_index=round_.index,
            rounds_total=config.rounds.total,
            task=config.task,
            recipe=config.recipe,
            local=config.local,
            on_bad_teacher=config.rounds.on_bad_teacher,
            min_updates=max(1, min(round_.min_updates, len(updates))),  # an operator may have closed it with fewer
            gate=config.rounds.gate,
            hand_over=config.runs_ahead and round_.index < config.rounds.total,
            clients_total=len(reading.live_clients(session, federation.id)),
            server_model=prototypes.pop(SERVER, None) if config.server_model else None,
            prototypes=list(prototypes.values()),
            updates=updates,
            datasets=self._server_sets(session, federation, config),
            scores=self._scores(session, federation, round_) if config.recipe.reads_scores else {},
            state={
                name: self._cache.path(session.get_one(ModelRow, id_).digest)
                for name, id_ in reading.carried_state(session, federation.id).items()
            },
            output_dir=folder,
        )

    def _updates(self, session: Session, round_: RoundRow) -> list[UpdateSpec]:
        rows = session.execute(
            select(UpdateRow, ClientRow, ParticipantRow)
            .join(ClientRow, ClientRow.id == UpdateRow.client_id)
            .join(
                ParticipantRow,
                (ParticipantRow.client_id == UpdateRow.client_id) & (ParticipantRow.round_id == UpdateRow.round_id),
            )
            .where(UpdateRow.round_id == round_.id, UpdateRow.excluded.is_(None))
            .order_by(ClientRow.name)
        )
        return [
            UpdateSpec(
                client=client.name,
                prototype=participant.prototype,
                weights=self._cache.path(update.digest),
                num_samples=update.num_samples,
                label_counts=client.label_counts,
                control_reset=update.control_reset,
            )
            for update, client, participant in rows
        ]

    def _scores(self, session: Session, federation: FederationRow, round_: RoundRow) -> dict[str, Path]:
        rows = session.execute(
            select(ClientRow.name, DiscriminatorRow.scores_digest)
            .join(DiscriminatorRow, DiscriminatorRow.client_id == ClientRow.id)
            .join(UpdateRow, UpdateRow.client_id == ClientRow.id)
            .where(UpdateRow.round_id == round_.id, DiscriminatorRow.scores_digest.is_not(None))
        )
        return {name: self._cache.path(digest) for name, digest in rows if digest is not None}
