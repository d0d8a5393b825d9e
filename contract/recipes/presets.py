"""The papers as rows: every built-in recipe with the paper's defaults and the client plan that goes with it."""

from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from contract.local import Adam, LocalPlan, Sgd
from contract.recipes import parts
from contract.recipes.recipe import Distillation, Recipe, merge


@dataclass(frozen=True)
class Preset:
    """One row: a recipe, the local plan of its paper, where both come from, what we chose where the paper is silent."""

    recipe: Recipe
    local: LocalPlan
    source: str
    summary: str
    choices: tuple[str, ...] = field(default=())


_ROWS = (
    Preset(
        Recipe(name="fedavg"),
        LocalPlan(optimizer=Sgd(lr=0.1), epochs=5, batch_size=64),
        "McMahan et al. 2017, Algorithm 1",
        "The average of the clients' models, weighted by their numbers of samples.",
        ("BatchNorm statistics are averaged like weights, integer buffers take the maximum: independent of order.",),
    ),
    Preset(
        Recipe(
            name="feddf",
            distil=Distillation(
                weigh=parts.WeighUniform(),
                schedule=parts.Schedule(
                    optimizer=Adam(lr=1e-3),
                    batch_size=128,
                    steps=10_000,
                    lr="cosine_per_job",
                    clip_norm=5.0,
                    early_stop=parts.EarlyStop(),
                ),
            ),
        ),
        LocalPlan(optimizer=Sgd(lr=0.1), epochs=40, batch_size=64),
        "Lin et al. 2020 (FedDF), section 4.1, Algorithms 1 and 3, App. C.2",
        "The average learns from the mean of the clients' logits on unlabelled server data.",
        (
            "Gradient norm clipped at 5, as the authors' code does.",
            "Pseudo-labels once per round, on images without augmentation.",
            "Early stopping needs a validation set; a federation without one runs the fixed number of steps.",
        ),
    ),
    Preset(
        Recipe(
            name="fedgo",
            distil=Distillation(
                weigh=parts.WeighOdds(link="double_sigmoid"),
                schedule=parts.Schedule(optimizer=Adam(lr=1e-3), batch_size=64, epochs=10, lr="cosine_across_rounds"),
            ),
            discriminators=parts.Discriminators(),
        ),
        LocalPlan(optimizer=Adam(lr=1e-3), epochs=30, batch_size=64),
        "FedGO, Algorithms 1-3, eq. 9, App. E.2",
        "As FedDF, but each teacher counts, image by image, by the odds that its client owns such images.",
        (
            "The second sigmoid of the discriminator is part of its training.",
            "Scores on the server set are computed once for the whole federation.",
            "link = sigmoid gives plain odds; they are sharper and were better on small data.",
        ),
    ),
)
PRESETS: dict[str, Preset] = {row.recipe.name: row for row in _ROWS}
_SECTIONS = ("groups", "fuse", "distil", "discriminators")


class RecipeError(ValueError):
    """A recipe that cannot be built; `field` names the option at fault."""

    def __init__(self, field_name: str, message: str):
        super().__init__(message)
        self.field = field_name


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
    distil = tree.get("distil") or {}
    parts_of = option.split(".")
    if parts_of[0] in distil:
        return _nested(("distil", *parts_of), value)
    if parts_of[0] in tree and len(parts_of) > 1:
        return _nested(tuple(parts_of), value)
    places = _paths({key: tree[key] for key in _SECTIONS if tree.get(key)}).get(option, [])
    if len(places) == 1:
        return _nested(places[0], value)
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
    if name not in PRESETS:
        raise RecipeError("name", f"unknown recipe {name!r}; choose one of {', '.join(PRESETS)}")
    tree = PRESETS[name].recipe.model_dump(mode="json")
    for option, value in (options or {}).items():
        change = _place(tree, option, value)
        schedule = change.get("distil", {}).get("schedule", {}) if isinstance(change.get("distil"), dict) else {}
        for given, other in (("epochs", "steps"), ("steps", "epochs")):  # naming one length drops the other
            if isinstance(schedule, dict) and schedule.get(given) is not None and other not in schedule:
                change = merge(change, _nested(("distil", "schedule", other), None))
        tree = merge(tree, change)
    return parse(tree)


def parse(tree: dict[str, Any]) -> Recipe:
    """Return the recipe that `tree` spells out in full.

    Raises:
        RecipeError: the first thing wrong with it, by field.
    """
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "recipe"
        raise RecipeError(where, first["msg"].removeprefix("Value error, ")) from error
