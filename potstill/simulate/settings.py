"""What an experiment is told, and what it takes where nothing is said: networks and lengths per data set."""

from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError, field_serializer, field_validator

from contract.architectures import CATALOGUE
from contract.bodies import Part
from contract.faults import faults_of
from contract.local import LocalPlan
from contract.recipes import presets
from contract.recipes.errors import RecipeError
from contract.recipes.recipe import Recipe, merge
from contract.tasks import TaskKind
from contract.wire.changes import PlanChange
from contract.wire.federations import (
    FederationCreate,
    Prototype,
    RecipeChoice,
    Task,
)
from contract.wire.plans import RoundsPlan
from potstill.simulate import kinds
from potstill.simulate.config import SimulationError
from potstill.simulate.liars import Lie
from potstill.simulate.loaded import Loaded
from potstill.simulate.speeds import Speeds

Partition = Literal["dirichlet", "step", "iid", "user"]
ImageTransform = Literal["invert", "rotate"]


class RecipeEntry(Part):
    """One recipe of a comparison: a preset with options, or a composition of one's own."""

    name: str = Field(description="of the preset; for one's own composition, whatever it is called")
    label: str | None = Field(None, description="in tables, plots and folders; default: the name")
    options: dict[str, Any] = Field(default_factory=dict)
    local: dict[str, Any] = Field(default_factory=dict, description="changes to the local plan, nested")
    plan: dict[str, Any] = Field(default_factory=dict, description="changes to the plan of rounds, nested")
    recipe: Recipe | None = Field(None, description="a whole composition instead of a preset")
    pooled: bool = Field(False, description="central training: one model on all clients' data together")

    @property
    def title(self) -> str:
        """What it is called in tables."""
        return self.label or self.name


class PlannedChange(Part):
    """What of the plan is otherwise from a round on."""

    from_round: int = Field(ge=2)
    change: PlanChange = Field(description="as `PATCH /v1/federations/{id}/plan` takes it")

    @field_serializer("change")
    def _told(self, change: PlanChange) -> dict[str, Any]:
        """What was left out is not null, which would be the default again."""
        return change.told()

    def of(self, recipe: Recipe) -> PlanChange | None:
        """Return what of it a recipe has; None where nothing is left."""
        told = self.change.told()
        if recipe.distil is None:
            told.pop("schedule", None)
        return PlanChange.model_validate(told) if told else None


class Experiment(Part):
    """A comparison of recipes on the same partitions, first models and participation."""

    recipes: list[RecipeEntry] = Field(min_length=1)
    data: str = "digits"
    data_dir: str | None = None
    task: TaskKind | None = Field(None, description="of a file's labels; default: what they can only be of")
    metric: str | None = Field(None, description="what the task is measured by; default: the first of its kind")
    clients: int = Field(20, ge=1, le=100_000)
    partition: Partition = "dirichlet"
    alpha: float = Field(0.1, gt=0)
    balanced: Literal["feddf"] | None = None
    smallest: int = Field(10, ge=1, description="samples of a client at least (dirichlet, user)")
    major: int = Field(2, ge=1, description="major classes of a client (step)")
    minor: int = Field(10, ge=0, description="samples of each minor class (step)")
    rounds: int = Field(10, ge=1)
    changes: list[PlannedChange] = Field(default_factory=list, description="of every recipe that has what they change")
    seeds: int = Field(3, ge=1, le=1000, description="runs of each recipe, with seeds first_seed, first_seed + 1, …")
    first_seed: int = Field(0, ge=0)
    seed_list: list[int] | None = Field(None, min_length=1, max_length=1000, description="these seeds instead")
    clients_per_round: int | float | None = None
    plan: dict[str, Any] = Field(default_factory=dict, description="changes to every recipe's plan of rounds, nested")
    speeds: Speeds | None = Field(None, description="how fast devices are, by a virtual clock; default: none")
    prototypes: list[Prototype] | None = Field(None, description="default: one network that suits the data")
    server_model: Prototype | None = None
    local: dict[str, Any] = Field(default_factory=dict, description="changes to every recipe's local plan, nested")
    lengths: Literal["short", "paper"] = Field("short", description="short: so that two cores can carry it")
    samples: int | None = Field(None, ge=1, description="samples of all clients together; default: all there are")
    server_samples: int | None = Field(None, ge=0, description="unlabelled samples of the server")
    server_data: str | None = Field(None, description="the set that they are of; default: the clients'")
    server_transform: ImageTransform | None = Field(None, description="what is done to them, where they are images")
    server_skew: float | None = Field(None, gt=0, lt=1, description="share that is kept of half of their classes")
    client_transform: ImageTransform | None = Field(None, description="what clients' images differ by, in turn")
    validation_samples: int = Field(0, ge=0, description="labelled samples of the server, for early stopping")
    test_samples: int | None = Field(None, ge=1)
    liars: int = Field(0, ge=0, description="clients that lie, drawn by the seed")
    lie: Lie | None = Field(None, description="what they send in place of the truth")
    device: str = "cpu"
    threads: int | None = Field(1, ge=1, description="torch's; results depend on their number")

    @field_validator("clients_per_round")
    @classmethod
    def _counted(cls, asked: int | float | None) -> int | float | None:
        return int(asked) if asked is not None and asked >= 1 and float(asked).is_integer() else asked

    @field_validator("seed_list")
    @classmethod
    def _each_once(cls, seeds: list[int] | None) -> list[int] | None:
        if seeds is not None and (min(seeds) < 0 or len(set(seeds)) < len(seeds)):
            raise ValueError("give each seed once, from 0 on")
        return seeds

    @property
    def all_seeds(self) -> list[int]:
        """The seeds of each recipe's runs, in their order."""
        return self.seed_list or list(range(self.first_seed, self.first_seed + self.seeds))


