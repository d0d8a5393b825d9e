"""What there is to choose from."""

from functools import cache

from fastapi import APIRouter

from contract.architectures import CATALOGUE
from contract.recipes.presets import PRESETS
from contract.wire.catalogue import ArchitectureInfo, RecipeInfo

router = APIRouter(prefix="/v1")


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
        )
        for row in PRESETS.values()
    ]


@router.get("/recipes", tags=["catalogue"])
def list_recipes() -> list[RecipeInfo]:
    """List the built-in recipes: parts, defaults, the papers they come from."""
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
