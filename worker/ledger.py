"""The worker's only door to the database: claim a job, load its inputs, keep its lease, publish its result."""

import logging
import math
import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.ids import new_id
from contract.tensors import TensorError, TensorFile, check_file, compare
from service.config import Settings
from service.domain.federation import FederationConfig
from service.infra.blobs import Blobs, digest_of
from service.infra.queue import Sender
from service.operations import effects, jobs, lifecycle, publishing, workers
from service.operations.jobs import LostLease
from service.operations.unit import Store
from service.persistence.engine import Database
from service.persistence.tables import ClientRow, DatasetRow, FederationRow, ModelRow, RoundRow, UpdateRow
from worker.specs import (
    Datasets,
    GeneratorSpec,
    InitializeSpec,
    JobFailure,
    JobResult,
    JobSpec,
    NetworkRef,
    PrototypeSpec,
    RoundSpec,
    ScoreSpec,
    UpdateSpec,
)

log = logging.getLogger("worker.ledger")
__all__ = ["Claimed", "Ledger", "LostLease"]


@dataclass(frozen=True)
class Claimed:
    """A job that this worker holds, as long as `fence` is the newest."""

    id: str
    kind: str
    fence: int
    attempt: int
    federation_id: str
    round_id: str | None


class Ledger:
    """The jobs table, seen by one worker."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.worker_id = new_id("worker")
        self._sender = Sender(settings)
        self._blobs = Blobs(settings.resolved_blob_dir)
        self._database = Database(settings)
        self._store = Store(self._database, self._blobs, self._wake)

    def _wake(self) -> None:
        self._sender.send()

    # ------------------------------------------------------------------------------------------------ holding a job
    def claim(self) -> Claimed | None:
        """Take the oldest job that is due, or None."""
        with self._store.read() as session:
            if not jobs.any_due(session):
                return None
        with self._store.write() as session:
            job = jobs.claim(session, self.worker_id, self.settings.device, self.settings.lease_seconds)
            if job is None:
                return None
            return Claimed(job.id, job.kind, job.fence, job.attempt, job.federation_id, job.round_id)

    def is_cancelled(self, job: Claimed) -> bool:
        """Whether somebody wants the job to end; a look that takes no write lock.

        Raises:
            LostLease: another worker has the job.
        """
        with self._store.read() as session:
            return jobs.is_cancelled(session, job.id, job.fence)

    def renew(self, job: Claimed, progress: dict[str, Any] | None) -> None:
        """Keep the lease and tell the progress.

        Raises:
            LostLease: another worker has the job.
        """
        with self._store.write() as session:
            jobs.renew(session, job.id, job.fence, self.settings.lease_seconds, progress)
            self._heartbeat(session, job.id)

    def heartbeat(self) -> None:
        """Say that this worker is alive and idle."""
        with self._store.write() as session:
            self._heartbeat(session, None)

    def _heartbeat(self, session: Session, job_id: str | None) -> None:
        workers.heartbeat(session, self.worker_id, socket.gethostname(), os.getpid(), self.settings.device, job_id)

    def leave(self) -> None:
        """Say goodbye and close."""
        with self._store.write() as session:
            workers.leave(session, self.worker_id)
        self._database.close()
        self._sender.close()

    # --------------------------------------------------------------------------------------------- ending a job
    def publish(self, job: Claimed, result: JobResult) -> None:
        """Make a result visible: files become blobs, rows follow, in one transaction with the fencing token.

        Raises:
            LostLease: somebody else has the job by now; nothing becomes visible.
            JobFailure: a file is not what it should be.
        """
        files = {name: (path, *digest_of(path)) for name, path in result.models.items()}
        self._check(job, result)
        with self._store.write() as session:
            effects.hold_blobs(session)
            jobs.held(session, job.id, job.fence)
            for path, digest, _ in files.values():
                if path.exists():  # two names may have one content
                    self._blobs.keep(path, digest)
            outcome = publishing.Outcome(
                files={name: (digest, size) for name, (_, digest, size) in files.items()},
                metrics=plain(result.metrics),
                peak_memory_bytes=result.peak_memory_bytes,
                device=result.device,
            )
            publishing.publish(
                session, job.id, job.fence, outcome, self.settings.keep_updates, self.settings.max_attempts
            )

    def _check(self, job: Claimed, result: JobResult) -> None:
        """Look once more at what is about to become the global model: finite, and with the tensors it must have."""
        bases: dict[str, str] = {}
        if job.kind == "round":
            with self._store.read() as session:
                bases = self._base_digests(session, session.get_one(RoundRow, job.round_id))
        for name, path in result.models.items():
            try:
                header = check_file(path)
                if name in bases:
                    with TensorFile(self._blobs.path(bases[name])) as base:
                        compare(header, base.header)
            except TensorError as error:
                code = "non_finite" if error.code == "values" else "schema_mismatch"
                raise JobFailure(code, f"the result for {name!r} is not published: {error.detail}") from error

    def _base_digests(self, session: Session, round_: RoundRow) -> dict[str, str]:
        return {name: session.get_one(ModelRow, id_).digest for name, id_ in round_.base_models.items()}

    def fail(self, job: Claimed, code: str, detail: str, final: bool) -> None:
        """Record a failure. A final one ends the job; any other is tried again later, up to the limit of attempts."""
        with self._store.write() as session:
            row = jobs.held(session, job.id, job.fence)
            if final:
                publishing.give_up(session, row, code, detail)
            elif not jobs.release(session, row, code, detail):
                publishing.give_up(session, row, code, f"{detail} (after {row.attempt} attempts)")

    def give_back(self, job: Claimed) -> None:
        """Put a job back untouched, because this worker stops; the attempt does not count."""
        with self._store.write() as session:
            jobs.give_back(session, jobs.held(session, job.id, job.fence))

    def cancel(self, job: Claimed) -> None:
        """End a job because an operator wants it to end."""
        with self._store.write() as session:
            publishing.cancelled(session, jobs.held(session, job.id, job.fence))

    # ------------------------------------------------------------------------------------------- loading a job
    def load(self, job: Claimed) -> JobSpec:
        """Return everything the job needs, with an empty folder for what it makes."""
        folder = self._blobs.work_dir(f"{job.id}-{job.fence}")
        with self._store.read() as session:
            federation = session.get_one(FederationRow, job.federation_id)
            config = lifecycle.config_of(federation)
            if job.kind == "initialize":
                return self._initialize(session, federation, config, folder)
            if job.kind == "generator":
                return self._generator(session, federation, config, folder)
            if job.kind == "score":
                return self._score(session, federation, config, folder)
            return self._round(session, federation, config, session.get_one(RoundRow, job.round_id), folder)

    def drop_outputs(self, spec: JobSpec) -> None:
        """Remove a job's folder."""
        shutil.rmtree(spec.output_dir, ignore_errors=True)

    def _datasets(self, session: Session, config: FederationConfig) -> Datasets:
        paths = {}
        for role, id_ in config.datasets.model_dump().items():
            if id_ is not None:
                row = session.get(DatasetRow, id_)
                if row is None:
                    raise JobFailure("bad_option", f"the {role} data set was deleted; create the federation again")
                paths[role] = self._blobs.path(row.digest)
        return Datasets(**paths)

    def _weights(self, session: Session, model_id: str | None) -> Path | None:
        return None if model_id is None else self._blobs.path(session.get_one(ModelRow, model_id).digest)

    def _initialize(
        self, session: Session, federation: FederationRow, config: FederationConfig, folder: Path
    ) -> InitializeSpec:
        prototypes = [
            PrototypeSpec(
                name=prototype.name,
                network=NetworkRef(
                    architecture=prototype.architecture,
                    options=prototype.options,
                    weights=self._weights(session, prototype.initial_model),
                ),
            )
            for prototype in config.prototypes
        ]
        return InitializeSpec(
            seed=federation.seed,
            task=config.task,
            prototypes=prototypes,
            datasets=self._datasets(session, config),
            output_dir=folder,
        )

    def _generator(
        self, session: Session, federation: FederationRow, config: FederationConfig, folder: Path
    ) -> GeneratorSpec:
        stage, unlabeled = config.recipe.discriminators, self._datasets(session, config).unlabeled
        assert stage is not None
        assert unlabeled is not None
        return GeneratorSpec(
            seed=federation.seed,
            task=config.task,
            generator=stage.generator,
            discriminator=NetworkRef(architecture=stage.plan.architecture, options=stage.plan.options),
            unlabeled=unlabeled,
            output_dir=folder,
        )

    def _score(self, session: Session, federation: FederationRow, config: FederationConfig, folder: Path) -> ScoreSpec:
        stage = config.recipe.discriminators
        assert stage is not None
        generator = session.get_one(ModelRow, lifecycle.current_models(session, federation.id)[lifecycle.GENERATOR])
        unscored = {
            client.name: self._blobs.path(row.digest) for client, row in lifecycle.unscored(session, federation.id)
        }
        return ScoreSpec(
            task=config.task,
            architecture=stage.plan.architecture,
            options=stage.plan.options,
            discriminators=unscored,
            input_range=generator.metrics["input_range"],
            datasets=self._datasets(session, config),
            output_dir=folder,
        )

    def _round(
        self, session: Session, federation: FederationRow, config: FederationConfig, round_: RoundRow, folder: Path
    ) -> RoundSpec:
        rows = session.execute(
            select(UpdateRow, ClientRow)
            .join(ClientRow, ClientRow.id == UpdateRow.client_id)
            .where(UpdateRow.round_id == round_.id)
            .order_by(ClientRow.name)
        ).all()
        scored = lifecycle.discriminators_of(session, federation.id)
        scores = {
            client.name: self._blobs.path(scored[client.id].scores_digest or "")
            for _, client in rows
            if config.recipe.discriminators is not None
        }
        bases = self._base_digests(session, round_)
        return RoundSpec(
            seed=federation.seed,
            round_index=round_.index,
            rounds_total=config.rounds.total,
            task=config.task,
            recipe=config.recipe,
            prototypes=[
                PrototypeSpec(
                    name=prototype.name,
                    network=NetworkRef(
                        architecture=prototype.architecture,
                        options=prototype.options,
                        weights=self._blobs.path(bases[prototype.name]),
                    ),
                )
                for prototype in config.prototypes
            ],
            updates=[
                UpdateSpec(
                    client=client.name,
                    prototype=client.prototype,
                    weights=self._blobs.path(update.digest),
                    num_samples=update.num_samples,
                )
                for update, client in rows
            ],
            datasets=self._datasets(session, config),
            scores=scores,
            output_dir=folder,
        )


def plain(value: Any) -> Any:
    """Return figures as JSON can hold them: a number that is not finite becomes null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
