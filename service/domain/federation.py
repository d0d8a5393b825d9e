"""What a federation was created with, resolved and checked; stored as JSON in its row."""

from pydantic import BaseModel, ConfigDict, ValidationError

from contract import architectures
from contract.local import LocalPlan
from contract.recipes import presets
from contract.recipes.parts import GeneratorImported
from contract.recipes.recipe import Recipe
from contract.wire.federations import DatasetRefs, FederationCreate, Prototype, RecipeChoice, RoundsPlan, Task
from service.domain.errors import DomainError, invalid_field


class FederationConfig(BaseModel):
    """The resolved configuration; `datasets` holds ids."""

    model_config = ConfigDict(frozen=True)

    task: Task
    prototypes: list[Prototype]
    recipe: Recipe
    local: LocalPlan
    rounds: RoundsPlan
    datasets: DatasetRefs

    def prototype(self, name: str) -> Prototype:
        """Return a prototype by its name."""
        return next(prototype for prototype in self.prototypes if prototype.name == name)


def _is_early_stop_asked_for(request: RecipeChoice | Recipe) -> bool:
    return isinstance(request, Recipe) or "early_stop" in str(request.options)


def resolve_recipe(request: RecipeChoice | Recipe, has_validation: bool) -> Recipe:
    """Return the recipe that was asked for.

    A preset's own early stopping is left out without a validation set; one that was asked for is refused.
    """
    if isinstance(request, Recipe):
        recipe = request
    else:
        try:
            recipe = presets.build(request.name, request.options)
        except presets.RecipeError as error:
            raise invalid_field(f"recipe.{error.field}", str(error)) from None
    schedule = recipe.distil.schedule if recipe.distil else None
    if schedule and schedule.early_stop and not has_validation:
        if _is_early_stop_asked_for(request):
            raise invalid_field("recipe.distil.schedule.early_stop", "needs a validation set: name datasets.validation")
        tree = recipe.model_dump(mode="json")
        tree["distil"]["schedule"]["early_stop"] = None
        recipe = presets.parse(tree)
    return recipe


def resolve_local(request: FederationCreate, recipe: Recipe) -> LocalPlan:
    """Return the local plan: the one asked for, else the preset's, else the default."""
    if request.local is not None:
        return request.local
    preset = presets.PRESETS.get(recipe.name)
    return preset.local if preset else LocalPlan()


def _check_options(field: str, architecture: str, role: architectures.Role, options: dict[str, object]) -> None:
    try:
        architectures.find(architecture, role).options.model_validate(options)
    except ValueError as error:  # pydantic's ValidationError is one
        raise invalid_field(field, _first(error)) from None


def _first(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())


def check_architectures(prototypes: list[Prototype], recipe: Recipe, task: Task, evaluates: bool) -> None:
    """Refuse architectures that are unknown, have impossible options, or cannot do what the recipe needs of them."""
    if len({prototype.name for prototype in prototypes}) != len(prototypes):
        raise invalid_field("prototypes", "every prototype needs a name of its own")
    for number, prototype in enumerate(prototypes):
        field = f"prototypes.{number}"
        _check_options(f"{field}.architecture", prototype.architecture, "classifier", prototype.options)
        if architectures.find(prototype.architecture).server_side:
            continue
        if prototype.initial_model is None:
            raise invalid_field(f"{field}.initial_model", f"{prototype.architecture!r} needs an imported model")
        if recipe.needs_networks or evaluates:
            raise invalid_field(
                f"{field}.architecture",
                f"the service cannot run {prototype.architecture!r}, which distillation and a test set need; "
                "choose a registered architecture, or a recipe that only averages and no test set",
            )
    if recipe.discriminators:
        _check_discriminators(recipe, task)


def _check_discriminators(recipe: Recipe, task: Task) -> None:
    assert recipe.discriminators is not None
    generator, plan = recipe.discriminators.generator, recipe.discriminators.plan
    field = "recipe.discriminators"
    if task.input.dtype != "float32":
        raise invalid_field("task.input.dtype", "a generator makes float32 inputs; this recipe cannot take token ids")
    _check_options(f"{field}.generator.architecture", generator.architecture, "generator", generator.options)
    if not isinstance(generator, GeneratorImported):
        critic = f"{field}.generator.critic_architecture"
        _check_options(critic, generator.critic_architecture, "discriminator", generator.critic_options)
    _check_options(f"{field}.plan.architecture", plan.architecture, "discriminator", plan.options)


def check_not_over(state: str) -> None:
    """Refuse what makes no sense in a federation that has ended."""
    if state in ("finished", "cancelled", "failed"):
        raise DomainError("invalid-transition", f"the federation is {state}", state=state)
