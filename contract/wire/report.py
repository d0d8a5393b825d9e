"""What a federation has cost: bytes and seconds, by round, in all, and to an accuracy."""

from typing import Any, Literal

from pydantic import Field

from contract.wire.common import Response
from contract.wire.federations import FederationState
from contract.wire.rounds import RoundState


class Bytes(Response):
    """Bytes of files, without headers of HTTP, TLS and JSON."""

    down: int = Field(0, description="to devices")
    up: int = Field(0, description="from devices")

    def __add__(self, other: "Bytes") -> "Bytes":
        return Bytes(down=self.down + other.down, up=self.up + other.up)


class Seconds(Response):
    """Wall-clock seconds by phase; those of several rounds are summed, also where rounds overlap."""

    collecting: float = Field(0.0, description="from a round's opening to its close: waiting for devices")
    devices: float = Field(
        0.0, description="of all devices together, from the fetch of the assignment to the accepted file: to download, "
        "train and upload"
    )  # fmt: skip
    slowest: float = Field(0.0, description="the same, of each round's slowest device alone")
    training: float = Field(0.0, description="of `devices`, local training, as far as devices tell (`metrics.seconds`)")
    queued: float = Field(0.0, description="from the close to the start of the attempt of the job that made it")
    jobs: float = Field(0.0, description="that attempt's, from its start to its publication")
    phases: dict[str, float] = Field(
        default_factory=dict,
        description="parts of the jobs' as the worker measures them; what is missing to their sum is reading from and "
        "writing to storage, and publishing",
        examples=[{"receive": 0.1, "fuse": 0.2, "label": 4.1, "distil main": 9.5, "evaluate": 0.4}],
    )

    def __add__(self, other: "Seconds") -> "Seconds":
        both = {*self.phases, *other.phases}
        phases = {name: round(self.phases.get(name, 0.0) + other.phases.get(name, 0.0), 3) for name in sorted(both)}
        plain = {name: round(getattr(self, name) + getattr(other, name), 3) for name in _PLAIN}
        return Seconds(**plain, phases=phases)


_PLAIN = tuple(name for name in Seconds.model_fields if name != "phases")


class Flops(Response):
    """Floating-point operations as estimated from the networks' shapes; a multiplication with its addition is two.

    Matrix products and convolutions count, forward and back; what only measures does not.
    """

    training: int = Field(0, description="of devices: local training of the accepted updates")
    discriminators: int = Field(0, description="of devices: discriminators, and the fakes that they are shown")
    labelling: int = Field(0, description="of the server: teachers label what students learn")
    distillation: int = Field(0, description="of the server: students learn")

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(**{name: getattr(self, name) + getattr(other, name) for name in Flops.model_fields})


Role = Literal["prototype", "server", "generator", "discriminator"]


class NetworkFigures(Response):
    """A network that takes part."""

    name: str = Field(description="of its prototype, `server`, `generator` or `discriminator`")
    role: Role
    architecture: str | None
    bytes: int = Field(description="its file as it was first made")
    parameters: int | None = Field(None, description="numbers that are trained; null where it cannot be built here")
    forward_flops: int | None = Field(None, description="of one sample; null where they cannot be counted")
    training_flops: int | None = Field(None, description="of one sample forward and back")


class Cost(Response):
    """What a stretch of a federation has cost."""

    files: Bytes = Field(
        Bytes(),
        description="computed: each device that fetched its assignment gets the model and what goes beside it once, "
        "and each accepted file comes once; Fed-ET's count, with everything that is sent",
    )
    wire: Bytes | None = Field(
        None,
        description="measured where requests end: bodies of downloads and uploads of devices, with parts, repetitions "
        "and what was refused; null where nobody counted",
    )
    seconds: Seconds = Seconds()
    flops: Flops | None = Field(
        Flops(), description="null where they are not known of all that took part; none are of a generator's training"
    )

    def __add__(self, other: "Cost") -> "Cost":
        known = [each.wire for each in (self, other) if each.wire is not None]
        return Cost(
            files=self.files + other.files,
            wire=sum(known, Bytes()) if known else None,
            seconds=self.seconds + other.seconds,
            flops=None if self.flops is None or other.flops is None else self.flops + other.flops,
        )


class RoundCost(Cost):
    """What one round has cost."""

    round: int
    state: RoundState
    accuracy: float | None = Field(None, description="of what it published, on the test set")
    measured: float | None = Field(None, description="the task's main metric, where that is no accuracy")
    clock: float | None = Field(
        None, description="seconds from the first round's opening to this one's publication or other end; of a "
        "simulation those of its virtual clock, null where it has none"
    )  # fmt: skip
    devices: int = Field(description="that fetched their assignment")
    answered: int = Field(description="updates that were accepted")


class TargetCost(Response):
    """What it has cost until the published model first had a test accuracy."""

    target: float
    round: int | None = Field(None, description="the first round that reached it, 0 for the first model; null: none")
    cost: Cost | None = Field(None, description="up to and with that round; `files.down + files.up` is Fed-ET's C_acc")


class Learnt(Response):
    """One thing that a party of the federation learns of another's data."""

    party: Literal["server", "devices"] = Field(description="who learns it; operators learn what the server does")
    what: str
    when: str
    guarded: str = Field("", description="what stands between it and the data; empty: nothing")
    source: str = Field("", description="the paper whose method has it")


class FederationReport(Response):
    """What a federation has cost, and what for."""

    federation_id: str
    name: str
    state: FederationState
    recipe: str
    metric: str = Field("accuracy", description="what the task is measured by, on the test set")
    higher_is_better: bool = Field(True, description="which way that is better")
    first: float | None = Field(None, description="the same of the first models; null where nobody measured them")
    parts: dict[str, Any] = Field(
        default_factory=dict,
        description="what it is made of, by which others differ from it: the task, its networks, the recipe resolved "
        "to its parts, the plans of devices and rounds, the seed",
        examples=[{"recipe": {"name": "fedavg"}, "local": {"epochs": 5}, "seed": 7}],
    )
    networks: list[NetworkFigures]
    before: Cost = Field(description="before the first round: first models, generator, discriminators")
    rounds: list[RoundCost]
    total: Cost = Field(description="before and in the rounds")
    afterwards: Bytes = Field(Bytes(), description="measured after the end: the final models, as devices fetch them")
    others: int = Field(0, description="measured: bytes of models that people and programs downloaded")
    targets: list[TargetCost] = Field(default_factory=list, description="in the order that was asked for")
    learnt: list[Learnt] = Field(default_factory=list, description="who learns what of whose data, by recipe and plan")
