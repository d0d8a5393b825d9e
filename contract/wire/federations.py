"""Federations: what an operator creates and everybody's rounds belong to."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, StrictBool, StrictFloat, StrictInt, Tag, model_validator

from contract.bodies import Part
from contract.bounds import CLIENTS, COUNT, ROUNDS, FreeOptions, Id, Label, Reference, Text
from contract.groups import SEPARATOR
from contract.local import LocalChanges, LocalPlan
from contract.notes import Note
from contract.partition import Parts
from contract.recipes.recipe import Recipe
from contract.tasks import TaskKind
from contract.wire.common import Digest, Name, Request, Response, Timestamp
from contract.wire.plans import RoundsPlan
from contract.wire.retention import Retention
from contract.wire.tasks import InputSpec as InputSpec
from contract.wire.tasks import Task as Task

FederationState = Literal[
    "created",
    "preparing",
    "training_generator",
    "collecting_discriminators",
    "scoring",
    "running",
    "paused",
    "finished",
    "cancelled",
    "failed",
]
TERMINAL_STATES: frozenset[str] = frozenset({"finished", "cancelled", "failed"})


def _no_separator(name: str) -> str:
    if SEPARATOR in name:
        raise ValueError(f"{SEPARATOR!r} is not allowed: it marks the models of groups")
    return name


Capability = (
    StrictBool
    | Annotated[StrictInt, Field(ge=-COUNT, le=COUNT)]
    | Annotated[StrictFloat, Field(ge=-COUNT, le=COUNT)]
    | Text
)


class Prototype(Parts):
    """One network that clients train; a federation may have several."""

    name: Annotated[Name, AfterValidator(_no_separator)] = "main"
    architecture: Reference = Field(examples=["cnn-digits"])
    options: FreeOptions = Field(default_factory=dict)
    initial_model: Id | None = Field(None, description="id of an imported model to start from; else from the seed")
    requires: dict[Label, Capability] = Field(
        default_factory=dict,
        max_length=32,
        description="capabilities of the clients that train it: numbers at least so large, everything else equal. "
        "A client gets the first prototype whose requirements it meets",
        examples=[{"memory_mb": 4096}],
    )
    local: LocalChanges | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="what its clients do otherwise than the federation's `local` says",
        examples=[{"epochs": 2, "optimizer": {"kind": "sgd", "lr": 0.05}}],
    )

    @property
    def parts(self) -> Parts:
        """How the network is parted."""
        return Parts(trains=self.trains, keeps=self.keeps, lora=self.lora)

    @property
    def shown(self) -> str:
        """Its name and network, and how that is parted, in words."""
        return f"{self.name}: {self.architecture}" + (f" ({self.in_words})" if self.in_words else "")


class DatasetRefs(Part):
    """Server data of a federation, each an id or a name of a registered data set."""

    unlabeled: Reference | None = Field(
        None, description="what teachers label and students learn from; DS-FL sends its inputs to every device"
    )
    validation: Reference | None = Field(None, description="labelled; for early stopping")
    test: Reference | None = Field(None, description="labelled; accuracy is reported on it after every round")


class RecipeChoice(Part):
    """A built-in recipe by name, with changes to its options."""

    name: Id = Field(examples=["fedgo"])
    options: FreeOptions = Field(default_factory=dict, examples=[{"link": "sigmoid", "schedule": {"epochs": 10}}])


def _form(recipe: Any) -> str:
    """Tell a whole recipe, which has parts, from a built-in one's name; the errors are then of what was meant."""
    if isinstance(recipe, Mapping):
        return "whole" if recipe.keys() & (Recipe.model_fields.keys() - {"name"}) else "named"
    return "whole" if isinstance(recipe, Recipe) else "named"


RecipeOrChoice = Annotated[
    Annotated[RecipeChoice, Tag("named")] | Annotated[Recipe, Tag("whole")], Discriminator(_form)
]


class JoinLimits(Request):
    """How often and how long a join token enrols devices."""

    max_uses: int | None = Field(
        None, ge=1, le=CLIENTS, description="devices that may enrol with it; null for any", examples=[20]
    )
    valid_seconds: int | None = Field(
        None, ge=60, le=10 * 366 * 86_400, description="its life; null for the service's default", examples=[172_800]
    )


class JoinState(Response):
    """What is left of a join token."""

    state: Literal["open", "exhausted", "expired"]
    uses: int = Field(description="devices that enrolled with it")
    max_uses: int | None = None
    expires_at: Timestamp | None = None


