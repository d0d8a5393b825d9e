"""Tables of the docs that are made from the code: ``python -m tools.pages`` rewrites them, ``--check`` compares.

A page holds ``<!-- made: NAME -->`` and ``<!-- end -->``, each on a line of its own; what stands between them is made.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from contract.choices import NEEDS, Carried, Choice, Need, described, kind_of, slots, walk
from contract.local import LocalPlan
from contract.recipes.presets import PRESETS
from contract.recipes.recipe import Recipe
from contract.tasks import KINDS, TASKS, Metric, TaskKind
from tools import limits, reference, tasks
from tools.markdown import bounds, table

ROOT = Path(__file__).parents[1]
_PLACE = re.compile(r"(<!-- made: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_FOLLOWS = {
    "steps": "goes back with its model and begins anew after a promotion",
    "model": "goes back with its model",
    "round": "goes back with its round",
    "devices": "stays: its other half is on the devices",
}


# ------------------------------------------------------------------------------------------------------------- recipes
def _words(needs: Iterable[Need]) -> str:
    wanted = set(needs)
    return ", ".join(words for need, words in NEEDS.items() if need in wanted)


def _needs_of(recipe: Recipe, local: LocalPlan) -> str:
    """Return what a recipe needs of data, networks and devices, in words."""
    needs = {need for choice in walk([recipe, local]) for need in choice.needs} - {"unlabeled"}
    found = [_words({"unlabeled"} if recipe.needs_unlabeled else ()), _words(needs)]
    if recipe.distil is not None and not recipe.distil.students.learns:
        found.append("a test set to see it")
    if recipe.distil is not None and recipe.distil.students.kind == "server":
        found.append("`server_model`, `common_head`")
    if recipe.sends_predictions:
        found.append("**every device is sent the inputs of the unlabelled data**")
    return ", ".join(each for each in found if each)


def presets() -> str:
    """Return the table of the built-in recipes."""
    rows = ([f"`{name}`", row.summary, row.source, _needs_of(row.recipe, row.local)] for name, row in PRESETS.items())
    return table(("recipe", "what it does", "source", "needs"), rows)


def _in(field: dict[str, Any]) -> str:
    found = bounds(field)
    return f" in {found}" if found else ""


def _options(choice: type[Choice]) -> str:
    """Return a choice's options with defaults and bounds."""
    schema, found = choice.model_json_schema(), []
    for name, field in schema["properties"].items():
        if name == "kind":
            continue
        default = choice.model_fields[name].get_default(call_default_factory=True)
        shown = f" {json.dumps(default)}" if isinstance(default, bool | int | float | str | None) else ""
        words = " of " + ", ".join(f"`{each}`" for each in field["enum"]) if "enum" in field else _in(field)
        found.append(f"`{name}`{shown}{words}")
    return "; ".join(found)


def _kept(carries: Iterable[Carried]) -> str:
    return "; ".join(f"keeps `{each.stem}`: {_FOLLOWS[each.follows]}" for each in carries)


def _row(choice: type[Choice]) -> list[str]:
    first = described(choice).split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
    notes = [_words(choice.declares.needs), _kept(choice.declares.carries)]
    return [f"`{kind_of(choice)}`", first, _options(choice), "; ".join(note for note in notes if note)]


def _place_of(table: tuple[str, list[type[Choice]]]) -> str:
    """Put a recipe's choices first, as they are registered, and plans' by name: who imports those first may vary."""
    slot, _ = table
    return slot if slot.startswith("rounds.") else ""


def choices() -> str:
    """Return a table for every slot with its choices; those of other packages are theirs to tell."""
    found = []
    own = {slot: [each for each in members if each.is_own()] for slot, members in slots().items()}
    for slot, members in sorted(own.items(), key=_place_of):
        if not members:
            continue
        base = next(each for each in members[0].__mro__ if each.__dict__.get("slot"))
        rows = table(("choice", "what it is", "options", "needs, keeps"), map(_row, members))
        found.append(f"### `{slot}`\n{base.__doc__}\n\n{rows}")
    return "\n".join(found)


def _mark(kind: TaskKind, recipe: str) -> str:
    return "yes" if tasks.refusal(kind, recipe) is None else "–"


def pairs() -> str:
    """Return which recipe has a meaning for which kind of task, with what a refusal says below the table."""
    rows = ([f"`{name}`", *(_mark(kind, name) for kind in KINDS)] for name in PRESETS)
    why = [f"- `{name}`, {kind}: {said}\n" for name in PRESETS for kind in KINDS if (said := tasks.refusal(kind, name))]
    return table(("recipe", *(f"`{kind}`" for kind in KINDS)), rows) + "\n" + "".join(why)


def modes() -> str:
    """Return which recipe has a meaning in rounds that do not wait, and why not."""
    said = {name: tasks.refusal("classification", name, {"mode": "buffered", "buffer": 3}) for name in PRESETS}
    rows = ([f"`{name}`", "yes" if why is None else f"no: {why}"] for name, why in said.items())
    return table(("recipe", "`buffered`"), rows)


def _way(metric: Metric) -> str:
    return "" if metric.higher_is_better else " (lower is better)"


def kinds() -> str:
    """Return the kinds of task."""
    rows = []
    for name, row in TASKS.items():
        first, *others = row.metrics
        shown = [f"**`{first.name}`**{_way(first)}", *(f"`{each.name}`{_way(each)}" for each in others)]
        rows.append([f"`{name}`", row.what, row.labels, row.outputs, ", ".join(shown)])
    return table(("kind", "what a network decides", "labels", "its outputs", "figures"), rows)


MADE: dict[str, Callable[[], str]] = {
    "presets": presets,
    "choices": choices,
    "pairs": pairs,
    "modes": modes,
    "kinds": kinds,
    "recipes": reference.recipes,
    "local": reference.local,
    "settings": lambda: table(("setting", "what it is", "default", "bounds", "beyond it"), limits.settings()),
    "fixed-limits": lambda: table(("what", "limit", "beyond it"), limits.fixed()),
}


# --------------------------------------------------------------------------------------------------------------- pages
def rewritten(text: str) -> str:
    """Return a page with its tables made anew.

    Raises:
        KeyError: it has a place for a table that nobody makes.
    """
    return _PLACE.sub(lambda found: f"{found[1]}\n{MADE[found['name']]()}\n{found[3]}", text)


def main(arguments: list[str] | None = None) -> int:
    """Rewrite the pages, or say which are stale."""
    parser = argparse.ArgumentParser(prog="python -m tools.pages", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 if a page is stale")
    check = parser.parse_args(arguments).check
    stale = []
    for path in sorted((ROOT / "docs").glob("*.md")):
        text = path.read_text()
        made = rewritten(text)
        if made != text:
            stale.append(path.relative_to(ROOT))
            if not check:
                path.write_text(made)
    for each in stale:
        print(f"{each}: {'is stale; make pages' if check else 'rewritten'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
