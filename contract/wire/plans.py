"""How a federation's rounds go: how many, with whom, when one may close, and what happens when it cannot."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, model_validator

OnDeadline = Literal["skip", "extend", "fail"]
OnBadTeacher = Literal["fail", "exclude"]
Late = Literal["refuse", "grace"]


class Gate(BaseModel):
    """A new model is measured before it is published; one that is worse than the current one by too much is not."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    metric: Literal["validation_accuracy", "test_accuracy"] = Field(
        "validation_accuracy", description="which labelled set it is measured on; the set must be there"
    )
    max_drop: float = Field(0.0, ge=0, le=1, description="accuracy may fall by so much, as a fraction of all samples")
    action: Literal["reject", "rollback", "pause"] = Field(
        "reject",
        description="reject: go on from the current model. rollback: go on from the best one that was measured so far. "
        "pause: as reject, and the federation waits for an operator",
    )


class RoundsPlan(BaseModel):
    """How many rounds, with whom, and when a round may close."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    total: int = Field(10, ge=1, le=100_000)
    clients_per_round: StrictInt | StrictFloat | None = Field(
        None,
        gt=0,
        le=1_000_000,
        description="a count (4), a fraction of the enrolled clients (0.4; 1.0 is all of them), or null for all",
    )
    min_updates: int = Field(1, ge=1, le=1_000_000, description="fewer at the deadline: see on_deadline")
    min_clients: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="clients enrolled before the first round opens, min_updates at least; default: clients_per_round "
        "if a count, else min_updates",
    )
    deadline_seconds: int = Field(3600, ge=1, le=30 * 86_400)
    on_deadline: OnDeadline = Field(
        "skip",
        description="fewer than min_updates at the deadline. skip: the next round opens from the same models. extend: "
        "wait for another deadline_seconds, up to max_extensions times, then skip. fail: the federation pauses, the "
        "updates stay",
    )
    max_extensions: int = Field(3, ge=1, le=100, description="deadlines that a round may have more, with 'extend'")
    max_skipped: int = Field(
        10, ge=1, le=100_000, description="skipped rounds in a row after which the federation pauses, with the reason"
    )
    late: Late = Field(
        "refuse",
        description="updates after the deadline. refuse: 409 with the current round. grace: the round waits up to "
        "grace_seconds longer for those whose heartbeats say that they are training",
    )
    grace_seconds: int = Field(60, ge=1, le=86_400)
    heartbeat_seconds: int = Field(30, ge=1, le=3600, description="how often a device that trains says so")
    lost_after: int = Field(
        4, ge=2, le=1000, description="heartbeats missed in a row after which a device counts as lost"
    )
    replace_lost: bool = Field(
        False, description="ask the next client of the round's ranking for each one that is lost"
    )
    on_bad_teacher: OnBadTeacher = Field(
        "fail",
        description="a client's network gives NaN or infinity on server data. fail: the round fails, naming it. "
        "exclude: it counts neither as a teacher nor in the average",
    )
    gate: Gate | None = Field(None, description="measure a new model before it is published")
    over_selection: float = Field(1.0, ge=1, le=10, description="ask this many times more clients than are needed")
    target_accuracy: float | None = Field(None, gt=0, le=1, description="finish early at this test accuracy")
    job_seconds: int | None = Field(
        None,
        ge=1,
        le=30 * 86_400,
        description="a job of the federation that a worker does for longer fails with 'out_of_time'; null for no limit",
    )
    max_samples_per_client: int = Field(10_000_000, ge=1, le=2**40, description="largest num_samples that counts")

    @property
    def quorum(self) -> int:
        """Clients that must be enrolled before the first round opens."""
        if self.min_clients is not None:
            return max(self.min_clients, self.min_updates)  # a round of fewer could only be skipped
        asked = self.clients_per_round
        return max(self.min_updates, int(asked)) if asked is not None and asked >= 1 else self.min_updates

    @model_validator(mode="after")
    def _possible(self) -> "RoundsPlan":
        asked = self.clients_per_round
        if isinstance(asked, float) and asked > 1 and not asked.is_integer():
            raise ValueError("clients_per_round: a count is a whole number; a fraction is at most 1")
        if asked is not None and asked >= 1 and self.min_updates > asked * self.over_selection:
            raise ValueError("min_updates: more than clients_per_round can deliver")
        return self
