"""Rounds, models and data sets as they are shown."""

from typing import Any, Literal

from pydantic import Field

from contract.wire.common import Digest, Response, Timestamp

RoundState = Literal["collecting", "aggregating", "published", "failed", "skipped"]


class Participant(Response):
    """One client that was asked in a round."""

    client_id: str
    name: str
    prototype: str
    answered_at: Timestamp | None = None
    num_samples: int | None = None
    weight: float | None = Field(None, description="share in the average, after publishing")
    teacher_weight: float | None = Field(None, description="mean share as a teacher, after publishing")
    metrics: dict[str, Any] | None = None


class Round(Response):
    """One round."""

    id: str
    federation_id: str
    index: int
    state: RoundState
    asked: int
    answered: int
    needed: int = Field(description="updates that close the round before its deadline")
    min_updates: int
    opened_at: Timestamp
    deadline_at: Timestamp
    closed_at: Timestamp | None = None
    published_at: Timestamp | None = None
    reason: str | None = Field(None, description="why it was skipped or failed")
    job_id: str | None = None
    base_models: dict[str, str] = Field(default_factory=dict, description="prototype -> model it started from")
    models: dict[str, str] = Field(default_factory=dict, description="prototype -> model it published")
    metrics: dict[str, Any] = Field(default_factory=dict)


class RoundDetail(Round):
    """One round with its participants."""

    participants: list[Participant] = Field(default_factory=list)


class Model(Response):
    """One stored model and where it came from."""

    id: str
    federation_id: str | None
    round_id: str | None
    round: int | None
    prototype: str | None
    role: Literal["initial", "global", "gan", "generator", "discriminator", "samples", "state", "imported"]
    digest: Digest
    size: int
    architecture: str | None
    options: dict[str, Any] = Field(default_factory=dict)
    parents: list[str] = Field(default_factory=list, description="digests of what it was made from")
    recipe: dict[str, Any] | None = None
    metrics: dict[str, Any] = Field(default_factory=dict)
    current: bool = Field(False, description="whether devices get this one")
    created_at: Timestamp
    url: str


class Dataset(Response):
    """A registered data set of the server."""

    id: str
    name: str
    digest: Digest
    size: int
    num_samples: int
    shape: list[int]
    dtype: str
    labeled: bool
    num_classes: int | None = Field(None, description="largest label + 1")
    created_at: Timestamp


JobState = Literal["queued", "running", "done", "failed", "cancelled"]


class JobProgress(Response):
    """Where a job is."""

    phase: str
    step: int = 0
    of: int = 0
    rate: float | None = Field(None, description="steps a second")
    eta: float | None = Field(None, description="seconds to the end of this phase")


class Job(Response):
    """One piece of work for a worker."""

    id: str
    kind: Literal["initialize", "generator", "score", "round"]
    state: JobState
    federation_id: str
    round_id: str | None
    attempt: int
    max_attempts: int
    progress: JobProgress | None = None
    worker: str | None = None
    device: str | None = None
    peak_memory_bytes: int | None = None
    error: str | None = Field(None, description="stable code")
    detail: str | None = None
    created_at: Timestamp
    started_at: Timestamp | None = None
    finished_at: Timestamp | None = None


class Worker(Response):
    """One worker process."""

    id: str
    host: str
    pid: int
    device: str
    alive: bool
    last_seen_at: Timestamp
    job_id: str | None = None
