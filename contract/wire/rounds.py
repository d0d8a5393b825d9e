"""Rounds, models and data sets as they are shown."""

from typing import Any, Literal

from pydantic import Field

from contract.bounds import Id, Reference
from contract.queue import JobName
from contract.wire.changes import RoundPlan
from contract.wire.common import Digest, Request, Response, Timestamp
from contract.wire.secure import SecurePhase

RoundState = Literal["collecting", "aggregating", "published", "failed", "skipped"]


ParticipantState = Literal["asked", "fetched", "training", "answered", "excluded", "lost", "revoked"]


class Participant(Response):
    """One client that was asked in a round."""

    client_id: str
    name: str
    prototype: str
    state: ParticipantState = Field(
        "asked",
        description="asked; fetched its assignment; training, by its heartbeats; answered; excluded: answered, but not "
        "fused; lost: its heartbeats stopped, or go on and tell of no progress; revoked before it answered",
    )
    asked_at: Timestamp | None = None
    fetched_at: Timestamp | None = None
    heard_at: Timestamp | None = Field(None, description="last heartbeat in this round")
    moved_at: Timestamp | None = Field(None, description="when its heartbeats last told of another step or pass")
    progress: dict[str, Any] | None = Field(None, description="of the last heartbeat: epoch, step, of, passes")
    replaces: str | None = Field(None, description="id of the lost client whose place it took")
    answered_at: Timestamp | None = None
    seconds: float | None = Field(None, description="from being asked to its answer")
    size: int | None = Field(None, description="bytes of its update")
    digest: Digest | None = None
    num_samples: int | None = None
    excluded: str | None = Field(None, description="why its update was not fused")
    weight: float | None = Field(
        None, description="share in the average of its prototype, after publishing; those of a prototype sum to 1"
    )
    distance: float | None = Field(
        None, description="||update - model|| / ||model|| over the parameters, after publishing; not of secure rounds"
    )
    norm_ratio: float | None = Field(None, description="||update|| / ||model|| over the parameters, after publishing")
    outlier: str | None = Field(None, description="why its update stands out among the others', if it does")
    teacher_weight: float | None = Field(None, description="mean share as a teacher, after publishing")
    label: str | None = Field(
        None, description="where rounds do not wait: what the update is called, `name/02` for the second of a client's"
    )
    base_model: str | None = Field(None, description="the model that it began from, where rounds do not wait")
    staleness: int | None = Field(None, description="how often that model was replaced before this round")
    factor: float | None = Field(None, description="what it counts for that, after publishing")
    metrics: dict[str, Any] | None = None


class SecureProgress(Response):
    """Where a secure round is that collects: how many devices have said what."""

    phase: SecurePhase
    until: Timestamp | None = Field(None, description="when the phase ends for those that say nothing; not of training")
    keys: int = 0
    shares: int = 0
    masked: int = Field(0, description="masked updates")
    signed: int = 0
    revealed: int = 0


class Round(Response):
    """One round."""

    id: str
    federation_id: str
    index: int
    state: RoundState
    asked: int
    answered: int
    lost: int = Field(0, description="asked, not answered, and silent for long")
    needed: int = Field(description="updates that close the round before its deadline")
    min_updates: int
    size: int = Field(0, description="bytes of the updates that are here")
    opened_at: Timestamp
    deadline_at: Timestamp
    extensions: int = Field(0, description="deadlines that it has had beyond the first")
    restarts: int = Field(0, description="times that it began again because its base models changed")
    closed_at: Timestamp | None = None
    groups_published_at: Timestamp | None = Field(
        None, description="when the groups' models were published, before the main one (FedSDD's overlap)"
    )
    published_at: Timestamp | None = None
    secure: SecureProgress | None = Field(None, description="of a secure round while it collects")
    waits_for: str | None = Field(
        None,
        description="the round whose main model is still distilled; this one cannot close before, and its deadline "
        "starts anew then",
    )
    buffered: bool = Field(
        False, description="it asks nobody: `asked` is what all devices could still give, `needed` closes it"
    )
    reason: str | None = Field(None, description="why it was extended or restarted, was skipped or has failed")
    job_id: str | None = None
    base_models: dict[str, str] = Field(default_factory=dict, description="prototype -> model it started from")
    models: dict[str, str] = Field(default_factory=dict, description="prototype -> model it published")
    explained: bool = Field(
        False, description="whether `GET /v1/rounds/{id}/explanation` says what each client did to it"
    )
    metrics: dict[str, Any] = Field(default_factory=dict)


