"""What a row of the table of presets holds."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from contract.local import LocalPlan
from contract.notes import Remark, Setting
from contract.recipes.recipe import Recipe


@dataclass(frozen=True)
class Preset:
    """One row: a recipe, the local plan of its paper, where both come from, what we chose where the paper is silent.

    `remarks` says what becomes of the recipe in a federation, where that is nothing that one of its parts could say.
    """

    recipe: Recipe
    local: LocalPlan
    source: str
    summary: str
    choices: tuple[str, ...] = field(default=())
    remarks: Callable[[Recipe, Setting], Iterable[Remark]] = lambda recipe, setting: ()
