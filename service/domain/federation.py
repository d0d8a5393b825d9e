"""What a federation's configuration is resolved from: a recipe by its name, a local plan by its recipe."""

from contract.local import LocalPlan
from contract.recipes import presets
from contract.recipes.errors import RecipeError
from contract.recipes.recipe import Recipe
from contract.wire.federations import TERMINAL_STATES, FederationCreate, RecipeChoice
from service.domain.errors import DomainError, invalid_field


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
