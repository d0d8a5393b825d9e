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


class EnsembleRow(Base):
    """A round's ensemble: `document` says who predicts together and how (`contract.ensembles.EnsembleDocument`)."""

    __tablename__ = "ensembles"
    id: Mapped[str] = mapped_column(primary_key=True)
    federation_id: Mapped[str] = mapped_column(ForeignKey("federations.id"), index=True)
    round_id: Mapped[str] = mapped_column(ForeignKey("rounds.id"), unique=True)
    document: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class EnsembleMemberRow(Base):
    """What keeps the blob of an ensemble's member, by its place in the document."""

    __tablename__ = "ensemble_members"
    ensemble_id: Mapped[str] = mapped_column(ForeignKey("ensembles.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    federation_id: Mapped[str] = mapped_column(ForeignKey("federations.id"), index=True)
    name: Mapped[str]
    client_id: Mapped[str | None] = mapped_column(ForeignKey("clients.id"), index=True)
    digest: Mapped[str] = mapped_column(index=True)
    size: Mapped[int]
    removed_at: Mapped[datetime | None]


class PredictionRow(Base):
    """What was asked to be predicted, with what (`contract.ensembles.PredictionDocument`), and the file of it."""

    __tablename__ = "predictions"
    id: Mapped[str] = mapped_column(primary_key=True)
    federation_id: Mapped[str] = mapped_column(ForeignKey("federations.id"), index=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), unique=True)
    round_id: Mapped[str | None] = mapped_column(ForeignKey("rounds.id"))
    model_id: Mapped[str | None] = mapped_column(ForeignKey("models.id"))
    dataset: Mapped[str]
    num_samples: Mapped[int]
    document: Mapped[dict[str, Any]]
    digest: Mapped[str | None] = mapped_column(index=True)
    size: Mapped[int | None]
    metrics: Mapped[dict[str, Any]]
    provenance_id: Mapped[str | None] = mapped_column(ForeignKey("provenance.id"))
    created_at: Mapped[datetime]
    removed_at: Mapped[datetime | None]


class PredictionInputRow(Base):
    """A blob that a prediction reads: it stays until that is made, whoever else lets go of it."""

    __tablename__ = "prediction_inputs"
    prediction_id: Mapped[str] = mapped_column(ForeignKey("predictions.id"), primary_key=True)
    digest: Mapped[str] = mapped_column(primary_key=True, index=True)


class ChecksumRow(Base):
    """The checksum of a blob's bytes (`service.infra.sums`), where one is known; it goes with the blob."""

    __tablename__ = "blob_checksums"
    digest: Mapped[str] = mapped_column(primary_key=True)
    checksum: Mapped[str]


class NetworkRow(Base):
    """A network that is a document; `weights` is the model that federations start from where they name none."""

    __tablename__ = "networks"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    digest: Mapped[str] = mapped_column(unique=True)
    size: Mapped[int]
    facts: Mapped[dict[str, Any]]
    tensors: Mapped[list[Any]]
    weights: Mapped[str | None] = mapped_column(ForeignKey("models.id"))
    created_at: Mapped[datetime]


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
    label_shape: Mapped[list[Any] | None]
    """Of one sample; null where there are none, and of sets from before tasks had others than one number a sample."""
    label_dtype: Mapped[str | None]
    token_ids: Mapped[list[Any] | None]
    """The smallest and the largest, of sets of them; null of others, and of sets from before this was looked at."""
