"""What a job is told and what it answers: plain data, so that it can cross to a child process as JSON."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from contract.architectures import CATALOGUE, is_server_side
from contract.federation import fusing_runs_networks
from contract.groups import original
from contract.local import LocalPlan
from contract.metrics import Metrics
from contract.partition import Parts
from contract.recipes import parts
from contract.recipes.recipe import Recipe
from contract.staleness import Staleness
from contract.wire.federations import Task
from contract.wire.plans import Explain, Gate, OnBadTeacher
from worker.masks import SecureSum


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NetworkRef(_Spec):
    """An architecture and a file of its weights."""

    architecture: str
    options: dict[str, Any] = Field(default_factory=dict)
    weights: Path | None = Field(None, description="safetensors file; null to initialise from the seed")
    base: Path | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="file of the tensors that rounds do not move, where `weights` has the others alone",
    )


class PrototypeSpec(_Spec):
    """One prototype with its current global model."""

    name: str
    network: NetworkRef
    parts: Parts | None = Field(
        None, exclude_if=lambda value: value is None, description="how a first model is parted; null: not at all"
    )


class Begun(_Spec):
    """The model that an update began from, where that is not the round's; 0 where it was turned away, not replaced."""

    base: Path
    staleness: int = Field(ge=0)


class UpdateSpec(_Spec):
    """One accepted update. `client` is the client's name: names, not ids, decide every order."""

    client: str
    prototype: str
    weights: Path
    num_samples: int = Field(ge=0)
    label_counts: list[int] | None = Field(None, description="samples per class [C], where the client shares them")
    control_reset: bool = Field(False, description="SCAFFOLD: the client had lost its control variate")
    begun: Begun | None = Field(
        None, exclude_if=lambda value: value is None, description="where it began, if not from the round's model"
    )


class Datasets(_Spec):
    """Server data: safetensors files with `inputs` [N, ...] and optional `labels` [N] (int64)."""

    unlabeled: Path | None = None
    validation: Path | None = None
    test: Path | None = None


class NetworkFiles(_Spec):
    """A network that is a document, and its first weights."""

    document: Path
    weights: Path | None = None


class _Job(_Spec):
    networks: dict[str, NetworkFiles] = Field(
        default_factory=dict,
        exclude_if=lambda value: not value,
        description="architecture -> its files, of the networks that are documents (`contract.networks`)",
    )

    @property
    def needs_networks(self) -> bool:
        """Whether the job may run a network; one that does not is spared the seconds and memory that torch takes."""
        return True


class PackagedChoice(_Spec):
    """A choice of another package, name and version, that the federation's recipe or plan makes."""

    slot: str
    kind: str
    package: str


class InitializeSpec(_Job):
    """Build the first model of each prototype, and of the server where it has one."""

    kind: Literal["initialize"] = "initialize"
    seed: int
    task: Task
    prototypes: list[PrototypeSpec]
    server_model: PrototypeSpec | None = Field(None, description="Fed-ET's larger model; its result is named `server`")
    public: parts.Data | None = Field(None, description="the recipe's data, where devices are to read them (DS-FL)")
    generator: NetworkRef | None = Field(None, description="what devices train beside their model (DaFKD)")
    datasets: Datasets = Datasets()
    packaged: list[PackagedChoice] = Field(
        default_factory=list,
        exclude_if=lambda value: not value,
        description="what later jobs will need of other packages: it is looked for before a device has trained",
    )
    output_dir: Path

    @property
    def needs_networks(self) -> bool:
        """Whether a network is built: not where all first models are files of ones that cannot be built here."""
        beside = (self.server_model, self.public, self.generator, *self.networks, *self.packaged)
        return any(each is not None for each in beside) or not all(_as_given(each) for each in self.prototypes)


def _as_given(prototype: PrototypeSpec) -> bool:
    name, whole = prototype.network.architecture, prototype.network.weights is not None and prototype.parts is None
    return whole and name in CATALOGUE and not is_server_side(name)