class EnsembleRef(Response):
    """What a round has kept of those who predict together."""

    members: int
    size: int = Field(description="bytes of their weights")
    weigh: str = Field(description="kind of what each counts")
    combine: str = Field(description="kind of how their outputs become one")
    accuracy: float | None = Field(None, description="on the federation's test set, where they were asked there")
    measured: float | None = Field(None, description="the task's main metric there")
    complete: bool = Field(description="whether all of it is still stored")
    url: str = Field(examples=["/v1/rounds/rnd_01…/ensemble"])


class RoundDetail(Round):
    """One round with its participants."""

    participants: list[Participant] = Field(default_factory=list)
    plan: RoundPlan | None = Field(None, description="what it opened with, as far as plans can change")
    ensemble: EnsembleRef | None = Field(None, description="where its plan had `rounds.keep_ensemble`")


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
    base: Digest | None = Field(
        None,
        description="of the network's other tensors, where `digest`, `size` and `url` are of those that rounds move; "
        "without `part=trained` the download is all of them",
    )
    architecture: str | None
    options: dict[str, Any] = Field(default_factory=dict)
    parents: list[str] = Field(default_factory=list, description="digests of what it was made from")
    recipe: dict[str, Any] | None = None
    metrics: dict[str, Any] = Field(default_factory=dict)
    current: bool = Field(False, description="whether devices get this one")
    created_at: Timestamp
    removed_at: Timestamp | None = Field(None, description="when retention removed its weights")
    url: str


class Promotion(Request):
    """Where a model is to become the one that devices get; a federation's own model says so itself."""

    federation: Id | None = Field(None, description="for an imported model: id of the federation")
    prototype: Reference | None = Field(None, description="for an imported model, where there are several")


class JobRetry(Request):
    """How a failed job is tried again."""

    exclude: list[Reference] = Field(
        default_factory=list, max_length=10_000, description="names or ids of clients whose updates are left out"
    )
    force: bool = Field(False, description="also when fewer than min_updates are left")


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
    num_classes: int | None = Field(
        None, description="largest label + 1, where labels are whole numbers; 255 is not counted among those of images"
    )
    label_shape: list[int] | None = Field(None, description="of one sample's labels; [] is one number")
    label_dtype: str | None = Field(None, description="of labels, such as float32, uint8 or int64")
    token_ids: tuple[int, int] | None = Field(None, description="the smallest and the largest, of inputs that are such")
    created_at: Timestamp


JobState = Literal["queued", "running", "done", "failed", "cancelled"]


class JobProgress(Response):
    """Where a job is."""

    phase: str
    step: int = 0
    of: int = 0
    rate: float | None = Field(None, description="steps a second")
    eta: float | None = Field(None, description="seconds to the end of this phase")


class ResumedFrom(Response):
    """The state that an attempt went on from, instead of beginning anew."""

    phase: str
    step: int


class Job(Response):
    """One piece of work for a worker."""

    id: str
    kind: JobName
    state: JobState
    queue: str = Field("gpu", description="the workers that may do it: cpu or gpu")
    federation_id: str
    round_id: str | None
    round: int | None = Field(None, description="index of the round that it fuses; null for other kinds of job")
    attempt: int
    max_attempts: int
    progress: JobProgress | None = None
    resumed_from: ResumedFrom | None = Field(None, description="where this attempt took up an earlier one's work")
    worker: str | None = None
    device: str | None = None
    peak_memory_bytes: int | None = None
    error: str | None = Field(
        None,
        description="stable code of a failed job, or of the attempt before: among them `out_of_memory`, "
        "`worker_lost`, `stalled`, `out_of_time`, `cancelled`, `non_finite`, `bad_option`, `missing_package`, "
        "`plugin_failed`",
    )
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
    queues: list[str] = Field(default_factory=list, description="whose jobs it does")
    alive: bool
    last_seen_at: Timestamp
    job_id: str | None = None
