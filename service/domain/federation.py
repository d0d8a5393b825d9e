"""What a federation was created with, resolved and checked; stored as JSON in its row."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from contract.groups import copies
from contract.local import FedTgpObjective, LocalPlan
from contract.queue import Queue
from contract.recipes import presets
from contract.recipes.checks import runs_ahead
from contract.recipes.errors import RecipeError
from contract.recipes.parts import Data, GroupsRandom
from contract.recipes.recipe import Recipe
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


def check_not_over(state: str) -> None:
    """Refuse what makes no sense in a federation that has ended."""
    if state in TERMINAL_STATES:
        raise DomainError("invalid-transition", f"the federation is {state}", state=state)