class _Suited(BaseModel):
    """Networks that suit a kind of input."""

    classifier: str
    options: dict[str, Any] = {}
    larger: str
    generator: dict[str, Any] = {}
    discriminator: str | None = None


_SUITED = {
    "digits": _Suited(classifier="cnn-digits", larger="resnet-8", generator={"architecture": "gen-mlp"},
                      discriminator="disc-cnn-digits"),
    "grey": _Suited(classifier="cnn-digits", larger="resnet-8",
                    generator={"architecture": "gen-mlp"}, discriminator="disc-cnn-mlp"),
    "colour": _Suited(classifier="resnet-8", larger="resnet-20",
                      generator={"architecture": "gen-dcgan"}, discriminator="disc-cnn-4"),
    "text": _Suited(classifier="lstm", options={"width": 64}, larger="lstm"),
    "vector": _Suited(classifier="mlp", larger="mlp", generator={"architecture": "gen-mlp"},
                      discriminator="disc-mlp"),
    "dense": _Suited(classifier="unet-small", options={"width": 8}, larger="unet-small",
                     generator={"architecture": "gen-mlp"}, discriminator="disc-mlp"),
    "tokens": _Suited(classifier="transformer-causal-tiny", larger="transformer-causal-tiny"),
}  # fmt: skip
_SHORT_LOCAL = {"optimizer": {"kind": "adam", "lr": 1e-3}, "epochs": 10, "batch_size": 32}
_SHORT_DISTIL = {"schedule.epochs": 10, "schedule.batch_size": 64}
_SHORT_DISCRIMINATOR = {
    "optimizer": {"kind": "adam", "lr": 1e-3, "betas": [0.5, 0.999]},
    "epochs": 30,
    "batch_size": 32,
}
_SHORT_GENERATOR_STEPS = 300


def suited(task: Task, vocabulary: int | None = None) -> _Suited:
    """Return the networks for a task and its inputs.

    Args:
        task: what they decide.
        vocabulary: token ids that they know at least; None: the architecture's own number.
    """
    shape = task.input.shape
    if task.kind == "tokens":
        found = _SUITED["tokens"]
        return found if vocabulary is None else found.model_copy(update={"options": {"vocab_size": vocabulary}})
    if task.kind == "dense":
        return _SUITED["dense"]
    if task.input.dtype == "int64":
        return _SUITED["text"]
    if len(shape) != 3:
        return _SUITED["vector"]
    if shape == [3, 32, 32]:
        return _SUITED["colour"]
    return _SUITED["digits" if max(shape[1:]) <= 16 else "grey"]


def task_of(loaded: Loaded, metric: str | None = None) -> Task:
    """Return the task that a data set sets.

    Args:
        loaded: the set.
        metric: what it is measured by; None: its kind's first.

    Raises:
        SimulationError: the kind has no such metric.
    """
    return kinds.task_of(loaded.kind, loaded.num_classes, loaded.train.inputs, metric)


