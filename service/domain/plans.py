"""A federation's plan and its changes: pure functions on configurations."""

from typing import Any

from pydantic import ValidationError

from contract.faults import faults_of
from contract.federation import FederationConfig
from contract.local import LocalPlan
from contract.recipes.parts import Schedule
from contract.recipes.recipe import merge
from contract.wire.changes import PlanChange, RoundPlan
from contract.wire.plans import RoundsPlan
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
    for section, kind in (("local", LocalPlan), ("rounds", RoundsPlan)):
        tree[section] = merge(tree[section], _with_defaults(told.get(section, {}), kind))
    for name, changes in told.get("prototypes", {}).items():
        tree["prototypes"][name] = tree["prototypes"].get(name, {}) | changes if changes is not None else {}
    tree["prototypes"] = {name: laid for name, laid in tree["prototypes"].items() if _says_something(laid)}
    if "schedule" in told:
        tree["schedule"] = _scheduled(tree["schedule"], told["schedule"])
    try:
        made = RoundPlan.model_validate(tree)
    except ValidationError as error:
        raise invalid_field(*faults_of(error, tree)[0]) from None
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


def _with_defaults(told: dict[str, Any], kind: type[LocalPlan] | type[RoundsPlan]) -> dict[str, Any]:
    """Return changes with the plan's own default for what is to have it again."""
    default = kind().model_dump(mode="json")
    return {name: default.get(name) if value is None else value for name, value in told.items()}


def _says_something(changes: dict[str, Any]) -> bool:
    return any(value is not None for value in changes.values())


def _scheduled(schedule: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    default = Schedule().model_dump(mode="json")
    laid = schedule | {name: default[name] if value is None else value for name, value in told.items() if name != "lr"}
    for given, other in (("epochs", "steps"), ("steps", "epochs")):
        if told.get(given) is not None:
            laid[other] = None
    if laid["epochs"] is None and laid["steps"] is None:
        raise invalid_field("schedule", "without a length students learn nothing; give epochs or steps")
    if "lr" in told:
        optimizer = {name: value for name, value in laid["optimizer"].items() if name != "lr"}
        laid["optimizer"] = optimizer if told["lr"] is None else optimizer | {"lr": told["lr"]}
    return laid
