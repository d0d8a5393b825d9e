"""Rounds, who was asked in them, and what they answered."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, String, Text, UniqueConstraint, false
from sqlalchemy.orm import Mapped, mapped_column

from service.persistence.tables.base import Base


class RoundRow(Base):
    """One round.

    `groups_published_at` is when the models that its distillation leaves alone were published (FedSDD App. A.6);
    `waits_for` is the round whose distilled models this one still lacks among its `base_models`. While a secure round
    collects, `secure_phase` says what its devices are asked for, until `secure_until`; `secure_session` binds what they
    say.
    `buffered`: it asks nobody and waits for nobody; it is one buffer of updates, whatever models those began from.
    `explanation` says what each client did to it; it is read where it is asked for, and with no list.
    `plan` is the one that it opened with, once the federation has another; null: the federation's.
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
    explanation: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True), deferred=True)
    secure_session: Mapped[str | None]
    secure_phase: Mapped[str | None]
    secure_until: Mapped[datetime | None]
    plan: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    buffered: Mapped[bool] = mapped_column(default=False, server_default=false())


class ParticipantRow(Base):
    """A client that was asked in a round, and the prototype, or the group's copy of it, that it trains.

    `silent_at` is when it will count as lost if no heartbeat comes; `lost_at` says that it does. Both are null once it
    has answered, and for devices that send no heartbeats. `moved_at` is when its heartbeats last told of another step
    or pass. `replaces` is the client whose place it took.
    """

    __tablename__ = "participants"
    __table_args__ = (Index("ix_participants_silent_at", "silent_at"),)
    round_id: Mapped[str] = mapped_column(ForeignKey("rounds.id"), primary_key=True)
    client_id: Mapped[str] = mapped_column(ForeignKey("clients.id"), primary_key=True)
    prototype: Mapped[str]
    asked_at: Mapped[datetime | None]
    fetched_at: Mapped[datetime | None]
    heard_at: Mapped[datetime | None]
    moved_at: Mapped[datetime | None]
    silent_at: Mapped[datetime | None]
    lost_at: Mapped[datetime | None]
    progress: Mapped[dict[str, Any] | None]
    replaces: Mapped[str | None]


def _own_round(context: Any) -> Any:
    return context.get_current_parameters()["round_id"]


class UpdateRow(Base):
    """An accepted update. `excluded` says why it was not fused, if so.

    `begun_in` is the round whose model it began from: its own, or an earlier one where rounds do not wait. `turn` is
    which of the client's works from that model it is; each is delivered once. `traceparent` is of the request that
    brought it, where one traced.
    """

    __tablename__ = "updates"
    __table_args__ = (
        UniqueConstraint("begun_in", "client_id", "turn"),
        Index("ix_updates_round_id_client_id", "round_id", "client_id"),
    )
    id: Mapped[str] = mapped_column(primary_key=True)
    round_id: Mapped[str] = mapped_column(ForeignKey("rounds.id"))
    begun_in: Mapped[str] = mapped_column(ForeignKey("rounds.id"), nullable=True, default=_own_round)
    turn: Mapped[int] = mapped_column(default=0, server_default="0")
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
    traceparent: Mapped[str | None] = mapped_column(String(55))


class SecureMemberRow(Base):
    """What a participant has said in the session of a secure round, as it came (`contract.wire.secure`).

    `survives` says that its update is one of those that are added up: decided once, when no more are taken. The rows go
    when the round is over.
    """

    __tablename__ = "secure_members"
    round_id: Mapped[str] = mapped_column(ForeignKey("rounds.id"), primary_key=True)
    client_id: Mapped[str] = mapped_column(ForeignKey("clients.id"), primary_key=True)
    keys: Mapped[dict[str, Any]]
    sealed: Mapped[dict[str, Any] | None]
    survives: Mapped[bool] = mapped_column(default=False, server_default=false())
    signature: Mapped[str | None]
    revealed: Mapped[dict[str, Any] | None]
