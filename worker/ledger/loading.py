"""What a job needs: rows become its specification, with paths of blobs."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.federation import FederationConfig
from contract.groups import original
from contract.jobs import is_aside
from contract.recipes.parts import GeneratorFedGan, GeneratorImported
from service.domain.errors import DomainError
from service.domain.secure import Group
from service.infra.blobs import BlobCache
from service.operations.ledger import entries
from service.operations.progress import reading, secure, sharing
from service.operations.store import networks, predictions
from service.persistence.tables import (
    ClientRow,
    DatasetRow,
    DiscriminatorRow,
    FederationRow,
    ModelRow,
    ParticipantRow,
    RoundRow,
    SecureMemberRow,
    UpdateRow,
)
from worker.building import Builder, Drawing, predict, shard, with_networks
from worker.masks import SecureGroup
from worker.specs import (
    Begun,
    Datasets,
    GeneratorSpec,
    InitializeSpec,
    JobFailure,
    JobSpec,
    LabelsSpec,
    NetworkFiles,
    PredictSpec,
    RegisteredSpec,
    RoundSpec,
    ScoreSpec,
    UpdateSpec,
)


@dataclass(frozen=True)
class Claimed:
    """A job that this worker holds, as long as `fence` is the newest; `seconds` is how long it may take, if limited.

    `traceparent` is of what asked for it, `links` are of what else had a part in that.
    """

    id: str
    kind: str
    fence: int
    attempt: int
    federation_id: str
    round_id: str | None
    seconds: float | None = None
    traceparent: str | None = None
    links: tuple[str, ...] = ()


class Loader:
    """Reads from the database what a job needs, and where its files are."""

    def __init__(self, cache: BlobCache):
        self._cache = cache

    def load(self, session: Session, job: Claimed, folder: Path) -> JobSpec:
        """Return everything the job needs; what it makes goes into `folder`."""
        federation = session.get_one(FederationRow, job.federation_id)
        round_ = None if job.round_id is None else session.get_one(RoundRow, job.round_id)
        config = reading.config_of(federation) if round_ is None else reading.config_for(session, round_)
        current = reading.current_models(session, federation.id)
        samples = self._weights(session, current.get(reading.SAMPLES))
        aside = is_aside(job.kind)  # the federation may be over, and its data sets deleted
        datasets = Datasets() if aside else self._datasets(session, config)
        build = Builder(config, federation.seed, datasets, samples)
        spec = LOADS[job.kind](self, session, build, federation, job, folder)
        return with_networks(spec, lambda name: self._network(session, name))

    def _network(self, session: Session, name: str) -> NetworkFiles:
        """Return the files of a network that is a document.

        Raises:
            JobFailure: it was deleted.
        """
        try:
            row = networks.get(session, name)
        except DomainError as error:
            raise JobFailure("bad_option", f"{error.detail}; register it again") from error
        return NetworkFiles(document=self._cache.path(row.digest), weights=self._weights(session, row.weights))

    def initialize(
        self, session: Session, build: Builder, federation: FederationRow, job: Claimed, folder: Path
    ) -> InitializeSpec:
        """Return the job that makes the first models."""
        published = build.config.published
        return build.initialize({each.name: self._weights(session, each.initial_model) for each in published}, folder)

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
        return None if model_id is None else self._file(session, model_id)

    def _file(self, session: Session, model_id: str) -> Path:
        return self._cache.path(session.get_one(ModelRow, model_id).digest)

    def generator(
        self, session: Session, build: Builder, federation: FederationRow, job: Claimed, folder: Path
    ) -> GeneratorSpec:
        """Return the job that makes the generator, or averages a round of its training by the clients."""
        stage = build.config.recipe.discriminators
        assert stage is not None
        imported = stage.generator.model if isinstance(stage.generator, GeneratorImported) else None
        weights = self._weights(session, imported)
        if not isinstance(stage.generator, GeneratorFedGan) or federation.gan_round == 0:
            return build.generator(weights, folder, federation.gan_round)
        gan = self._file(session, reading.current_models(session, federation.id)[reading.GAN])
        return build.generator(weights, folder, federation.gan_round, gan, self._gan_updates(session, federation))

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

    def score(
        self, session: Session, build: Builder, federation: FederationRow, job: Claimed, folder: Path
    ) -> ScoreSpec:
        """Return the job that scores the server's samples with the discriminators that are new."""
        generator = session.get_one(ModelRow, reading.current_models(session, federation.id)[reading.GENERATOR])
        unscored = {
            client.name: self._cache.path(row.digest) for client, row in reading.unscored(session, federation.id)
        }
        return build.score(unscored, generator.metrics["input_range"], folder)

    def round(
        self, session: Session, build: Builder, federation: FederationRow, job: Claimed, folder: Path
    ) -> RoundSpec:
        """Return the job that fuses a round."""
        round_ = session.get_one(RoundRow, job.round_id)
        carried = reading.carried_state(session, federation.id)
        spec = build.round(
            round_.index,
            {p.name: self._file(session, round_.base_models[p.name]) for p in build.config.published},
            self._updates(session, round_),
            folder,
            clients_total=self._clients_total(session, federation, round_),
            scores=self._scores(session, round_) if build.config.recipe.reads_scores else {},
            state={name: self._file(session, id_) for name, id_ in carried.items()},
            min_updates=round_.min_updates,
            unmasking=self._unmasking(session, federation, round_),
            drawing=self._drawing(session, build.config, round_),
            registered=self._registered(session, build.config, federation, round_),
        )
        shards = [self._cache.path(digest) for digest in sharing.files(session, round_.id)]
        return spec.model_copy(update={"shards": shards})

    def labels(
        self, session: Session, build: Builder, federation: FederationRow, job: Claimed, folder: Path
    ) -> LabelsSpec:
        """Return the job that asks some of a round's teachers.

        Raises:
            JobFailure: no_participants, where the round can do without it by now.
        """
        row = sharing.of_job(session, job.id)
        if row is None:
            raise JobFailure("no_participants", "the round needs no labels of it any more")
        whole = self.round(session, build, federation, job, folder)
        return shard(whole, set(row.teachers), row.part, row.parts, folder)

    def predict(
        self, session: Session, build: Builder, federation: FederationRow, job: Claimed, folder: Path
    ) -> PredictSpec:
        """Return the job that predicts a data set."""
        document = predictions.document_of(predictions.of_job(session, job.id))
        return predict(document, self._cache.path(document.dataset), folder, self._cache.path)

    def _clients_total(self, session: Session, federation: FederationRow, round_: RoundRow) -> Counter[str]:
        """Return how many clients each prototype has: those that are enrolled, and whoever's update is fused here."""
        members = {client.id: client.prototype for client in reading.live_clients(session, federation.id)}
        updates = select(ParticipantRow.client_id, ParticipantRow.prototype).join(
            UpdateRow,
            (ParticipantRow.client_id == UpdateRow.client_id) & (ParticipantRow.round_id == UpdateRow.round_id),
        )
        fused = session.execute(updates.where(UpdateRow.round_id == round_.id, UpdateRow.excluded.is_(None)))
        return Counter((members | {client: original(model) for client, model in fused}).values())

    def _registered(
        self, session: Session, config: FederationConfig, federation: FederationRow, round_: RoundRow
    ) -> dict[str, RegisteredSpec]:
        """Return those that are enrolled, and whoever's update is fused here, where the recipe reads who they are."""
        if not config.recipe.counts_absent:
            return {}
        fused = select(UpdateRow.client_id).where(UpdateRow.round_id == round_.id, UpdateRow.excluded.is_(None))
        rows = session.execute(
            select(ClientRow, DiscriminatorRow.scores_digest)
            .outerjoin(DiscriminatorRow, DiscriminatorRow.client_id == ClientRow.id)
            .where(ClientRow.federation_id == federation.id)
            .where(ClientRow.revoked_at.is_(None) | ClientRow.id.in_(fused))
        )
        return {
            client.name: RegisteredSpec(
                prototype=client.prototype,
                num_samples=client.num_samples,
                scores=None if scores is None else self._cache.path(scores),
            )
            for client, scores in rows
        }

    def _updates(self, session: Session, round_: RoundRow) -> list[UpdateSpec]:
        return [
            UpdateSpec(
                client=each.label,
                prototype=each.prototype,
                weights=self._cache.path(each.row.digest),
                num_samples=each.row.num_samples,
                label_counts=each.client.label_counts,
                control_reset=each.row.control_reset,
                begun=self._begun(session, round_, each),
            )
            for each in entries.of_round(session, round_)
            if each.row.excluded is None
        ]

    def _begun(self, session: Session, round_: RoundRow, entry: entries.Entry) -> Begun | None:
        """Return the model that an update began from, where it is not the round's."""
        if entry.base == round_.base_models.get(entry.prototype):
            return None
        return Begun(base=self._file(session, entry.base), staleness=entry.staleness)

    def _unmasking(
        self, session: Session, federation: FederationRow, round_: RoundRow
    ) -> dict[str, SecureGroup] | None:
        if reading.config_of(federation).rounds.secure is None:
            return None
        groups = secure.groups_of(session, federation, round_)
        return {
            model: _unmasked(round_, groups[model], {name: row for name, (_, row) in rows.items()})
            for model, rows in secure.rows_of(session, round_).items()
            if groups[model].survivors
        }

    def _scores(self, session: Session, round_: RoundRow) -> dict[str, Path]:
        return {name: self._cache.path(row.scores_digest or "") for name, row in _scored(session, round_).items()}

    def _drawing(self, session: Session, config: FederationConfig, round_: RoundRow) -> Drawing | None:
        """Return what draws a round's own samples and, where a weighting reads it, what scores them."""
        if not config.recipe.draws_anew:
            return None
        generator = session.get_one(ModelRow, reading.current_models(session, round_.federation_id)[reading.GENERATOR])
        rows = _scored(session, round_) if config.recipe.reads_scores else {}
        scorers = {name: self._cache.path(row.digest) for name, row in rows.items()}
        return Drawing(self._cache.path(generator.digest), generator.metrics["input_range"], scorers)


