"""The tables. The database is the truth: whatever a 2xx promised is in here or in a blob that a row names."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class UtcDateTime(TypeDecorator[datetime]):
    """Aware UTC datetimes in a column without time zone."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Store UTC without its zone."""
        return value if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Give the zone back."""
        return value if value is None else value.replace(tzinfo=UTC)


class Base(DeclarativeBase):
    """Base of all tables; constraint names follow one pattern so that migrations can name them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {
        datetime: UtcDateTime,
        dict[str, Any]: JSON,
        list[Any]: JSON,
        int: BigInteger,
        str: String(255),
    }


class Credential:
    """Columns of a token: the one in use and, after a rotation, the one that replaces it at its first use."""

    nonce: Mapped[str]
    token_hash: Mapped[str] = mapped_column(unique=True)
    expires_at: Mapped[datetime | None]
    next_nonce: Mapped[str | None]
    next_hash: Mapped[str | None] = mapped_column(unique=True, index=True)
    next_expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class FederationRow(Base):
    """A federation. `version` grows with every change that a waiting device could care about.

    `collect_deadline_at` is the deadline of what a stage collects; while the federated generator is trained, null says
    that round `gan_round` is closed and being averaged. `skipped_rounds` counts those in a row.
    """

    __tablename__ = "federations"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    state: Mapped[str]
    version: Mapped[int] = mapped_column(default=1)
    config: Mapped[dict[str, Any]]
    seed: Mapped[int]
    join_nonce: Mapped[str]
    join_hash: Mapped[str] = mapped_column(unique=True)
    join_uses: Mapped[int] = mapped_column(default=0)
    join_max_uses: Mapped[int | None]
    join_expires_at: Mapped[datetime | None]
    round_index: Mapped[int] = mapped_column(default=0)
    skipped_rounds: Mapped[int] = mapped_column(default=0, server_default="0")
    accuracy: Mapped[float | None]
    gan_round: Mapped[int] = mapped_column(default=0)
    collect_deadline_at: Mapped[datetime | None]
    retention: Mapped[dict[str, Any] | None]
    error: Mapped[str | None]
    detail: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class ClientRow(Credential, Base):
    """A device's place in one federation."""

    __tablename__ = "clients"
    __table_args__ = (
        Index(
            "uq_clients_live_name",
            "federation_id",
            "name",
            unique=True,
            sqlite_where=text("revoked_at IS NULL"),
            postgresql_where=text("revoked_at IS NULL"),
        ),
    )
    id: Mapped[str] = mapped_column(primary_key=True)
    federation_id: Mapped[str] = mapped_column(ForeignKey("federations.id"), index=True)
    name: Mapped[str]
    prototype: Mapped[str]
    num_samples: Mapped[int]
    label_counts: Mapped[list[Any] | None]
    capabilities: Mapped[dict[str, Any]]
    enrolled_at: Mapped[datetime]
    last_seen_at: Mapped[datetime | None]


class DiscriminatorRow(Base):
    """A client's discriminator and, once it is scored, the file of its scores."""

    __tablename__ = "discriminators"
    id: Mapped[str] = mapped_column(primary_key=True)
    federation_id: Mapped[str] = mapped_column(ForeignKey("federations.id"), index=True)
    client_id: Mapped[str] = mapped_column(ForeignKey("clients.id"), unique=True)
    digest: Mapped[str]
    size: Mapped[int]
    received_at: Mapped[datetime]
    scores_digest: Mapped[str | None]
    manifest_id: Mapped[str | None] = mapped_column(ForeignKey("manifests.id"))
    rejected: Mapped[str | None] = mapped_column(Text)
    removed_at: Mapped[datetime | None]


class GanUpdateRow(Base):
    """A client's generator and critic of one round of the federated generator; one a client and round."""

    __tablename__ = "gan_updates"
    __table_args__ = (UniqueConstraint("client_id", "gan_round"),)
    id: Mapped[str] = mapped_column(primary_key=True)
    federation_id: Mapped[str] = mapped_column(ForeignKey("federations.id"), index=True)
    client_id: Mapped[str] = mapped_column(ForeignKey("clients.id"))
    gan_round: Mapped[int]
    digest: Mapped[str]
    size: Mapped[int]
    num_samples: Mapped[int]
    received_at: Mapped[datetime]
    removed_at: Mapped[datetime | None]


