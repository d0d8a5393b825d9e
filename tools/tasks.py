"""The table of recipes and kinds of task, made by asking the rules of creation of a small federation of each pair."""

from typing import Any

from contract.recipes.presets import PRESETS
from contract.tasks import TaskKind
from contract.wire.federations import DatasetRefs, FederationCreate
from service.domain import federation
from service.domain.errors import DomainError
from service.domain.mixture import check_mixture

SETS = frozenset({"unlabeled", "validation", "test"})
_IMAGES = {"shape": [1, 8, 8]}
_TASKS: dict[TaskKind, dict[str, Any]] = {
    "classification": {"num_classes": 3, "input": _IMAGES},
    "multilabel": {"num_classes": 3, "input": _IMAGES},
    "regression": {"num_classes": 2, "input": _IMAGES},
    "dense": {"num_classes": 2, "input": _IMAGES},
    "tokens": {"num_classes": 3, "input": {"shape": [8], "dtype": "int64"}},
}
_NETWORKS: dict[TaskKind, dict[str, Any]] = {
    "dense": {"architecture": "unet-small", "options": {"width": 2}},
    "tokens": {"architecture": "transformer-causal-tiny", "options": {"vocab_size": 12}},
}
_HIDDEN = {"hidden": [8]}
_SHORT_STAGE = {
    "discriminators.generator.steps": 2,
    "discriminators.generator.options": {"latent": 2, "hidden": [4]},
    "discriminators.generator.critic_options": _HIDDEN,
    "discriminators.generator.architecture": "gen-mlp",
    "discriminators.generator.critic_architecture": "disc-mlp",
    "discriminators.plan.architecture": "disc-mlp",
    "discriminators.plan.options": _HIDDEN,
    "discriminators.plan.epochs": 1,
}


def body_of(kind: TaskKind, recipe: str) -> dict[str, Any]:
    """Return the body that would create a small federation of a kind of task with a recipe, two rounds long."""
    preset = PRESETS[recipe]
    distil, stage = preset.recipe.distil, preset.recipe.discriminators
    options: dict[str, Any] = {}
    if distil is not None:
        options |= {"schedule": {"epochs": 1, "batch_size": 8, "optimizer": {"kind": "adam", "lr": 0.01}}}
        if distil.students.shares_head:
            options |= {}
    if stage is not None:
        options |= _SHORT_STAGE
    shares = distil is not None and distil.students.shares_head
    network = {"architecture": "mlp", "options": _HIDDEN | ({"common_head": True} if shares else {})}
    network = _NETWORKS.get(kind, network)
    trains_server = distil is not None and distil.students.trains_server
    local = preset.local.model_dump(mode="json") | {"epochs": 1, "batch_size": 4}
    return {
        "name": "pair",
        "task": {"kind": kind, **_TASKS[kind]},
        "prototypes": [network],
        "server_model": network if trains_server else None,
        "recipe": {"name": recipe, "options": options},
        "local": local,
        "rounds": {"total": 2, "min_updates": 3},
        "seed": 5,
    }


def refusal(kind: TaskKind, recipe: str, rounds: dict[str, Any] | None = None) -> str | None:
    """Return why a recipe has no meaning for a kind of task, and in such rounds; None where it has one."""
    body = body_of(kind, recipe)
    body["rounds"] |= rounds or {}
    try:
        resolved = federation.resolve(FederationCreate.model_validate(body), DatasetRefs(), SETS)
        check_mixture(resolved, SETS)
    except DomainError as error:
        return error.detail
    return None