def _scored(session: Session, round_: RoundRow) -> dict[str, DiscriminatorRow]:
    """Return the discriminators that have been scored, by what their clients' updates are called."""
    found = select(DiscriminatorRow).where(DiscriminatorRow.scores_digest.is_not(None))
    theirs = select(UpdateRow.client_id).where(UpdateRow.round_id == round_.id)
    rows = {row.client_id: row for row in session.scalars(found.where(DiscriminatorRow.client_id.in_(theirs)))}
    named = ((each.label, rows.get(each.client.id)) for each in entries.of_round(session, round_))
    return {label: row for label, row in named if row is not None}


def _unmasked(round_: RoundRow, group: Group, rows: Mapping[str, SecureMemberRow]) -> SecureGroup:
    told = {name: row.revealed for name, row in rows.items() if row.revealed is not None}
    return SecureGroup(
        session=str(round_.secure_session),
        mask_keys={name: row.keys["mask"] for name, row in rows.items()},
        commitments={name: row.keys["commitment"] for name, row in rows.items()},
        members=group.sharing,
        survivors=group.survivors,
        seeds={name: each["seeds"] for name, each in told.items()},
        keys={name: each["keys"] for name, each in told.items()},
    )


LOADS: Mapping[str, Callable[[Loader, Session, Builder, FederationRow, Claimed, Path], JobSpec]] = {
    "initialize": Loader.initialize,
    "generator": Loader.generator,
    "score": Loader.score,
    "round": Loader.round,
    "labels": Loader.labels,
    "predict": Loader.predict,
}
"""Kind of job (`contract.jobs`) -> what reads what it is told."""
