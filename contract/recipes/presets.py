"""The papers as rows: every built-in recipe by name, and how options are laid over one."""

from typing import Any

from pydantic import ValidationError

from contract.faults import faults_of
from contract.recipes.errors import RecipeError
from contract.recipes.recipe import Recipe, merge
from contract.recipes.rows import averaging, distillation, objectives, reflux
from contract.recipes.rows.row import Preset

PRESETS: dict[str, Preset] = {
    row.recipe.name: row for row in (*averaging.ROWS, *objectives.ROWS, *distillation.ROWS, *reflux.ROWS)
}
_SECTIONS = ("selection", "groups", "drop_worst", "fuse", "distil", "discriminators")


def _paths(tree: dict[str, Any], prefix: tuple[str, ...] = ()) -> dict[str, list[tuple[str, ...]]]:
    """Map each option's bare name to the places where the recipe has it."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for key, value in tree.items():
        path = (*prefix, key)
        found.setdefault(key, []).append(path)
        if isinstance(value, dict) and key not in ("options", "critic_options"):
            for name, inner in _paths(value, path).items():
                found.setdefault(name, []).extend(inner)
    return found


def _nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    for key in reversed(path):
        value = {key: value}
    return value  # type: ignore[no-any-return]


def _place(tree: dict[str, Any], option: str, value: Any) -> dict[str, Any]:
    """Turn one option, nested, dotted or bare, into a nested change of `tree`."""
    if option in _SECTIONS:
        return {option: value}
    distil = tree["distil"] if isinstance(tree.get("distil"), dict) else {}
    parts_of = option.split(".")
    if parts_of[0] in distil:
        return _nested(("distil", *parts_of), value)
    if parts_of[0] in tree and len(parts_of) > 1:
        return _nested(tuple(parts_of), value)
    places = _paths({key: tree[key] for key in _SECTIONS if tree.get(key)}).get(parts_of[0], [])
    if len(places) == 1:
        return _nested((*places[0], *parts_of[1:]), value)
    if places:
        ways = ", ".join(".".join(path) for path in places)
        raise RecipeError(f"options.{option}", f"{option!r} is the name of several options; write one of {ways}")
    raise RecipeError(f"options.{option}", f"{tree['name']!r} has no option {option!r}; see GET /v1/recipes")


def build(name: str, options: dict[str, Any] | None = None) -> Recipe:
    """Return the preset `name` with `options` laid over it.

    An option is written nested (``{"distil": {"weigh": {"link": "sigmoid"}}}``), by part
    (``{"weigh": {"link": "sigmoid"}}``), dotted (``{"weigh.link": "sigmoid"}``), or by its bare name where that is
    unique in the recipe (``{"link": "sigmoid"}``).

    Raises:
        RecipeError: unknown recipe or option, or a mixture that is impossible.
    """
    return parse(_laid(name, options)[0])


def named(name: str, options: dict[str, Any] | None = None) -> frozenset[str]:
    """Return the dotted paths of all that `options` name, as `build` understands them.

    Raises:
        RecipeError: unknown recipe or option.
    """
    return frozenset(_laid(name, options)[1])


def _laid(name: str, options: dict[str, Any] | None) -> tuple[dict[str, Any], list[str]]:
    """Return the preset's tree with options laid over it, and the paths of what they name."""
    if name not in PRESETS:
        raise RecipeError("name", f"unknown recipe {name!r}; choose one of {', '.join(PRESETS)}")
    tree, paths = PRESETS[name].recipe.model_dump(mode="json"), list[str]()
    for option, value in [*(options or {}).items()] * 2:  # an architecture may be named after its options
        change = _place(tree, option, value)
        paths += _leaves(change)
        schedule = change.get("distil", {}).get("schedule", {}) if isinstance(change.get("distil"), dict) else {}
        for given, other in (("epochs", "steps"), ("steps", "epochs")):  # naming one length drops the other
            if isinstance(schedule, dict) and schedule.get(given) is not None and other not in schedule:
                change = merge(change, _nested(("distil", "schedule", other), None))
        tree = merge(tree, change)
    return tree, paths


def _leaves(tree: Any, path: str = "") -> list[str]:
    if not isinstance(tree, dict) or not tree:
        return [path]
    return [leaf for key, value in tree.items() for leaf in _leaves(value, f"{path}.{key}" if path else key)]


def parse(tree: dict[str, Any]) -> Recipe:
    """Return the recipe that `tree` spells out in full.

    Raises:
        RecipeError: the first thing wrong with it, by field.
    """
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        first = faults_of(error, tree)[0]
        raise RecipeError(first.field, first.message) from error
