"""A federation's plan and its changes: pure functions on configurations."""

from typing import Any

from pydantic import ValidationError

from contract.federation import FederationConfig
from contract.local import LocalChanges
from contract.recipes.recipe import merge
from contract.wire.changes import PlanChange, RoundPlan
from service.domain.errors import invalid_field


def plan_of(config: FederationConfig) -> RoundPlan:
    """Return what of a configuration can change."""
    distil = config.recipe.distil
    return RoundPlan(
        local=config.local,
        prototypes={each.name: each.local for each in config.prototypes if each.local is not None},
        rounds=config.rounds,
        schedule=None if distil is None else distil.schedule,
    )


def with_plan(config: FederationConfig, plan: RoundPlan) -> FederationConfig:
    """Return a configuration with another plan."""
    recipe, distil = config.recipe, config.recipe.distil
    if distil is not None and plan.schedule is not None:
        recipe = recipe.model_copy(update={"distil": distil.model_copy(update={"schedule": plan.schedule})})
    prototypes = [each.model_copy(update={"local": plan.prototypes.get(each.name)}) for each in config.prototypes]
    changes = {"local": plan.local, "prototypes": prototypes, "rounds": plan.rounds, "recipe": recipe}
    return config.model_copy(update=changes)


def changed(config: FederationConfig, change: PlanChange, newest: int) -> FederationConfig:
    """Return the configuration with a change laid over it.

    Args:
        config: as it is.
        change: what is to be otherwise.
        newest: the index of the newest round, 0 before the first.

    Raises:
        DomainError: invalid-field, naming the field and the reason.
    """
    plan, told = plan_of(config), change.told()
    _check_names(config, change)
    tree = plan.model_dump(mode="json")
    for section in ("local", "rounds"):
        tree[section] = merge(tree[section], told.get(section, {}))
    for name, changes in (change.prototypes or {}).items():
        before = plan.prototypes.get(name, LocalChanges())
        tree["prototypes"][name] = _laid(before.model_dump(mode="json", exclude_none=True), changes)
    if change.schedule is not None:
        tree["schedule"] = _scheduled(tree["schedule"], told["schedule"])
    try:
        made = RoundPlan.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(each) for each in first["loc"])
        raise invalid_field(field, first["msg"].removeprefix("Value error, ")) from None
    if made.rounds.total < newest:
        raise invalid_field("rounds.total", f"round {newest} has opened; the total is that at least")
    return with_plan(config, made)


def _check_names(config: FederationConfig, change: PlanChange) -> None:
    names = [each.name for each in config.prototypes]
    unknown = sorted(set(change.prototypes or ()) - set(names))
    if unknown:
        raise invalid_field("prototypes", f"there is no prototype {unknown[0]!r}; there are {', '.join(names)}")
    if change.schedule is not None and config.recipe.distil is None:
        raise invalid_field("schedule", "the recipe distils nothing; leave it out")


def _laid(before: dict[str, Any], changes: LocalChanges) -> dict[str, Any]:
    return before | changes.model_dump(mode="json", exclude_none=True)


def _scheduled(schedule: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    laid = schedule | {key: value for key, value in told.items() if key != "lr"}
    for given, other in (("epochs", "steps"), ("steps", "epochs")):
        if given in told:
            laid[other] = None
    if "lr" in told:
        laid["optimizer"] = laid["optimizer"] | {"lr": told["lr"]}
    return laid