class RoundRow(Base):
    """One round.

    `groups_published_at` is when the models that its distillation leaves alone were published (FedSDD App. A.6);
    `waits_for` is the round whose distilled models this one still lacks among its `base_models`.
    """

    __tablename__ = "rounds"
    __table_args__ = (UniqueConstraint("federation_id", "index"),)
    id: Mapped[str] = mapped_column(primary_key=True)
    federation_id: Mapped[str] = mapped_column(ForeignKey("federations.id"), index=True)
    index: Mapped[int]
    state: Mapped[str] = mapped_column(index=True)
    needed: Mapped[int]
    min_updates: Mapped[int]
    base_models: Mapped[dict[str, Any]]
    models: Mapped[dict[str, Any]]
    opened_at: Mapped[datetime]
    deadline_at: Mapped[datetime]
    extensions: Mapped[int] = mapped_column(default=0, server_default="0")
    restarts: Mapped[int] = mapped_column(default=0, server_default="0")
    closed_at: Mapped[datetime | None]
    groups_published_at: Mapped[datetime | None]
    published_at: Mapped[datetime | None]
    waits_for: Mapped[str | None] = mapped_column(ForeignKey("rounds.id"))
    reason: Mapped[str | None] = mapped_column(Text)
    metrics: Mapped[dict[str, Any]]


class ParticipantRow(Base):
    """A client that was asked in a round, and the prototype, or the group's copy of it, that it trains.

    `silent_at` is when it will count as lost if no heartbeat comes; `lost_at` says that it does. Both are null once it
    has answered, and for devices that send no heartbeats. `replaces` is the client whose place it took.
    """

    __tablename__ = "participants"
    __table_args__ = (Index("ix_participants_silent_at", "silent_at"),)
    round_id: Mapped[str] = mapped_column(ForeignKey("rounds.id"), primary_key=True)
    client_id: Mapped[str] = mapped_column(ForeignKey("clients.id"), primary_key=True)
    prototype: Mapped[str]
    asked_at: Mapped[datetime | None]
    fetched_at: Mapped[datetime | None]
    heard_at: Mapped[datetime | None]
    silent_at: Mapped[datetime | None]
    lost_at: Mapped[datetime | None]
    progress: Mapped[dict[str, Any] | None]
    replaces: Mapped[str | None]


class UpdateRow(Base):
    """An accepted update; there is at most one a client and round. `excluded` says why it was not fused, if so."""

    __tablename__ = "updates"
    __table_args__ = (UniqueConstraint("round_id", "client_id"),)
    id: Mapped[str] = mapped_column(primary_key=True)
    round_id: Mapped[str] = mapped_column(ForeignKey("rounds.id"))
    client_id: Mapped[str] = mapped_column(ForeignKey("clients.id"), index=True)
    base_model: Mapped[str]
    digest: Mapped[str]
    size: Mapped[int]
    num_samples: Mapped[int]
    control_reset: Mapped[bool] = mapped_column(default=False)
    metrics: Mapped[dict[str, Any] | None]
    received_at: Mapped[datetime]
    excluded: Mapped[str | None] = mapped_column(Text)
    removed_at: Mapped[datetime | None]


class ManifestRow(Base):
    """What one publication was made from and by what, as text: its digest is that of exactly these characters."""

    __tablename__ = "manifests"
    id: Mapped[str] = mapped_column(primary_key=True)
    federation_id: Mapped[str] = mapped_column(ForeignKey("federations.id"), index=True)
    round_id: Mapped[str | None] = mapped_column(ForeignKey("rounds.id"), index=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), index=True)
    digest: Mapped[str]
    document: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime]


class ModelRow(Base):
    """A stored model. `removed_at` of this and other rows with a digest: the blob was let go; the row is history."""

    __tablename__ = "models"
    id: Mapped[str] = mapped_column(primary_key=True)
    federation_id: Mapped[str | None] = mapped_column(ForeignKey("federations.id"), index=True)
    round_id: Mapped[str | None] = mapped_column(ForeignKey("rounds.id"))
    round_index: Mapped[int | None]
    prototype: Mapped[str | None]
    role: Mapped[str]
    name: Mapped[str | None]
    digest: Mapped[str] = mapped_column(index=True)
    size: Mapped[int]
    architecture: Mapped[str | None]
    options: Mapped[dict[str, Any]]
    parents: Mapped[list[Any]]
    recipe: Mapped[dict[str, Any] | None]
    metrics: Mapped[dict[str, Any]]
    manifest_id: Mapped[str | None] = mapped_column(ForeignKey("manifests.id"))
    created_at: Mapped[datetime]
    removed_at: Mapped[datetime | None]


