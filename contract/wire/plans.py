"""How a federation's rounds go: how many, with whom, when one may close, and what happens when it cannot."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, StrictFloat, StrictInt, model_validator

from contract.bodies import Part
from contract.bounds import CLIENTS, ROUNDS, VALUE, DataValue
from contract.evaluation import Evaluate
from contract.metrics import Metrics
from contract.secure.fixed import FixedPoint
from contract.staleness import Staleness, StalenessChoice, StalenessPolynomial

OnDeadline = Literal["skip", "extend", "fail"]
OnBadTeacher = Literal["fail", "exclude"]
Explain = Literal["off", "updates", "votes"]
Late = Literal["refuse", "grace"]
Mode = Literal["synchronous", "buffered"]
BUFFER, STALENESS = 10, 10
"""K and the oldest model of buffered rounds, where a plan names none; K is FedBuff's."""
STALEST, PER_CLIENT = 1000, 99
ClientsPerRound = Annotated[StrictInt, Field(gt=0, le=CLIENTS)] | Annotated[StrictFloat, Field(gt=0, le=CLIENTS)]


class Gate(Part):
    """A new model is measured before it is published; one that is worse than the current one by too much is not.

    Devices measure a model when they have it: one that is worse on them is withdrawn a round later.
    """

    metric: Literal["validation_accuracy", "test_accuracy", "validation", "test", "devices"] = Field(
        "validation_accuracy",
        description="which labelled set it is measured on; the set must be there. `validation` and `test`: by the "
        "task's main metric, which tasks without an accuracy take by default. `devices`: the median of what devices "
        "measure by it, with `evaluate`",
    )
    max_drop: float = Field(
        0.0,
        ge=0,
        le=VALUE,
        description="accuracy may fall by so much, as a fraction of all samples; another main metric may become worse "
        "by so much",
    )
    action: Literal["reject", "rollback", "pause"] = Field(
        "reject",
        description="reject: go on from the current model. rollback: go on from the best one that was measured so far. "
        "pause: as reject, and the federation waits for an operator. By `devices` the model that they had is judged: "
        "reject goes back to the one before it, and what was trained from it is not published",
    )

    @property
    def role(self) -> str | None:
        """The server's labelled set that it is measured on; None where devices measure."""
        return None if self.metric == "devices" else self.metric.removesuffix("_accuracy")


class SecurePlan(Part):
    """Secure aggregation: devices mask their updates, and the service learns sums alone (Bonawitz et al. 2017)."""

    min_group: int = Field(
        3, ge=2, le=1000, description="updates that a sum is over at least; of two, each device sees the other's"
    )
    max_clients: int = Field(100, ge=2, le=1000, description="a round asks no more, so that sums cannot overflow")
    threshold: float = Field(
        2 / 3,
        ge=0.5,
        le=1,
        description="share of a group's devices, and always more than half, that must upload, and then be there to "
        "unmask the sum; the others may drop out",
    )
    clip: float = Field(
        16.0, gt=0, le=1e6, description="largest change of a value in a round; what is beyond counts as this much"
    )
    bits: int = Field(32, ge=8, le=32, description="of a value; its step is clip / (2^(bits-1) - 1)")
    modulus_bits: Literal[32, 64] = Field(64, description="of a masked value: four or eight bytes are sent for each")
    phase_seconds: int = Field(
        60, ge=1, le=86_400, description="how long keys, shares, signatures and unmasking each wait for a silent device"
    )

    @property
    def fixed(self) -> FixedPoint:
        """How values become whole numbers."""
        return FixedPoint(self.clip, self.bits, self.modulus_bits)


@dataclass(frozen=True)
class Buffering:
    """How rounds go that do not wait, with all that a plan leaves to its defaults.

    Attributes:
        size: K, updates that make the next model.
        max_staleness: so often may the model have been replaced that an update began from.
        per_client: updates of a buffer that may be one device's.
        staleness: what an update counts that began from an older model.
    """

    size: int
    max_staleness: int
    per_client: int
    staleness: StalenessChoice


