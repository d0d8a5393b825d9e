"""What a device says and is told: enrolment and assignment."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from contract.bodies import LISTED
from contract.bounds import AtMost, Label, Reference
from contract.choices import ONE_OF
from contract.evaluation import Evaluate
from contract.labels import MOST_CLASSES
from contract.local import DiscriminatorPlan, Link, LocalPlan, Privacy
from contract.recipes.parts import GeneratorFederated
from contract.wire.common import Name, Request, Response, Timestamp
from contract.wire.federations import Capability, FederationState, ModelRef, Prototype, Task
from contract.wire.metadata import MetricsText as MetricsText
from contract.wire.metadata import UpdateMetadata as UpdateMetadata
from contract.wire.metadata import UpdateMetrics as UpdateMetrics
from contract.wire.secure import Sealed, SecureKeys, SecureRound, Signature

LONGEST_PASS = 86_400.0
"""Seconds that a batch may take at most, as far as heartbeats are concerned."""
Count = Annotated[int, Field(ge=0, le=2**40)]


class Enrolment(Request):
    """A device joins a federation, once."""

    name: Name = Field(description="unique in the federation; results are reproducible by names")
    num_samples: int = Field(ge=1, le=2**40, description="size of the local data set", examples=[120])
    label_counts: Annotated[list[Count], AtMost(MOST_CLASSES)] | None = Field(
        None, description="samples per class, if you share them; they sum to `num_samples`"
    )
    classes: Annotated[list[Label], AtMost(MOST_CLASSES)] | None = Field(
        None, description="names of your classes in the order of your labels, if the task has names"
    )
    capabilities: dict[Label, Capability] = Field(
        default_factory=dict, max_length=32, description="what the prototypes' requirements are held against"
    )
    prototype: Reference | None = Field(
        None, description="ask for a prototype by name; the default is the first one whose requirements are met"
    )


class Declaration(Request):
    """How large an enrolled device's data set is now; updates may tell of so many samples at most."""

    num_samples: int = Field(ge=1, le=2**40, description="size of the local data set", examples=[150])
    label_counts: list[Count] | None = Field(
        None, max_length=100_000, description="samples per class, if you share them; they sum to `num_samples`"
    )


class Declared(Response):
    """What a device has declared, as it counts from now on."""

    client_id: str
    num_samples: int
    enrolled_samples: int = Field(description="what it said when it enrolled")


class TensorKind(Response):
    """What a tensor of a model is like."""

    dtype: str = Field(description="as in safetensors", examples=["F32"])
    shape: list[int]


class FederationCard(Response):
    """What a device must know before it joins: whether its data fit, which networks there are, what it will train.

    A device tries a step of `local` with its own data and network before it enrols: nobody waits for one that cannot.
    """

    federation_id: str
    federation_name: str
    state: FederationState
    task: Task
    prototypes: list[Prototype]
    wants_label_counts: bool = Field(description="whether the recipe weighs clients by their labels")
    local: LocalPlan | None = Field(None, description="what a device runs in a round, as it is now")
    tensors: dict[str, dict[str, TensorKind]] = Field(
        default_factory=dict,
        description="the tensors of prototypes that are networks of their users' own, by name; in the file's order",
    )


class Enrolled(Response):
    """The device's identity. The token is shown here only; keep it."""

    client_id: str
    federation_id: str
    token: str
    prototype: str
    token_expires_at: Timestamp | None = Field(None, description="rotate it before; null for no end")


class Reissued(Response):
    """A fresh token for an enrolled device, shown only here; the one before stopped working."""

    client_id: str
    token: str
    token_expires_at: Timestamp | None = None


class PrototypeChoice(Request):
    """The prototype that a client trains."""

    prototype: Name


