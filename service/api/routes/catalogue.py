"""What there is to choose from."""

from functools import cache

from fastapi import APIRouter

from contract import plugins
from contract.architectures import CATALOGUE
from contract.choices import described, kind_of
from contract.recipes.presets import PRESETS
from contract.recipes.recipe import Recipe
from contract.wire.catalogue import AddedChoice, ArchitectureInfo, RecipeInfo

router = APIRouter(prefix="/v1")


def _added(recipe: Recipe) -> list[AddedChoice]:
    """Return the choices of other packages for slots that a recipe, or the plan that goes with it, has."""
    slots = {"fuse", "local.objective"} | ({"distil.weigh"} if recipe.distil is not None else set())
    return [
        AddedChoice(
            slot=choice.slot,
            kind=kind_of(choice),
            package=choice.packaged,
            summary=described(choice),
            options=choice.model_json_schema(),
        )
        for choice in plugins.installed()
        if choice.slot in slots
    ]


@cache
def _recipes() -> list[RecipeInfo]:
    return [
        RecipeInfo(
            name=row.recipe.name,
            summary=row.summary,
            source=row.source,
            choices=list(row.choices),
            composition=row.recipe,
            local=row.local,
            added=_added(row.recipe),
        )
        for row in PRESETS.values()
    ]


@router.get("/recipes", tags=["catalogue"])
def list_recipes() -> list[RecipeInfo]:
    """List the built-in recipes: parts, defaults, their papers, and what installed packages add to them."""
    return _recipes()


@router.get("/architectures", tags=["catalogue"])
def list_architectures() -> list[ArchitectureInfo]:
    """List the registered architectures with the schema of their options."""
    return [
        ArchitectureInfo(
            name=entry.name,
            role=entry.role,
            summary=entry.summary,
            server_side=entry.server_side,
            options=entry.options.model_json_schema(),
        )
        for entry in CATALOGUE.values()
    ]