class RoundsPlan(Part):
    """How many rounds, with whom, and when a round may close."""

    total: int = Field(10, ge=1, le=ROUNDS)
    mode: Mode = Field(
        "synchronous",
        exclude_if=lambda value: value == "synchronous",
        description="synchronous: a round asks devices, and waits for them. buffered: whoever asks trains the newest "
        "model at once, and after every `buffer` updates there is a new one (FedBuff)",
    )
    buffer: int | None = Field(
        None,
        ge=1,
        le=CLIENTS,
        exclude_if=lambda value: value is None,
        description=f"buffered: updates that make the next model, K; null: {BUFFER}",
    )
    max_staleness: int | None = Field(
        None,
        ge=0,
        le=STALEST,
        exclude_if=lambda value: value is None,
        description="buffered: an update is taken while the model that it began from was replaced no more often; null: "
        f"{STALENESS}. The models stay so long",
    )
    per_client: int | None = Field(
        None,
        ge=1,
        le=PER_CLIENT,
        exclude_if=lambda value: value is None,
        description="buffered: updates of a buffer that one device may give; null: 1",
    )
    staleness: Staleness | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="buffered: what an update counts that began from an older model; null: 'polynomial'",
    )
    clients_per_round: ClientsPerRound | None = Field(
        None,
        description="a count (4), a fraction of the enrolled clients (0.4; 1.0 is all of them), or null for all",
    )
    min_updates: int = Field(1, ge=1, le=CLIENTS, description="fewer at the deadline: see on_deadline")
    min_clients: int | None = Field(
        None,
        ge=1,
        le=CLIENTS,
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
        10, ge=1, le=ROUNDS, description="skipped rounds in a row after which the federation pauses, with the reason"
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
    max_distance: float | None = Field(
        None,
        gt=0,
        le=1e6,
        description="an update that lies further from the round's model is left out: ||update - model|| / ||model||, "
        "over the parameters; null for no limit",
    )
    explain: Explain = Field(
        "votes",
        description="what a round says of its clients (`GET /v1/rounds/{id}/explanation`). updates: where each update "
        "points to, beside the others'. votes: also what each client's model says of some of the server's samples, "
        "where the round's job runs networks anyhow. Nothing of it changes a model; secure rounds say nothing",
    )
    over_selection: float = Field(1.0, ge=1, le=10, description="ask this many times more clients than are needed")
    target_accuracy: float | None = Field(None, gt=0, le=1, description="finish early at this test accuracy")
    target_metric: DataValue | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="finish early when the task's main metric is so good on the test set, or better",
    )
    job_seconds: int | None = Field(
        None,
        ge=1,
        le=30 * 86_400,
        description="a job of the federation that a worker does for longer fails with 'out_of_time'; null for no limit",
    )
    max_samples_per_client: int = Field(10_000_000, ge=1, le=2**40, description="largest num_samples that counts")
    keep_ensemble: bool = Field(
        False,
        description="keep each round's teachers, or its clients' models where nothing is distilled, as an ensemble "
        "that predicts and can be downloaded; `retention.ensembles` says of how many rounds",
    )
    evaluate: Evaluate | None = Field(
        None, description="devices measure each model on data that they hold back; null: they train on all of it"
    )
    metrics: Metrics = Field(
        (),
        exclude_if=lambda value: not value,
        description="what is measured of every published model on the test set beside the task's own figure: "
        "`metrics.further` of a round",
    )
    secure: SecurePlan | None = Field(
        None, description="the service learns sums of updates, and no single one; null: it sees every update"
    )

    @property
    def target(self) -> float | None:
        """The value of the task's main metric that ends the federation; None: none does."""
        return self.target_accuracy if self.target_metric is None else self.target_metric

    @property
    def buffering(self) -> Buffering | None:
        """How rounds go that do not wait; None where they do."""
        if self.mode == "synchronous":
            return None
        return Buffering(
            self.buffer or BUFFER,
            STALENESS if self.max_staleness is None else self.max_staleness,
            self.per_client or 1,
            self.staleness or StalenessPolynomial(),
        )

    @property
    def counts_ages(self) -> StalenessChoice | None:
        """What updates count that began from older models; None where there are none."""
        return None if self.buffering is None else self.buffering.staleness

    @property
    def quorum(self) -> int:
        """Clients that must be enrolled before the first round opens."""
        if self.min_clients is not None:
            return max(self.min_clients, self.least)  # a round of fewer could only be skipped
        asked = self.clients_per_round
        if self.buffering is not None:  # fewer could not fill a buffer
            return max(self.least, math.ceil(self.buffering.size / self.buffering.per_client))
        return max(self.least, int(asked)) if asked is not None and asked >= 1 else self.least

    @property
    def least(self) -> int:
        """Updates of which a round can be made: `min_updates`, and in a secure round what a sum is over at least."""
        return self.min_updates if self.secure is None else max(self.min_updates, self.secure.min_group)

    @property
    def most_asked(self) -> int | None:
        """How many devices a round asks at most, where that is known."""
        asked = self.clients_per_round
        count = None if asked is None or (isinstance(asked, float) and asked <= 1) else asked
        wanted = None if count is None else math.ceil(count * self.over_selection - 1e-9)
        if self.secure is None:
            return wanted
        return self.secure.max_clients if wanted is None else min(wanted, self.secure.max_clients)

    @model_validator(mode="after")
    def _possible(self) -> "RoundsPlan":
        asked, kinds = self.clients_per_round, [each.kind for each in self.metrics]
        if len(set(kinds)) < len(kinds):
            raise ValueError("metrics: a kind is there twice, and its figures go by its name; keep one of them")
        if isinstance(asked, float) and asked > 1 and not asked.is_integer():
            raise ValueError("clients_per_round: a count is a whole number; a fraction is at most 1")
        if self.target_accuracy is not None and self.target_metric is not None:
            raise ValueError("target_metric: target_accuracy is there already; give one of the two")
        if asked is not None and asked >= 1 and self.min_updates > asked * self.over_selection:
            raise ValueError("min_updates: more than clients_per_round can deliver")
        if self.gate is not None and self.gate.metric == "devices" and self.evaluate is None:
            raise ValueError("gate.metric: devices measure where the plan has `evaluate`; set it, {} for its defaults")
        if self.secure is not None:
            self._check_secure(self.secure)
        self._check_mode()
        return self

    @property
    def runs_gate(self) -> bool:
        """Whether a worker measures models for the gate."""
        return self.gate is not None and self.gate.role is not None

    def _check_mode(self) -> None:
        """Refuse what belongs to the other mode."""
        if self.buffering is None:
            for name in ("buffer", "max_staleness", "per_client", "staleness"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name}: it is of rounds that do not wait; set mode to 'buffered', or leave it out"
                    )
            return
        size, ask = self.buffering.size, "nobody is asked; whoever asks trains"
        if self.clients_per_round is not None:
            raise ValueError(f"clients_per_round: with mode 'buffered' {ask}; set buffer, the updates of a model")
        if self.over_selection != 1:
            raise ValueError(f"over_selection: with mode 'buffered' {ask}; leave it out")
        if self.replace_lost:
            raise ValueError(
                f"replace_lost: with mode 'buffered' {ask}, and nobody waits for a lost device; leave it out"
            )
        if self.late == "grace":
            raise ValueError("late: with mode 'buffered' updates count in the next buffer; set max_staleness")
        if self.secure is not None:
            raise ValueError("secure: masks are made by devices that begin together; set mode to 'synchronous'")
        if self.gate is not None and self.gate.metric == "devices":
            raise ValueError(
                "gate.metric: with mode 'buffered' devices measure models of several ages; take 'validation' or 'test'"
            )
        if self.min_updates > size:
            raise ValueError(f"min_updates: more than buffer, {size}")
        if self.buffering.per_client > size:
            raise ValueError(f"per_client: more than buffer, {size}")

    def _check_secure(self, secure: SecurePlan) -> None:
        """Refuse what masked updates cannot do, and weights whose sums could wrap."""
        if self.replace_lost:
            raise ValueError("replace_lost: who is in a secure round is fixed by its keys; take over_selection instead")
        if self.on_deadline == "fail":
            raise ValueError("on_deadline: masked updates cannot be kept and fused later; take 'skip' or 'extend'")
        if self.on_bad_teacher == "exclude":
            raise ValueError("on_bad_teacher: nobody's update can be taken out of a sum; take 'fail'")
        if self.max_distance is not None:
            raise ValueError("max_distance: nobody's distance is seen in a sum; leave it out, secure.clip bounds it")
        if self.evaluate is not None:
            raise ValueError("evaluate: figures of single devices are what secure rounds hide; leave it out")
        most = self.most_asked or secure.max_clients
        if most < self.least:
            raise ValueError(
                f"secure.max_clients: a round asks {most} devices and needs {self.least} (min_updates, "
                "secure.min_group); ask more"
            )
        weight, room = most * self.max_samples_per_client, secure.fixed.most_weight
        if weight > room:
            raise ValueError(
                f"max_samples_per_client: sums of {most} devices x {self.max_samples_per_client} samples x 2^"
                f"{secure.bits - 1} levels can exceed 2^{secure.modulus_bits - 1}; set it to {room // most} or less, "
                "lower clients_per_round, secure.max_clients or secure.bits, or take secure.modulus_bits 64"
            )
