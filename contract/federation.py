"""What a federation was created with, resolved and checked; stored as JSON in its row."""

from typing import Literal

from pydantic import ConfigDict, Field

from contract.bodies import Part
from contract.choices import walk
from contract.groups import copies, original
from contract.local import LocalPlan
from contract.networks.facts import Facts
from contract.notes import Note
from contract.recipes.checks import runs_ahead
from contract.recipes.parts import Data, GroupsRandom
from contract.recipes.recipe import Recipe
from contract.wire.federations import DatasetRefs, Prototype, Task
from contract.wire.plans import RoundsPlan

SERVER = "server"


def fusing_runs_networks(recipe: Recipe, local: LocalPlan, measured: bool) -> bool:
    """Whether fusing a round runs a network: to distil, to judge, for what devices are sent, or to measure models."""
    return measured or recipe.needs_networks or "networks" in local.objective.needs


class FederationConfig(Part):
    """The resolved configuration; `datasets` holds ids, `notes` what became of the request."""

    model_config = ConfigDict(extra="ignore")

    task: Task
    prototypes: list[Prototype]
    server_model: Prototype | None = None
    recipe: Recipe
    local: LocalPlan
    rounds: RoundsPlan
    datasets: DatasetRefs
    queue: Literal["auto", "cpu", "gpu"] = "auto"
    notes: list[Note] = []
    networks: dict[str, Facts] = Field(
        default_factory=dict,
        exclude_if=lambda value: not value,
        description="architecture -> what is known of it, of the networks that are documents",
    )

    @property
    def runs_networks(self) -> bool:
        """Whether fusing a round runs a network."""
        measured = self.datasets.test is not None or self.rounds.runs_gate
        return fusing_runs_networks(self.recipe, self.local, measured)

    @property
    def lacking(self) -> str:
        """Why a choice of another package cannot be carried out here, with the remedy; empty where all can."""
        return next((each.lacking for each in walk([self.recipe, self.local, self.rounds]) if each.lacking), "")

    @property
    def group_count(self) -> int:
        """How many models there are of each prototype."""
        groups = self.recipe.groups
        return groups.count if isinstance(groups, GroupsRandom) else 1

    @property
    def runs_ahead(self) -> bool:
        """Whether groups start the next round while the main model is distilled (FedSDD App. A.6).

        Not where their models may still be turned away (a gate), or averaged again without a client whose network is
        found to be bad when it teaches; nor in secure rounds, whose devices exchange keys when all of them can begin.
        """
        distil = self.recipe.distil
        again = self.rounds.on_bad_teacher == "exclude" and distil is not None and not distil.members.are_groups
        held = self.rounds.gate is not None or self.rounds.secure is not None
        return not held and not again and runs_ahead(self.recipe, self.local)

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

    def plan_of(self, model: str) -> LocalPlan:
        """Return the local plan of those who train a model: the federation's, with their prototype's changes."""
        name = original(model)
        return self.local.laid(next(each.local for each in self.prototypes if each.name == name))

    def work_of(self, seed: int, index: int, client: str, model: str) -> LocalPlan:
        """Return what a client that trains a model does in a round; it is all that the device must know."""
        return self.plan_of(model).in_round(seed, index, self.rounds.total, client)

    def prototype(self, name: str) -> Prototype:
        """Return what is published under a name, as devices are told of it: their plan comes with each round."""
        found = next(prototype for prototype in self.published if prototype.name == name)
        return found.model_copy(update={"local": None})
