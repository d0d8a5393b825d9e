"""Jobs, who does them, and what happened."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from service.persistence.tables.base import Base


class JobRow(Base):
    """A piece of work. Celery only wakes a worker; this row says what is to be done and who holds it.

    `queued_at` is since when it waits for a worker; it may lie ahead. `resumed_from` is the state that its attempt went
    on from. `traceparent` is of the request, or the job, that asked for it, where one traced.
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
    traceparent: Mapped[str | None] = mapped_column(String(55))


class LabelShardRow(Base):
    """What one job asks of a round's teachers, and the file that it brought; the rows go with their round's end.

    `teachers` are labels of updates, or names of models that are kept from round to round. `seconds`: of asking them.
    """

    __tablename__ = "label_shards"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    federation_id: Mapped[str] = mapped_column(ForeignKey("federations.id"), index=True)
    round_id: Mapped[str] = mapped_column(ForeignKey("rounds.id"), index=True)
    teachers: Mapped[list[Any]]
    part: Mapped[int]
    parts: Mapped[int]
    digest: Mapped[str | None] = mapped_column(index=True)
    size: Mapped[int | None]
    seconds: Mapped[float | None]


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
