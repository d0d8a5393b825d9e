"""Who may do what, who did what, and requests that are under way or answered."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Text
from sqlalchemy.orm import Mapped, mapped_column

from service.persistence.tables.base import Base, Credential


class TokenRow(Credential, Base):
    """A token of a person or program, as a keyed hash; `last_used_at` is written at most every ten minutes."""

    __tablename__ = "tokens"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    role: Mapped[str]
    lifetime_seconds: Mapped[int | None]
    created_at: Mapped[datetime]
    last_used_at: Mapped[datetime | None]


class SessionRow(Base):
    """A browser that is signed in with a token, as a keyed hash; `used_at` is written at most every ten minutes."""

    __tablename__ = "sessions"
    secret_hash: Mapped[str] = mapped_column(primary_key=True)
    token_id: Mapped[str] = mapped_column(ForeignKey("tokens.id"), index=True)
    nonce: Mapped[str]  # of the token that it was begun with: with another one it is over
    created_at: Mapped[datetime]
    used_at: Mapped[datetime]
    expires_at: Mapped[datetime]


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