class FederationCreate(Request):
    """A new federation."""

    name: Name = Field(examples=["digits"])
    task: Task
    prototypes: list[Prototype] = Field(min_length=1, max_length=32)
    server_model: Prototype | None = Field(None, description="the larger model that Fed-ET trains on the server")
    recipe: RecipeOrChoice = Field(examples=[{"name": "fedavg"}])
    local: LocalPlan | None = Field(None, description="local training; null for the recipe's own")
    rounds: RoundsPlan = RoundsPlan()
    datasets: DatasetRefs = DatasetRefs()
    seed: int = Field(0, ge=0, lt=2**63)
    queue: Literal["auto", "cpu", "gpu"] = Field(
        "auto", description="which workers do the jobs that run networks; auto: those with a GPU queue"
    )
    retention: Retention | None = Field(None, description="what is kept; null for the service's POTSTILL_RETENTION")
    join: JoinLimits = Field(JoinLimits(), description="limits of the join token")


class ModelRef(Response):
    """Where a model is."""

    id: str = Field(examples=["mdl_01…"])
    digest: Digest
    size: int
    url: str = Field(examples=["/v1/models/mdl_01…/weights"])


class FederationSummary(Response):
    """One row of the list."""

    id: str
    name: str
    state: FederationState
    recipe: str
    round: int = Field(description="index of the newest round; 0 before the first")
    rounds_total: int
    clients: int = Field(description="enrolled and not revoked")
    kind: TaskKind = Field("classification", description="of the task")
    accuracy: float | None = Field(
        None, description="test accuracy of the newest global model; null where the task is measured by something else"
    )
    metric: str = Field("accuracy", description="what the task is measured by", examples=["mean_iou"])
    higher_is_better: bool = Field(True, description="of the metric")
    measured: float | None = Field(None, description="its value on the test set, of the newest global model")
    created_at: Timestamp
    started_at: Timestamp | None = None
    finished_at: Timestamp | None = None
    error: str | None = Field(None, description="stable code of what ended it, when failed")
    detail: str | None = Field(None, description="the reason, also of a round that was extended or skipped")


class FederationDraft(Response):
    """What a request becomes, or became: all of its parts, and what is otherwise than it was asked for."""

    name: str
    task: Task
    prototypes: list[Prototype]
    server_model: Prototype | None = None
    networks: dict[str, str] = Field(
        default_factory=dict,
        description="how its networks that are documents are called, by their architecture",
        examples=[{"net:sha256-…": "net:ward-net"}],
    )
    composition: Recipe = Field(description="the recipe, resolved to its parts")
    local: LocalPlan
    rounds: RoundsPlan
    datasets: DatasetRefs
    seed: int
    queue: Literal["auto", "cpu", "gpu"] = "auto"
    retention: Retention | None = Field(None, description="null: the service's POTSTILL_RETENTION")
    notes: list[Note] = Field(
        default_factory=list,
        description="what was left out, taken by default or changed because of what else was asked for, and why",
    )


class Federation(FederationSummary, FederationDraft):
    """A federation in full."""

    join: JoinState | None = Field(None, description="what is left of the join token")
    current_round: str | None = Field(None, description="id of the newest round")
    waiting_for: str | None = Field(None, description="what keeps the federation from going on, if anything does")
    gan_round: int = Field(0, description="round of the federated generator (FedGAN); rounds + 1 when it is made")
    discriminators: int = Field(0, description="clients whose discriminator is here")
    models: dict[str, ModelRef] = Field(default_factory=dict, description="prototype -> its current global model")
    accuracies: list[tuple[int, float]] = Field(default_factory=list, description="(round, test accuracy)")
    measurements: list[tuple[int, float]] = Field(
        default_factory=list, description="(round, the main metric on the test set), whatever it is"
    )
    figures: dict[str, dict[str, float]] = Field(
        default_factory=dict, description="model -> the task's own figures, on the test set, of the newest round"
    )

    def called(self, text: str) -> str:
        """Return a text in which its networks have the names that they are registered by."""
        for architecture, name in self.networks.items():
            text = text.replace(architecture, name)
        return text


class FederationCreated(Federation):
    """The answer to creation: the one time that the join token is shown."""

    join_token: str


class JoinToken(Response):
    """A fresh join token; the one before no longer works."""

    join_token: str
    max_uses: int | None = None
    expires_at: Timestamp | None = None


class Rollback(Request):
    """How far to go back; one of the two."""

    round: int | None = Field(None, ge=0, le=ROUNDS, description="to the models after this round; 0 are the first ones")
    rounds: int | None = Field(
        None, ge=1, le=ROUNDS, description="undo so many published rounds, counted from the newest"
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> "Rollback":
        if (self.round is None) == (self.rounds is None):
            raise ValueError("name round or rounds, one of the two")
        return self