class ClientInfo(Response):
    """A device as the operator sees it."""

    id: str
    name: str
    prototype: str
    num_samples: int = Field(description="as declared last; its updates may tell of fewer, not of more")
    enrolled_samples: int | None = Field(None, description="what it said when it enrolled")
    declared_at: Timestamp | None = Field(None, description="when it declared another number; null: never")
    enrolled_at: Timestamp
    last_seen_at: Timestamp | None = None
    revoked_at: Timestamp | None = None
    token_state: Literal["active", "expired", "revoked"] = "active"
    token_expires_at: Timestamp | None = None
    has_discriminator: bool = False
    gan_rounds: list[int] = Field(
        default_factory=list, description="rounds of the federated generator that it has delivered, see `gan_round`"
    )
    updates: int = Field(0, description="updates accepted so far")


class AssignedRound(Response):
    """The round that a device works for."""

    id: str
    index: int = Field(ge=1)
    total: int
    deadline_at: Timestamp
    heartbeat_seconds: int | None = Field(
        None, description="say so often, while you train, that you do: POST /v1/rounds/{id}/heartbeat"
    )
    turn: int = Field(
        0,
        ge=0,
        exclude_if=lambda value: not value,
        description="where rounds do not wait: how many updates this device has given from this model before. `id` has "
        "it, too, and draws differ by it",
    )
    buffered: bool = Field(
        False,
        exclude_if=lambda value: not value,
        description="rounds do not wait: what was trained from an earlier model may still count, under its own id",
    )


class Heartbeat(Request):
    """A device is alive and trains for a round; it may say how far it is."""

    epoch: int | None = Field(None, ge=0, le=2**31, description="local epochs done", examples=[2])
    step: int | None = Field(None, ge=0, le=2**40, description="steps done", examples=[120])
    of: int | None = Field(None, ge=1, le=2**40, description="steps in all", examples=[300])
    passes: int | None = Field(
        None,
        ge=0,
        le=2**40,
        description="batches begun so far, of any kind: a device that says so while it computes, and whose number "
        "stays for long, counts as lost",
        examples=[121],
    )
    pass_seconds: float | None = Field(
        None,
        ge=0,
        le=LONGEST_PASS,
        allow_inf_nan=False,
        description="the longest that a batch took; ten minutes, or twenty times this, is what counts as long",
    )

    @model_validator(mode="after")
    def _within(self) -> "Heartbeat":
        if self.step is not None and self.of is not None and self.step > self.of:
            raise ValueError("step: more than `of`, the steps in all")
        return self


class HeartbeatReceipt(Response):
    """The round as it is: a deadline may have moved."""

    round_id: str
    round: int
    state: str
    answered: bool = Field(description="whether this client's update is here")
    deadline_at: Timestamp
    closes_at: Timestamp = Field(description="the deadline, or the end of the grace")
    heartbeat_seconds: int = Field(description="when to say so again")


class GeneratorRef(Response):
    """The generator whose images are the discriminator's fakes."""

    model: ModelRef
    architecture: str
    options: dict[str, Any] = Field(default_factory=dict)
    input_range: Annotated[tuple[float, float], LISTED] = Field(description="data values that map to -1 and 1")


class _Assignment(Response):
    federation_id: str
    federation_name: str
    state: FederationState
    task: Task
    prototype: Prototype
    seed: int = Field(description="the federation's seed; a device derives its own numbers from it and its name")
    client_name: str


class SecureKeysAssignment(_Assignment):
    """Make fresh keys for this session of secure aggregation, and say the public ones."""

    action: Literal["secure_keys"] = "secure_keys"
    round: AssignedRound
    secure: SecureRound


class SecureSharesAssignment(_Assignment):
    """Share this device's secrets among those that it masks with."""

    action: Literal["secure_shares"] = "secure_shares"
    round: AssignedRound
    secure: SecureRound
    peers: dict[str, SecureKeys] = Field(description="everybody's keys by name, this device's among them")