class GeneratorSpec(_Job):
    """Make the generator: trained on the unlabelled server set (FedGO, G1), imported (G2) or by the clients (G3).

    The models are `generator`, `discriminator` (freshly initialised) where clients will train one and, where `data`
    is generated or noise, `samples`: a data set's file that takes the place of the unlabelled set in scores and rounds.

    G3 takes T' + 1 jobs. Job 0 has no updates and makes `gan`, the first generator and critic in one file (tensors
    ``generator.*`` and ``critic.*``), which clients train and send back; jobs 1 to T' average what came; the last of
    them makes the models above, and the critic is thrown away.
    """

    kind: Literal["generator"] = "generator"
    seed: int
    task: Task
    generator: parts.Generator
    weights: Path | None = Field(None, description="of the imported generator")
    discriminator: NetworkRef | None = Field(
        None, description="what clients will train, where a weighting reads it; its tensors are what they must deliver"
    )
    unlabeled: Path | None = Field(None, description="needed to train a generator, not for an imported one")
    data: parts.Data | None = Field(None, description="the recipe's data, where it distils")
    gan_round: int = Field(0, ge=0, description="G3: 0 to make the first networks, T' to end")
    gan: Path | None = Field(None, description="G3: what the clients were sent")
    updates: list[UpdateSpec] = Field(default_factory=list, description="G3: what they sent back")
    output_dir: Path


class ScoreSpec(_Job):
    """Score the server sets with every client's discriminator, once for the whole federation."""

    kind: Literal["score"] = "score"
    task: Task
    architecture: str
    options: dict[str, Any] = Field(default_factory=dict)
    discriminators: dict[str, Path] = Field(description="client name -> weights")
    input_range: tuple[float, float] = Field(description="data values that map to -1 and 1")
    datasets: Datasets
    output_dir: Path


class ScorerSpec(_Spec):
    """How discriminators score samples."""

    architecture: str
    options: dict[str, Any] = Field(default_factory=dict)
    input_range: tuple[float, float]


class DrawnSpec(_Spec):
    """What a round's own samples are drawn from, and what scores them, where every round draws anew."""

    generator: NetworkRef
    input_range: tuple[float, float] = Field(description="data values that -1 and 1 stand for")
    scorer: ScorerSpec | None = Field(None, description="where a weighting reads scores")
    discriminators: dict[str, Path] = Field(default_factory=dict, description="client name -> weights")


class RegisteredSpec(_Spec):
    """A client that is registered, whether it took part in the round or not."""

    prototype: str
    num_samples: int = Field(ge=0)
    scores: Path | None = Field(None, description="as `RoundSpec.scores`; null where it has none")


class RoundSpec(_Job):
    """Fuse one round."""

    kind: Literal["round"] = "round"
    seed: int
    round_index: int = Field(ge=1, description="1 for the first round")
    rounds_total: int = Field(ge=1)
    task: Task
    recipe: Recipe
    prototypes: list[PrototypeSpec]
    updates: list[UpdateSpec]
    datasets: Datasets = Datasets()
    scores: dict[str, Path] = Field(
        default_factory=dict,
        description="per client: safetensors file with float32 tensors 'unlabeled' [|U|] and 'test' [|T|]",
    )
    registered: dict[str, RegisteredSpec] = Field(
        default_factory=dict,
        exclude_if=lambda value: not value,
        description="by client, where the recipe reads of absent ones what they have; empty: those of the updates",
    )
    exchanged: dict[str, Any] = Field(
        default_factory=dict,
        exclude_if=lambda value: not value,
        description="the figure `members` of a recipe whose own were not taken",
    )
    drawn: DrawnSpec | None = Field(None, description="where the data are drawn anew in every round")
    local: LocalPlan = Field(LocalPlan(), description="what the clients ran, and thus how their files are read")
    on_bad_teacher: OnBadTeacher = Field("fail", description="what a network of NaN or infinity does to the round")
    min_updates: int = Field(1, ge=1, description="fewer are not fused, whoever is left out")
    max_distance: float | None = Field(None, gt=0, description="the plan's: updates further off are not fused")
    staleness: Staleness | None = Field(
        None, exclude_if=lambda value: value is None, description="the plan's, of rounds that do not wait"
    )
    explain: Explain = Field("off", exclude_if=lambda value: value == "off", description="the plan's rounds.explain")
    gate: Gate | None = Field(None, description="measure new models beside those that they would replace")
    metrics: Metrics = Field((), exclude_if=lambda value: not value, description="the plan's, measured on the test set")
    hand_over: bool = Field(
        False, description="give the groups' averages away before the main model is distilled (FedSDD App. A.6)"
    )
    secure: SecureSum | None = Field(None, description="the plan's rounds.secure, and what unmasks the sums")
    keep_ensemble: bool = Field(False, description="make files of the models that predict together")
    clients_total: dict[str, int] = Field(
        default_factory=dict, description="prototype -> N, its registered clients (SCAFFOLD)"
    )
    server_model: PrototypeSpec | None = Field(None, description="Fed-ET's larger model")
    state: dict[str, Path] = Field(
        default_factory=dict,
        description="what the recipe keeps between rounds, by name: safetensors files made by the round before",
    )
    shards: list[Path] = Field(
        default_factory=list,
        exclude_if=lambda value: not value,
        description="what other jobs found its teachers to say; the result is the same without them",
    )
    output_dir: Path

    @model_validator(mode="before")
    @classmethod
    def _one_number_for_all(cls, given: Any) -> Any:
        """Read documents of rounds that were fused when N was one number for all prototypes."""
        if isinstance(given, dict) and isinstance(total := given.get("clients_total"), int):
            prototypes = (PrototypeSpec.model_validate(each).name for each in given["prototypes"])
            return given | {"clients_total": {original(name): total for name in prototypes}}
        return given

    @property
    def needs_networks(self) -> bool:
        """Whether fusing or measuring runs a network."""
        measured = self.datasets.test is not None or self.gate is not None
        return fusing_runs_networks(self.recipe, self.local, measured)


