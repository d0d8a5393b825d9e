"""What a row of the table of presets holds."""

from dataclasses import dataclass, field

from contract.local import LocalPlan
from contract.recipes.recipe import Recipe


@dataclass(frozen=True)
class Preset:
    """One row: a recipe, the local plan of its paper, where both come from, what we chose where the paper is silent."""

    recipe: Recipe
    local: LocalPlan
    source: str
    summary: str
    choices: tuple[str, ...] = field(default=())
