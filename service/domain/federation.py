"""What a federation was created with, resolved and checked; stored as JSON in its row."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from contract import architectures
from contract.groups import copies
from contract.local import FedTgpObjective, LocalPlan
from contract.queue import Queue
from contract.recipes import presets
from contract.recipes.checks import runs_ahead
from contract.recipes.errors import RecipeError
from contract.recipes.parts import Data, Discriminators, GeneratorImported, GroupsRandom
from contract.recipes.recipe import Recipe, discriminator_link
from contract.wire.federations import (
    TERMINAL_STATES,
    DatasetRefs,
    FederationCreate,
    Prototype,
    RecipeChoice,
    Task,
)
from contract.wire.plans import RoundsPlan
from service.domain.errors import DomainError, invalid_field

SERVER = "server"


class FederationConfig(BaseModel):
    """The resolved configuration; `datasets` holds ids."""

    model_config = ConfigDict(frozen=True)

    task: Task
    prototypes: list[Prototype]
    server_model: Prototype | None = None
    recipe: Recipe
    local: LocalPlan
    rounds: RoundsPlan
    datasets: DatasetRefs
    queue: Literal["auto", "cpu", "gpu"] = "auto"

    @property
    def runs_networks(self) -> bool:
        """Whether fusing a round runs a network: to distil, to judge, to measure, to train FedTGP's prototypes."""
        return (
            self.recipe.needs_networks
            or self.datasets.test is not None
            or self.rounds.gate is not None
            or isinstance(self.local.objective, FedTgpObjective)
        )

    @property
    def group_count(self) -> int:
        """How many models there are of each prototype."""
        groups = self.recipe.groups
        return groups.count if isinstance(groups, GroupsRandom) else 1

    @property
    def runs_ahead(self) -> bool:
        """Whether groups start the next round while the main model is distilled (FedSDD App. A.6).

        Not where their models may still be turned away (a gate), or averaged again without a client whose network is
        found to be bad when it teaches.
        """
        distil = self.recipe.distil
        again = self.rounds.on_bad_teacher == "exclude" and distil is not None and distil.members.kind != "groups"
        return self.rounds.gate is None and not again and runs_ahead(self.recipe, self.local)

    @property
    def trained(self) -> list[Prototype]:
        """What clients train: every prototype, or its copies where the recipe has groups."""
        return [
            prototype.model_copy(update={"name": name})
            for prototype in self.prototypes
            for name in copies(prototype.name, self.group_count)
        ]

    @property
    def published(self) -> list[Prototype]:
        """What rounds publish: what clients train, and the server's model under the name `server`."""
        server = [] if self.server_model is None else [self.server_model.model_copy(update={"name": SERVER})]
        return self.trained + server

    @property
    def public(self) -> Data | None:
        """The server data whose inputs every device is sent, where the recipe has such (DS-FL)."""
        distil = self.recipe.distil
        return distil.data if distil is not None and self.recipe.sends_predictions else None

    def prototype(self, name: str) -> Prototype:
        """Return what is published under a name."""
        return next(prototype for prototype in self.published if prototype.name == name)


def queue_of(kind: str, config: FederationConfig) -> Queue:
    """Return the queue in which a job waits: `gpu` where it runs networks for longer than it takes to build them.

    The federation may say otherwise for those that run networks.
    """
    if kind == "initialize" or (kind == "round" and not config.runs_networks):
        return "cpu"
    return "gpu" if config.queue == "auto" else config.queue


def resolve_recipe(request: RecipeChoice | Recipe, has_validation: bool) -> Recipe:
    """Return the recipe that was asked for.

    A preset's own early stopping and filter of teachers are left out without a validation set; those that were asked
    for stay, and are refused with the other mixtures that are impossible.
    """
    try:
        if isinstance(request, Recipe):
            return _own(request)
        recipe = presets.build(request.name, request.options)
        return recipe if has_validation else _without_validation(recipe, presets.build(request.name))
    except RecipeError as error:
        raise invalid_field(f"recipe.{error.field}", str(error)) from None


def _own(recipe: Recipe) -> Recipe:
    """Return a composition of the operator's own, which may not go by the name of a preset that it is not."""
    preset = presets.PRESETS.get(recipe.name)
    if preset is not None and preset.recipe != recipe:
        raise RecipeError("name", f"{recipe.name!r} is a built-in recipe and this is another; name yours anew")
    return recipe


def _without_validation(recipe: Recipe, preset: Recipe) -> Recipe:
    tree = recipe.model_dump(mode="json")
    if recipe.drop_worst == preset.drop_worst:
        tree["drop_worst"] = None
    if recipe.distil and preset.distil and recipe.distil.schedule.early_stop == preset.distil.schedule.early_stop:
        tree["distil"]["schedule"]["early_stop"] = None
    return presets.parse(tree)


def resolve_local(request: FederationCreate, recipe: Recipe) -> LocalPlan:
    """Return the local plan: the one asked for, else the preset's, else the default."""
    if request.local is not None:
        return request.local
    preset = presets.PRESETS.get(recipe.name)
    return preset.local if preset else LocalPlan()


def _check_options(
    field: str, architecture: str, role: architectures.Role, options: dict[str, object], task: Task
) -> None:
    try:
        entry = architectures.find(architecture, role)
        entry.options.model_validate(options)
        entry.check_input(task.input.shape, task.input.dtype)
    except ValueError as error:  # pydantic's ValidationError is one
        raise invalid_field(field, _first(error)) from None


