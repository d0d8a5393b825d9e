"""What there is to choose from."""

from functools import cache

from contract import plugins
from contract.architectures import CATALOGUE
from contract.choices import described, kind_of
from contract.recipes.presets import PRESETS
from contract.recipes.recipe import Recipe
from contract.wire.catalogue import AddedChoice, ArchitectureInfo, RecipeInfo
from service.api.deps import Perhaps, Services
from service.api.problems import documented
from service.api.routing import router_of
from service.api.services import Services as Parts
from service.operations.store import networks

router = router_of("/v1")


def _added(recipe: Recipe) -> list[AddedChoice]:
    """Return the choices of other packages for slots that a recipe, or the plan that goes with it, has."""
    slots = {"fuse", "local.objective", "rounds.metrics"} | ({"distil.weigh"} if recipe.distil is not None else set())
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


def _own(services: Parts) -> list[ArchitectureInfo]:
    with services.store.read() as session:
        return networks.as_architectures(session)


@router.get("/architectures", tags=["catalogue"], responses=documented("unauthorized", "forbidden"))
def list_architectures(services: Services, caller: Perhaps) -> list[ArchitectureInfo]:
    """List the built-in architectures with the schema of their options; with an operator's or a viewer's token, also
    the networks that operators have registered.
    """
    own = [] if caller is None or caller.role not in ("operator", "viewer") else _own(services)
    return built_in() + own


def built_in() -> list[ArchitectureInfo]:
    """Return the catalogue's rows as they are shown."""
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