class LabelsSpec(_Job):
    """Ask some of a round's teachers what they say of its sets, for the job that fuses it."""

    kind: Literal["labels"] = "labels"
    round: RoundSpec = Field(description="with the updates, or the models of earlier rounds, that are asked here alone")
    part: int = Field(0, ge=0, description="which part of every set")
    parts: int = Field(1, ge=1, description="of so many")
    output_dir: Path


class MemberSpec(_Spec):
    """One model of an ensemble that predicts."""

    name: str
    network: NetworkRef
    num_samples: int = 1
    is_group: bool = False
    counted: dict[str, float] | None = Field(None, description="of a group: ln of what its clients count, by factor")
    discriminator: Path | None = Field(None, description="its client's, where the weighting reads scores")


class EnsembleSpec(_Spec):
    """Models that predict together, by a recipe's weighting and combination."""

    members: list[MemberSpec]
    weigh: parts.Weigh
    combine: parts.Combine
    scorer: ScorerSpec | None = None


class PredictSpec(_Job):
    """Predict a data set, with one model or with an ensemble."""

    kind: Literal["predict"] = "predict"
    task: Task
    dataset: Path = Field(description="safetensors file with `inputs` [N, ...] and, to be measured, `labels` [N]")
    network: NetworkRef | None = Field(None, description="the one model; null for the ensemble")
    ensemble: EnsembleSpec | None = None
    output_dir: Path


JobSpec = InitializeSpec | GeneratorSpec | ScoreSpec | RoundSpec | LabelsSpec | PredictSpec


class KeptMember(_Spec):
    """One model of a round's ensemble, in a file that the job was told or has made."""

    name: str
    client: str | None = None
    network: NetworkRef
    num_samples: int = 1
    is_group: bool = False
    counted: dict[str, float] | None = None


class JobResult(_Spec):
    """What a job made: files under its output_dir, and figures.

    `models` maps a prototype's name (or 'generator' and 'discriminator', or a client's name for scores) to a file.
    """

    models: dict[str, Path]
    state: dict[str, Path] | None = Field(
        None,
        description="all that is kept for the next round, old files that stay included; "
        "what devices are sent among them; null changes nothing",
    )
    ensemble: list[KeptMember] | None = Field(None, description="of a round that keeps one: who predicts together")
    metrics: dict[str, Any] = Field(default_factory=dict)
    device: str = "cpu"
    peak_memory_bytes: int | None = None
    origin: dict[str, Any] | None = Field(
        None, description="what it was made from and by what, see `worker.origin`; null where nobody asked"
    )
    resumed_from: "Resumed | None" = Field(None, description="where this attempt took up an earlier one's work")


class CheckpointSpec(_Spec):
    """Where and how often a job's attempt writes its state; see `worker.checkpoints`."""

    folder: Path
    fence: int
    every_seconds: float
    max_bytes: int


class Resumed(_Spec):
    """The state that a job went on from."""

    phase: str
    step: int


class Handover(_Spec):
    """What a round's job gives away before it ends: models that its distillation does not change (FedSDD App. A.6).

    Whoever gets it owns the files.
    """

    models: dict[str, Path]
    origin: dict[str, Any] | None = Field(None, description="as a result's")


class Progress(_Spec):
    """Where a running job is."""

    phase: str
    step: int = 0
    of: int = 0
    resumed: bool = Field(False, description="this step was not done but found in a checkpoint")


class JobFailure(Exception):
    """A job that cannot be done. `code` is stable, the message says what to do, `client` whose update it is due to."""

    def __init__(self, code: str, detail: str, client: str | None = None):
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.client = client
