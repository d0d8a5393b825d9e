"""Federations, and who takes part with what."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from service.persistence.tables.base import Base, Credential


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
    """The task's main metric of the models that devices get, whatever it is; an accuracy once was the only one."""
    gan_round: Mapped[int] = mapped_column(default=0)
    collect_deadline_at: Mapped[datetime | None]
    retention: Mapped[dict[str, Any] | None]
    error: Mapped[str | None]
    detail: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class ClientRow(Credential, Base):
    """A device's place in one federation.

    `num_samples` is what it declared last. `enrolled_samples` is what it said when it enrolled, once it has declared
    another number; `declared_at` is when it did.
    """

    __tablename__ = "clients"
    __table_args__ = (
        Index(
            "uq_clients_live_name",
            "federation_id",
            "name",
            unique=True,
            sqlite_where=text("revoked_at IS NULL"),
        ),  # PostgreSQL's has the same condition, from its revision: to name it here would load that dialect, too
    )
    id: Mapped[str] = mapped_column(primary_key=True)
    federation_id: Mapped[str] = mapped_column(ForeignKey("federations.id"), index=True)
    name: Mapped[str]
    prototype: Mapped[str]
    num_samples: Mapped[int]
    label_counts: Mapped[list[Any] | None]
    capabilities: Mapped[dict[str, Any]]
    enrolled_samples: Mapped[int | None]
    declared_at: Mapped[datetime | None]
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
    provenance_id: Mapped[str | None] = mapped_column(ForeignKey("provenance.id"))
    rejected: Mapped[str | None] = mapped_column(Text)
    removed_at: Mapped[datetime | None]


class TrafficRow(Base):
    """Bytes of files that went to and came from a device, or from people and programs (`client_id` is empty).

    `round_index` is 0 before the first round and `AFTERWARDS` when the federation is over; `item` is the id of the
    model that went out, or what came.
    """

    __tablename__ = "traffic"
    federation_id: Mapped[str] = mapped_column(ForeignKey("federations.id"), primary_key=True)
    round_index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    client_id: Mapped[str] = mapped_column(primary_key=True)
    item: Mapped[str] = mapped_column(primary_key=True)
    down: Mapped[int]
    up: Mapped[int]
    requests: Mapped[int]


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