class CurrentModelRow(Base):
    """The model that devices of a prototype get; `generator`, `discriminator` and what a recipe
    keeps between rounds (`state:<name>`) have keys of their own.
    """

    __tablename__ = "current_models"
    federation_id: Mapped[str] = mapped_column(ForeignKey("federations.id"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"))


class DatasetRow(Base):
    """A data set of the server."""

    __tablename__ = "datasets"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    digest: Mapped[str]
    size: Mapped[int]
    num_samples: Mapped[int]
    shape: Mapped[list[Any]]
    dtype: Mapped[str]
    labeled: Mapped[bool]
    num_classes: Mapped[int | None]
    created_at: Mapped[datetime]


class JobRow(Base):
    """A piece of work. Celery only wakes a worker; this row says what is to be done and who holds it.

    `queued_at` is since when it waits for a worker; it may lie ahead. `resumed_from` is the state that its attempt went
    on from.
    """

    __tablename__ = "jobs"
    __table_args__ = (Index("ix_jobs_due", "state", "lease_until"),)
    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    state: Mapped[str]
    federation_id: Mapped[str] = mapped_column(ForeignKey("federations.id"), index=True)
    round_id: Mapped[str | None] = mapped_column(ForeignKey("rounds.id"), index=True)
    attempt: Mapped[int] = mapped_column(default=0)
    max_attempts: Mapped[int]
    fence: Mapped[int] = mapped_column(default=0)
    worker_id: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    not_before: Mapped[datetime | None]
    hinted_at: Mapped[datetime | None]
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    progress: Mapped[dict[str, Any] | None]
    resumed_from: Mapped[dict[str, Any] | None]
    queue: Mapped[str] = mapped_column(default="gpu")
    device: Mapped[str | None]
    peak_memory_bytes: Mapped[int | None]
    error: Mapped[str | None]
    detail: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime]
    queued_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class WorkerRow(Base):
    """A worker process and when it was last heard."""

    __tablename__ = "workers"
    id: Mapped[str] = mapped_column(primary_key=True)
    host: Mapped[str]
    pid: Mapped[int]
    device: Mapped[str]
    queues: Mapped[str] = mapped_column(default="cpu,gpu")
    last_seen_at: Mapped[datetime]
    job_id: Mapped[str | None]
    lost_at: Mapped[datetime | None]


class EventRow(Base):
    """Something that happened. Numbers grow in the order of the commits; they are never used twice.

    No foreign key: rows of events must lock no other rows, see `operations.events.append`.
    """

    __tablename__ = "events"
    __table_args__ = (
        Index("ix_events_federation_id_sequence", "federation_id", "sequence"),
        {"sqlite_autoincrement": True},
    )
    sequence: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
    at: Mapped[datetime] = mapped_column(index=True)
    kind: Mapped[str]
    federation_id: Mapped[str | None]
    data: Mapped[dict[str, Any]]


class UploadRow(Base):
    """A resumable upload. `offset` bytes of it are on the disk; `parts` says in what, where the store needs that.

    Who writes holds the row by `holder` until `lease_until`; `wanted` asks for it back. Once the upload has counted,
    `answer` is what its delivery to `target` was answered, and the bytes are gone.
    """

    __tablename__ = "uploads"
    id: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str] = mapped_column(index=True)
    length: Mapped[int]
    offset: Mapped[int] = mapped_column(default=0)
    notes: Mapped[str] = mapped_column(Text)
    parts: Mapped[list[Any]]
    holder: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    wanted: Mapped[bool] = mapped_column(default=False)
    target: Mapped[str | None]
    answer: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)


class TokenRow(Credential, Base):
    """A token of a person or program, as a keyed hash; `last_used_at` is written at most every ten minutes."""

    __tablename__ = "tokens"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    role: Mapped[str]
    lifetime_seconds: Mapped[int | None]
    created_at: Mapped[datetime]
    last_used_at: Mapped[datetime | None]


class AuditRow(Base):
    """Who did what. Rows have no gaps, each carries the hash of the one before, triggers refuse changes."""

    __tablename__ = "audit"
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime] = mapped_column(index=True)
    actor_id: Mapped[str] = mapped_column(index=True)
    actor_name: Mapped[str]
    role: Mapped[str]
    address: Mapped[str]
    action: Mapped[str] = mapped_column(index=True)
    target: Mapped[str]
    federation_id: Mapped[str | None] = mapped_column(index=True)  # no foreign key: a row outlives what it is about
    request_id: Mapped[str]
    outcome: Mapped[str]
    detail: Mapped[dict[str, Any]]
    previous_hash: Mapped[str]
    hash: Mapped[str]


class IdempotencyRow(Base):
    """The first answer to a request with an idempotency key; secrets are left out and derived again."""

    __tablename__ = "idempotency"
    principal: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    request_hash: Mapped[str]
    answer: Mapped[dict[str, Any]]
    created_at: Mapped[datetime] = mapped_column(index=True)