def federation(
    experiment: Experiment, entry: RecipeEntry, task: Task, seed: int, vocabulary: int | None = None
) -> FederationCreate:
    """Return the body that would create the federation of one run; `vocabulary` as `suited` takes it.

    Raises:
        SimulationError: an unknown recipe or option, or an impossible plan; the message names it.
    """
    recipe = entry.recipe or RecipeChoice(name=entry.name, options=_options(experiment, entry, task))
    try:
        plan = _plan(experiment, entry)
        return FederationCreate(
            name="simulation",
            task=task,
            prototypes=_prototypes(experiment, task, vocabulary),
            server_model=_server_model(experiment, entry, suited(task, vocabulary)),
            recipe=recipe,
            local=_local(experiment, entry),
            rounds=plan,
            seed=seed,
        )
    except ValidationError as error:
        where, message = faults_of(error)[0]
        raise SimulationError(f"{entry.title}: {where or 'settings'}: {message}") from error


def _plan(experiment: Experiment, entry: RecipeEntry) -> RoundsPlan:
    """Return the plan of rounds: those that do not wait ask nobody, however many a round would ask."""
    told, asked = merge(experiment.plan, entry.plan), experiment.clients_per_round
    if told.get("mode") == "buffered":
        asked = None
    count = None if asked is None else experiment.clients * asked if asked < 1 else asked
    tree = {
        "total": experiment.rounds,
        "clients_per_round": asked,
        "min_updates": 1 if count is None else max(1, int(count)),
        "min_clients": experiment.clients,
        "explain": "off",  # nobody asks; --round-option explain=votes has it among a round's figures
    }
    return RoundsPlan.model_validate(tree | told)


def _options(experiment: Experiment, entry: RecipeEntry, task: Task) -> dict[str, Any]:
    """Return the preset's options: fewer steps and networks for the task's inputs, then what was asked for."""
    preset, networks = preset_of(entry), suited(task)
    short: dict[str, Any] = {}
    if experiment.lengths == "short" and preset is not None:
        if preset.distil is not None:
            short |= _SHORT_DISTIL
        if preset.discriminators is not None and networks.discriminator is not None:
            plan = {**_SHORT_DISCRIMINATOR, "architecture": networks.discriminator}
            short |= {f"discriminators.generator.{key}": value for key, value in networks.generator.items()}
            short |= {f"discriminators.plan.{key}": value for key, value in plan.items()}
            short["discriminators.generator.steps"] = _SHORT_GENERATOR_STEPS
    return {**short, **entry.options}


def preset_of(entry: RecipeEntry) -> Recipe | None:
    """Return the recipe before the lengths are changed; None where it is unknown, which the checks will say."""
    if entry.recipe is not None:
        return entry.recipe
    try:
        return presets.build(entry.name, entry.options)
    except RecipeError:
        return None


def _local(experiment: Experiment, entry: RecipeEntry) -> LocalPlan:
    preset = presets.PRESETS.get(entry.name)
    tree = (preset.local if preset and entry.recipe is None else LocalPlan()).model_dump(mode="json")
    if experiment.lengths == "short":
        plain_sgd = tree["objective"]["kind"] == "scaffold"  # its option 2 reads the gradient off the steps
        tree = merge(tree, {k: v for k, v in _SHORT_LOCAL.items() if not (plain_sgd and k == "optimizer")})
    return LocalPlan.model_validate(merge(merge(tree, experiment.local), entry.local))


def _trains_server(entry: RecipeEntry) -> bool:
    recipe = preset_of(entry)
    return recipe is not None and recipe.distil is not None and recipe.distil.students.trains_server


def common_head(experiment: Experiment) -> bool:
    """Return whether a recipe needs networks with Fed-ET's head; then all have it, and the same start."""
    recipes = [recipe for entry in experiment.recipes if (recipe := preset_of(entry)) is not None]
    return any(recipe.distil is not None and recipe.distil.students.shares_head for recipe in recipes)


def _prototypes(experiment: Experiment, task: Task, vocabulary: int | None) -> list[Prototype]:
    networks = suited(task, vocabulary)
    given = experiment.prototypes or [Prototype(architecture=networks.classifier, options=networks.options)]
    return [_with_head(each) if common_head(experiment) else each for each in given]


def _server_model(experiment: Experiment, entry: RecipeEntry, networks: _Suited) -> Prototype | None:
    if not _trains_server(entry):
        return None
    server = experiment.server_model or Prototype(architecture=networks.larger)
    return _with_head(server) if common_head(experiment) else server


def _with_head(prototype: Prototype) -> Prototype:
    entry = CATALOGUE.get(prototype.architecture)
    if entry is None or "common_head" not in entry.options.model_fields or "common_head" in prototype.options:
        return prototype
    return prototype.model_copy(update={"options": {**prototype.options, "common_head": True}})