def _first(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())


def check_groups(recipe: Recipe, rounds: RoundsPlan) -> None:
    """Refuse more groups than clients that are asked in a round."""
    asked = rounds.clients_per_round
    if isinstance(recipe.groups, GroupsRandom) and asked is not None and 1 <= asked < recipe.groups.count:
        raise invalid_field(
            "recipe.groups.count", f"{recipe.groups.count} groups, but rounds.clients_per_round is {int(asked)}"
        )


def check_gate(rounds: RoundsPlan, datasets: DatasetRefs) -> None:
    """Refuse a gate without the labelled set that it measures on."""
    if rounds.gate is not None:
        role = rounds.gate.metric.removesuffix("_accuracy")
        if getattr(datasets, role) is None:
            raise invalid_field("rounds.gate", f"{rounds.gate.metric} needs a labelled set: datasets.{role}")


def check_architectures(prototypes: list[Prototype], recipe: Recipe, task: Task, evaluates: bool) -> None:
    """Refuse architectures that are unknown, have impossible options, or cannot do what the recipe needs of them."""
    if len({prototype.name for prototype in prototypes}) != len(prototypes):
        raise invalid_field("prototypes", "every prototype needs a name of its own")
    for number, prototype in enumerate(prototypes):
        field = f"prototypes.{number}"
        _check_options(f"{field}.architecture", prototype.architecture, "classifier", prototype.options, task)
        if architectures.find(prototype.architecture).server_side:
            continue
        if prototype.initial_model is None:
            raise invalid_field(f"{field}.initial_model", f"{prototype.architecture!r} needs an imported model")
        if recipe.needs_networks or evaluates:
            raise invalid_field(
                f"{field}.architecture",
                f"the service cannot run {prototype.architecture!r}, which distillation, a test set and a gate need; "
                "choose a registered architecture, or a recipe that only averages, no test set and no gate",
            )
    if recipe.discriminators:
        _check_discriminators(recipe, task)


def check_privacy(prototypes: list[Prototype], local: LocalPlan) -> None:
    """Refuse networks that devices cannot train with differential privacy; each would refuse the round by itself."""
    if local.privacy is None:
        return
    for number, prototype in enumerate(prototypes):
        try:
            architectures.find(prototype.architecture).check_private(prototype.options)
        except ValueError as error:
            raise invalid_field(f"prototypes.{number}.architecture", str(error)) from None


def check_server_model(server: Prototype | None, prototypes: list[Prototype], task: Task) -> None:
    """Refuse a server model that the service cannot run, and a prototype that takes its name."""
    if server is not None:
        if any(prototype.name == SERVER for prototype in prototypes):
            raise invalid_field("prototypes", f"{SERVER!r} is the name of the server's model; take another one")
        _check_options("server_model.architecture", server.architecture, "classifier", server.options, task)
        if not architectures.find(server.architecture).server_side:
            raise invalid_field("server_model.architecture", f"the service cannot run {server.architecture!r}")


def _check_discriminators(recipe: Recipe, task: Task) -> None:
    assert recipe.discriminators is not None
    generator, plan = recipe.discriminators.generator, recipe.discriminators.plan
    field = "recipe.discriminators"
    if task.input.dtype != "float32":
        raise invalid_field("task.input.dtype", "a generator makes float32 inputs; this recipe cannot take token ids")
    _check_options(f"{field}.generator.architecture", generator.architecture, "generator", generator.options, task)
    if not isinstance(generator, GeneratorImported):
        critic = f"{field}.generator.critic_architecture"
        _check_options(critic, generator.critic_architecture, "discriminator", generator.critic_options, task)
    try:
        _check_options(f"{field}.plan.architecture", plan.architecture, "discriminator", plan.options, task)
    except DomainError as error:
        remedy = "; for vectors take the recipe option discriminators.plan.architecture = disc-mlp"
        raise invalid_field(f"{field}.plan.architecture", error.detail.partition(": ")[2] + remedy) from None
    _check_outputs(recipe, recipe.discriminators)


def _check_outputs(recipe: Recipe, stage: Discriminators) -> None:
    """Refuse a discriminator that ends in a probability where a raw score is read, and the other way round."""
    generator, plan, link = stage.generator, stage.plan, discriminator_link(recipe)
    if not isinstance(generator, GeneratorImported):
        critic = architectures.output_of(generator.critic_architecture, generator.critic_options)
        if critic != "score":
            raise invalid_field(
                "recipe.discriminators.generator.critic_options",
                "WGAN-GP's critic gives scores without bounds, no probability; leave its option output at 'score'",
            )
    gives = architectures.output_of(plan.architecture, plan.options)
    field, wants_probability = "recipe.discriminators.plan.options", link == "prob"
    if wants_probability and gives == "score":
        raise invalid_field(
            field,
            f"link 'prob' reads probabilities and {plan.architecture!r} gives raw scores as it is set; set its option "
            "output to 'probability', or take link 'sigmoid'",
        )
    if not wants_probability and gives == "probability":
        raise invalid_field(
            field,
            f"{plan.architecture!r} gives probabilities and the recipe reads raw scores; leave its option output at "
            "'score', or weigh by odds with link 'prob'",
        )


def check_not_over(state: str) -> None:
    """Refuse what makes no sense in a federation that has ended."""
    if state in TERMINAL_STATES:
        raise DomainError("invalid-transition", f"the federation is {state}", state=state)
