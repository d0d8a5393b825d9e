"""Models and data sets: rows that name a blob for good, and what they were made from."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Text
from sqlalchemy.orm import Mapped, mapped_column

from service.persistence.tables.base import Base


class ProvenanceRow(Base):
    """What one publication was made from and by what, as text: its digest is that of exactly these characters."""

    __tablename__ = "provenance"
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
    provenance_id: Mapped[str | None] = mapped_column(ForeignKey("provenance.id"))
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