class SecureConfirmAssignment(_Assignment):
    """Sign who uploaded, if that can be true."""

    action: Literal["secure_confirm"] = "secure_confirm"
    round: AssignedRound
    secure: SecureRound
    survivors: list[str]


class SecureRevealAssignment(_Assignment):
    """Reveal the shares that unmask the sum, if enough others have signed the same survivors."""

    action: Literal["secure_reveal"] = "secure_reveal"
    round: AssignedRound
    secure: SecureRound
    signatures: dict[str, Signature] = Field(description="by the name of who signed")
    sealed: dict[str, Sealed] = Field(description="shares for this device, by the name of who sealed them")


class TrainAssignment(_Assignment):
    """Train the round's model on local data and upload it; masked, where the round is secure."""

    action: Literal["train"] = "train"
    round: AssignedRound
    model: ModelRef
    extras: dict[str, ModelRef] = Field(
        default_factory=dict,
        description="what the objective reads beside the model: `control` (SCAFFOLD), `teacher` (FedGKD), "
        "`prototypes` (FedTGP), `public` and `targets` (DS-FL); `base`, the tensors that rounds do not move, where "
        "the model has the others alone",
    )
    local: LocalPlan
    evaluate: Evaluate | None = Field(
        None,
        description="hold samples back from training, measure the model on them before, in the rounds that it names, "
        "and tell the figures: `evaluation` in the file's `metrics`",
    )
    upload_url: str
    secure: SecureRound | None = None
    members: list[str] = Field(default_factory=list, description="of a secure round: whose masks are in the sum")


_PRIVATE = "train by DP-SGD, count its cost, and tell it: `epsilon` in the file's `metrics`; null for no noise"


class TrainGanAssignment(_Assignment):
    """Train the generator and its critic on local data for one round and upload both (FedGO's G3; FedGAN)."""

    action: Literal["train_gan"] = "train_gan"
    model: ModelRef = Field(description="tensors generator.* and critic.*")
    plan: Annotated[GeneratorFederated, ONE_OF]
    privacy: Privacy | None = Field(None, description=_PRIVATE)
    gan_round: int = Field(ge=1, description="of plan.rounds")
    deadline_at: Timestamp
    upload_url: str


class DiscriminatorAssignment(_Assignment):
    """Train a discriminator, once, against the generator's images, and upload it (FedGO)."""

    action: Literal["train_discriminator"] = "train_discriminator"
    generator: GeneratorRef
    plan: DiscriminatorPlan
    privacy: Privacy | None = Field(None, description=_PRIVATE)
    link: Link
    upload_url: str


class WaitAssignment(_Assignment):
    """Nothing to do yet; ask again (the long poll returns as soon as there is)."""

    action: Literal["wait"] = "wait"
    reason: str


class DoneAssignment(_Assignment):
    """The federation is over; `state` says how."""

    action: Literal["done"] = "done"
    model: ModelRef | None = None
    base: ModelRef | None = Field(
        None, description="the tensors that rounds did not move, where the model has the others alone"
    )
    accuracy: float | None = None


Assignment = Annotated[
    TrainAssignment
    | SecureKeysAssignment
    | SecureSharesAssignment
    | SecureConfirmAssignment
    | SecureRevealAssignment
    | TrainGanAssignment
    | DiscriminatorAssignment
    | WaitAssignment
    | DoneAssignment,
    Field(discriminator="action"),
]


class UpdateReceipt(Response):
    """Proof that an update is stored and counts."""

    id: str
    round_id: str
    round: int
    client_id: str
    digest: str
    size: int
    num_samples: int
    received_at: Timestamp


class GanReceipt(Response):
    """Proof that a client's generator and critic of a round are stored."""

    id: str
    client_id: str
    gan_round: int
    digest: str
    size: int
    num_samples: int
    received_at: Timestamp


class DiscriminatorReceipt(Response):
    """Proof that a discriminator is stored."""

    id: str
    client_id: str
    digest: str
    size: int
    received_at: Timestamp
