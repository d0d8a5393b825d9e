"""What the command line and Python say of an experiment, as the tree that `Experiment` is read from; needs no torch."""

from collections.abc import Iterable, Mapping
from typing import Any

from contract.json_text import read_json
from contract.recipes.recipe import merge
from potstill.console import CliError, nest, parse_options

OPTION = "option."
"""Before the names of recipes' options, where they vary."""
VARY = "vary"


def several(text: str) -> list[Any]:
    """Return the values of an option that takes a list: `0.1,1.0`; each is JSON, or else plain text.

    What is JSON as a whole is one value.
    """
    try:
        return [read_json(text)]
    except ValueError:
        pass
    found = []
    for part in text.split(","):
        try:
            found.append(read_json(part))
        except ValueError:
            found.append(part.strip())
    return found


def put(tree: dict[str, Any], name: str, values: list[Any]) -> None:
    """Put one value into the tree, or several into what varies; `name` may be dotted."""
    vary = tree.get(VARY, {})
    if len(values) == 1:
        vary.pop(name, None)
        tree |= merge(tree, nest({name: values[0]}))
    else:
        tree[VARY] = {**vary, name: values}
    if not tree.get(VARY, True):
        del tree[VARY]


def put_all(tree: dict[str, Any], section: str, texts: Iterable[str], option: str) -> None:
    """Put options key=value of a section, such as `local`, into the tree; those with several values vary."""
    told = {key: _listed(value) for key, value in parse_options(texts, option).items()}
    if told:
        tree[section] = nest({key: values[0] for key, values in told.items() if len(values) == 1})
    for key, values in told.items():
        if len(values) > 1:
            put(tree, f"{section}.{key}", values)


def _listed(value: Any) -> list[Any]:
    return several(value) if isinstance(value, str) else [value]


def seeds(text: str) -> dict[str, Any]:
    """Return what `3` (so many), `0-4` and `0,3,7` (these) say of seeds.

    Raises:
        CliError: it is none of them.
    """
    found: list[int] = []
    try:
        for part in text.split(","):
            first, sign, last = part.strip().partition("-")
            found += range(int(first), int(last if sign else first) + 1)
    except ValueError:
        raise CliError(f"--seeds {text}: expected how many, such as 3, or which, such as 0-4 or 0,3,7") from None
    if text.strip().isdecimal():
        return {"seeds": found[0], "seed_list": None}
    return {"seed_list": found}


def networks(
    tree: dict[str, Any], architecture: str | None, options: list[str], parts: list[str], server: str | None
) -> None:
    """Put the networks that were named into the tree; of several, each is a point of a sweep.

    Raises:
        CliError: options of a network that nobody named.
    """
    named: list[Any] = several(architecture) if architecture else []
    if named or options or parts:
        told = parse_options(options, "--architecture-option")
        more = nest(parse_options(parts, "--prototype-option"))
        known = [each.get("architecture") for each in tree.get("prototypes") or []]
        if not named and not known:
            raise CliError("--architecture-option, --prototype-option: name the network too, with --architecture")
        tree["prototypes"] = [{"architecture": str((named or known)[0]), "options": told, **more}]
    if len(named) > 1:
        put(tree, "architecture", named)
    if server:
        tree["server_model"] = {"architecture": server}


def recipes(tree: dict[str, Any], names: list[str], options: list[str], central: bool) -> None:
    """Put the recipes, central training if it is asked for, and their options into the tree.

    Raises:
        CliError: an option for a recipe that is not compared, or one that no recipe has.
    """
    entries = [each if isinstance(each, dict) else {"name": each} for each in tree.get("recipes") or []]
    if names:
        known = {each["name"]: each for each in entries if "name" in each}
        asked = [name.strip() for text in names for name in text.split(",")]
        entries = [dict(known.get(name, {"name": name})) for name in asked]
    tree["recipes"] = entries or [{"name": "fedavg"}]
    if central and not any(each.get("pooled") for each in tree["recipes"]):
        tree["recipes"].append({"name": "central", "recipe": {"name": "central"}, "pooled": True})
    for text in options:
        owner, sign, rest = text.partition(":")
        owned = bool(sign) and "=" not in owner
        for key, value in parse_options([rest if owned else text]).items():
            name, values = f"{owner}:{key}" if owned else key, _listed(value)
            if len(values) > 1:
                put(tree, OPTION + name, values)
            else:
                give(tree["recipes"], name, values[0])


def give(entries: list[dict[str, Any]], name: str, value: Any) -> list[str]:
    """Give an option, `recipe:key` or `key`, to the recipes that have it; return the titles of those that do not.

    Raises:
        CliError: there is no such recipe, or none has the option.
    """
    from contract.recipes.errors import RecipeError
    from contract.recipes.presets import build

    owner, sign, key = name.rpartition(":")
    told = nest({key: value})
    if sign:
        mine = [each for each in entries if owner in (each.get("label"), each.get("name"))]
        if not mine:
            raise CliError(f"--option {owner}:…: there is no recipe {owner!r} among those that are compared")
        for each in mine:
            each["options"] = merge(each.get("options", {}), told)
        return [_title(each) for each in entries if each not in mine]
    errors, without = [], []
    for each in entries:
        options = merge(each.get("options", {}), told)
        try:
            build(str(each.get("name")), options)
        except RecipeError as error:
            errors.append(f"{each.get('name')}: {error}")
            without.append(_title(each))
            continue
        each["options"] = options
    if len(errors) == len(entries):
        raise CliError(f"--option {next(iter(told))}: {errors[0]}")
    return without


def _title(entry: Mapping[str, Any]) -> str:
    return str(entry.get("label") or entry.get("name"))


def changes(texts: list[str]) -> list[dict[str, Any]]:
    """Return the changes of the plan, those of the same round as one.

    Raises:
        CliError: one does not begin with a round.
    """
    found: dict[int, list[str]] = {}
    for text in texts:
        index, _, told = text.partition(":")
        if not index.isascii() or not index.isdecimal() or "=" not in told:
            raise CliError(f"--plan-at {text}: expected a round and what changes, such as 5:local.epochs=1")
        found.setdefault(int(index), []).append(told)
    return [
        {"from_round": index, "change": nest(parse_options(told, "--plan-at"))} for index, told in sorted(found.items())
    ]


def experiment(tree: dict[str, Any]) -> Any:
    """Return the tree as a `potstill.simulate.settings.Experiment`.

    Raises:
        CliError: names the field.
    """
    from pydantic import ValidationError

    from contract.faults import faults_of
    from potstill.simulate.settings import Experiment

    try:
        return Experiment.model_validate(tree)
    except ValidationError as error:
        raise CliError("{}: {}".format(*faults_of(error, tree)[0])) from error
