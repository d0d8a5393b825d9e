"""What a federation's configuration is resolved from: a recipe by its name, a local plan by its recipe."""

from collections.abc import Set

from pydantic import ValidationError

from contract import architectures
from contract.faults import faults_of
from contract.federation import FederationConfig
from contract.local import LocalPlan
from contract.notes import Inputs, Note, Setting
from contract.recipes import presets
from contract.recipes.errors import RecipeError
from contract.recipes.recipe import Recipe
from contract.settling import settle
from contract.wire.federations import (
    TERMINAL_STATES,
    DatasetRefs,
    FederationCreate,
    InputSpec,
    Prototype,
    RecipeChoice,
    Task,
)
from contract.wire.plans import RoundsPlan
from service.domain.errors import DomainError, invalid_field


def resolve(request: FederationCreate, datasets: DatasetRefs, sets: Set[str]) -> FederationConfig:
    """Return what a request becomes: its recipe and local plan in full, each put among the rest, with the notes of it.

    What was asked for by name is never changed here; where it is impossible it is refused with the other mixtures.

    Args:
        request: as it came.
        datasets: the ids of the server sets.
        sets: the server sets that are there, of `unlabeled`, `validation` and `test`.

    Raises:
        DomainError: invalid-field, naming the field of the recipe.
    """
    recipe = resolve_recipe(request.recipe)
    local = resolve_local(request, recipe)
    setting = setting_of(request, recipe, local, sets)
    preset = presets.PRESETS.get(recipe.name)
    more = preset.remarks(recipe, setting) if preset else ()
    try:
        recipe, notes = settle(recipe, setting, "recipe", more)
        local, others = settle(local, setting, "local")
    except ValidationError as error:
        field, said = faults_of(error)[0]
        raise invalid_field(f"recipe.{field}".rstrip("."), said) from None
    rounds, more_notes = _measured(request.rounds, request.task)
    return FederationConfig(
        task=request.task,
        prototypes=request.prototypes,
        server_model=request.server_model,
        recipe=recipe,
        local=local,
        rounds=rounds,
        datasets=datasets,
        queue=request.queue,
        notes=[*notes, *others, *more_notes, *_of_mode(rounds)],
    )


def _measured(rounds: RoundsPlan, task: Task) -> tuple[RoundsPlan, list[Note]]:
    """Return the plan with a gate that measures what the task is measured by, where nobody said by what."""
    gate, metric = rounds.gate, task.main_metric.name
    if gate is None or metric == "accuracy" or "metric" in gate.model_fields_set:
        return rounds, []
    note = Note(path="rounds.gate.metric", note="'validation'", why=f"the task is measured by {metric}")
    return rounds.model_copy(update={"gate": gate.model_copy(update={"metric": "validation"})}), [note]


def _of_mode(rounds: RoundsPlan) -> list[Note]:
    """Return what rounds that do not wait take by default, and what is told in them by few."""
    buffering = rounds.buffering
    if buffering is None:
        return []
    said = [
        ("buffer", f"{buffering.size} updates make a model", "FedBuff's; name another for larger or smaller fleets"),
        ("max_staleness", str(buffering.max_staleness), "older updates are refused; name another for slower devices"),
        ("per_client", str(buffering.per_client), "a fast device has one share in a model; name more for few devices"),
        ("staleness", f"'{buffering.staleness.kind}'", "FedBuff's 1 / sqrt(1 + staleness); name another choice"),
    ]
    notes = [
        Note(path=f"rounds.{name}", note=note, why=why) for name, note, why in said if getattr(rounds, name) is None
    ]
    if rounds.evaluate is not None:
        why = "others began from an older model and measured that"
        notes.append(Note(path="rounds.evaluate", note="figures of updates that are fresh count", why=why))
    return notes


def setting_of(request: FederationCreate, recipe: Recipe, local: LocalPlan, sets: Set[str]) -> Setting:
    """Return what recipe and plan are put among."""
    return Setting(
        task=request.task.kind,
        inputs=_inputs(request.task.input),
        sets=frozenset(sets),
        selection=recipe.selection,
        rounds=request.rounds.total,
        gated=request.rounds.gate is not None,
        secure=request.rounds.secure is not None,
        objective_reads=bool(local.objective.declares.reads),
        normalises={prototype.name: _normalises(prototype) for prototype in request.prototypes},
        projects={each.name: each.options.get("projection") is not None for each in request.prototypes},
        asked=_asked(request),
    )


def _asked(request: FederationCreate) -> frozenset[str]:
    """Return the paths of what was asked for by name."""
    asked = request.recipe
    options = presets.named(asked.name, asked.options) if isinstance(asked, RecipeChoice) else {""}
    named = {f"recipe.{path}".rstrip(".") for path in options}
    return frozenset(named | ({"local"} if request.local is not None else set()))


def _inputs(read: InputSpec) -> Inputs:
    if read.is_tokens:
        return "tokens"
    return "images" if read.is_image else "values"


def _normalises(prototype: Prototype) -> bool | None:
    """Whether a prototype's network normalises; None also where there is no such network, which is refused later."""
    try:
        return architectures.find(prototype.architecture, "classifier").normalises(prototype.options)
    except ValueError:
        return None


def resolve_recipe(request: RecipeChoice | Recipe) -> Recipe:
    """Return the recipe that was asked for."""
    try:
        return _own(request) if isinstance(request, Recipe) else presets.build(request.name, request.options)
    except RecipeError as error:
        raise invalid_field(f"recipe.{error.field}".rstrip("."), str(error)) from None


def _own(recipe: Recipe) -> Recipe:
    """Return a composition of the operator's own, which may not go by the name of a preset that it is not."""
    preset = presets.PRESETS.get(recipe.name)
    if preset is not None and preset.recipe != recipe:
        raise RecipeError("name", f"{recipe.name!r} is a built-in recipe and this is another; name yours anew")
    return recipe


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
