"""docs/reference.md: a section for every built-in recipe, made of its row, its parts and the rules of creation."""

import json
import shlex
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pydantic import BaseModel

from contract.choices import Choice, Occasion, described, kind_of, walk
from contract.local import LocalPlan
from contract.recipes.presets import PRESETS
from contract.recipes.rows.row import Preset
from contract.tasks import KINDS
from contract.wire.federations import DatasetRefs, FederationCreate
from service.domain import federation
from service.domain.errors import DomainError
from service.domain.mixture import check_mixture
from tools import tasks
from tools.markdown import bounds, cell, shown, table

_WHEN: dict[Occasion, str] = {
    "enrolment": "at enrolment",
    "before": "once, before the first round",
    "generator": "in each round of the generator",
    "round": "each round",
}
_ROUNDS: dict[str, dict[str, Any]] = {
    "rounds that do not wait": {"mode": "buffered", "buffer": 3},
    "secure rounds": {"secure": {}},
}
_NETWORKS = ("resnet-8", "vgg-9")
"""What a recipe is shown with: the first that it takes."""
_OTHER = ("distil", "discriminators")
"""Parts without which a recipe is another one."""


def recipes() -> str:
    """Return the sections of all recipes, and what all of them have in common."""
    return "\n".join(_section(name, row) for name, row in PRESETS.items())


def local() -> str:
    """Return what can be said of any recipe's local training."""
    rows = _options(LocalPlan(), "", lambda path: path.partition(".")[0] not in ("objective", "optimizer"))
    return table(("option", "default", "values", "what it is"), rows)


def _section(name: str, row: Preset) -> str:
    stage = [(path, part) for path, part in _named(row.recipe, "") if path]
    own = [("local.objective", row.local.objective)]
    found = [
        f"## `{name}`\n{row.summary} ({row.source})\n",
        _example(name, row),
        table(("part", "is", "what that is"), [*map(_part, [*stage, *own]), ("`local`", "", _trains(row.local))]),
    ]
    options = [*_options(row.recipe, ""), *_options(row.local.objective, "local.objective")]
    if options:
        found.append(table(("option", "default", "values", "what it is"), options))
    told = [f"- Devices send {_sends(row)}.", *_kept(row), *_refused(name, row)]
    told += [f"- Where the paper is silent: {each}" for each in row.choices]
    return "\n".join([*found, "\n".join(told) + "\n"])


# --------------------------------------------------------------------------------------------------- parts and options
def _inner(part: BaseModel, path: str) -> Iterator[tuple[str, Any]]:
    """Yield a part's fields by their paths, as `--option` takes them."""
    for name in type(part).model_fields:
        if name not in ("kind", "name"):
            value = getattr(part, name)
            inner = f"{path}.{name}" if path else name
            yield inner.removeprefix("distil."), value


def _named(value: Any, path: str) -> Iterator[tuple[str, Choice]]:
    """Yield the choices of a recipe with the places where they stand."""
    for each in value if isinstance(value, tuple) else (value,):
        if isinstance(each, Choice):
            yield path, each
        if isinstance(each, BaseModel):
            for inner, below in _inner(each, path):
                yield from _named(below, inner)


def _part(found: tuple[str, Choice]) -> tuple[str, str, str]:
    path, choice = found
    return f"`{path}`", f"`{kind_of(type(choice))}`", cell(described(type(choice)).split("\n\n")[0])


def _options(part: Any, path: str, wanted: Callable[[str], bool] = lambda path: True) -> Iterator[list[str]]:
    """Yield a row for each option of a part and of the parts in it."""
    for each in part if isinstance(part, tuple) else (part,):
        made = type(each).model_json_schema()
        schema, below = made["properties"], made.get("$defs", {})
        for inner, value in _inner(each, path):
            if not wanted(inner):
                continue
            if isinstance(value, BaseModel) or (isinstance(value, tuple) and value and isinstance(value[0], BaseModel)):
                yield from _options(value, inner)
                continue
            if value is None and inner in _OTHER:
                continue
            field = schema[inner.rpartition(".")[2]]
            default = value if isinstance(value, bool | int | float | str | list | dict | None) else list(value)
            yield [f"`{inner}`", shown(default), _values(field, below), cell(field.get("description", ""))]


def _values(field: dict[str, Any], defined: dict[str, Any]) -> str:
    """Return what a field may be, by its schema; empty where its type says all.

    Args:
        field: of a part's JSON schema.
        defined: what that schema refers to.
    """
    found = []
    for kind in field.get("anyOf", [field]):
        if kind.get("type") == "null":
            found.append("`null`")
        elif "discriminator" in kind:
            found.append(f"an object of kind {', '.join(f'`{each}`' for each in kind['discriminator']['mapping'])}")
        elif "$ref" in kind:
            inner = defined[kind["$ref"].rpartition("/")[2]].get("properties", {})
            found.append(f"an object of {', '.join(f'`{each}`' for each in inner)}" if inner else "")
        else:
            found.append(bounds(kind) or ", ".join(f"`{each}`" for each in kind.get("enum", ())))
    return " or ".join(each for each in found if each)


def _trains(plan: LocalPlan) -> str:
    optimizer = plan.optimizer
    told = ", ".join(f"{name} {value}" for name, value in _inner(optimizer, "") if value)
    epochs = f"{plan.epochs} epoch{'s' if plan.epochs != 1 else ''}"
    return f"{epochs} in batches of {plan.batch_size} by `{kind_of(type(optimizer))}` ({told})"


# ------------------------------------------------------------------------------------------ what is sent, kept, refused
def _sends(row: Preset) -> str:
    sent = {each: None for choice in walk([row.recipe, row.local]) for each in choice.sends}
    first = ["the model's weights"] if row.local.objective.sends_weights else []
    return "; ".join([*first, *(f"{each.what.rstrip(',')} ({_WHEN[each.when]})" for each in sent)])


def _kept(row: Preset) -> list[str]:
    kept = {each.stem: None for choice in walk([row.recipe, row.local]) for each in choice.declares.carries}
    return [f"- The service keeps {', '.join(f'`{each}`' for each in kept)} from round to round."] if kept else []


def _refused(name: str, row: Preset) -> list[str]:
    said: dict[str, list[str]] = {}
    for kind in KINDS:
        if why := tasks.refusal(kind, name):
            said.setdefault(why.replace(f"a task of kind '{kind}'", "such a task"), []).append(f"`{kind}`")
    for words, rounds in _ROUNDS.items():
        if why := tasks.refusal("classification", name, rounds):
            said.setdefault(why, []).append(words)
    if why := _not_private(row):
        said.setdefault(why, []).append("`local.privacy`")
    return [f"- Refused with {', '.join(what)}: {cell(why)}." for why, what in said.items()]


def _not_private(row: Preset) -> str:
    exposed = {
        each.exposed: each.what for choice in walk([row.recipe, row.local]) for each in choice.sends if each.exposed
    }
    return "; ".join(f"{what.rstrip(',')} would be sent without noise; {instead}" for instead, what in exposed.items())


# ---------------------------------------------------------------------------------------------------------- the command
def body_of(name: str, row: Preset, network: str) -> dict[str, Any]:
    """Return the body of a federation with a recipe as it is: images of CIFAR's size, the server sets that it reads."""
    distil = row.recipe.distil
    shares, trains = (distil.students.shares_head, distil.students.trains_server) if distil else (False, False)
    prototype: dict[str, Any] = {"architecture": network}
    prototype |= {"options": {"common_head": True}} if shares else {}
    reads = row.recipe.needs_unlabeled or row.recipe.needs_labels
    return {
        "name": name,
        "task": {"num_classes": 10, "input": {"shape": [3, 32, 32]}},
        "prototypes": [prototype],
        "server_model": {**prototype, "architecture": "resnet-20"} if trains else None,
        "recipe": {"name": name},
        "rounds": {"total": 20, "min_clients": 10, "min_updates": 5},
        "datasets": {"unlabeled": "server", "test": "test"} if reads else {"test": "test"},
    }


def accepted(body: dict[str, Any]) -> bool:
    """Whether creation would take a body."""
    try:
        resolved = federation.resolve(FederationCreate.model_validate(body), DatasetRefs(), set(body["datasets"]))
        check_mixture(resolved, set(body["datasets"]))
    except DomainError:
        return False
    return True


def _example(name: str, row: Preset) -> str:
    """Return the command that creates a federation with the recipe, and the file that it reads where it needs one.

    Raises:
        StopIteration: creation refuses it with every network.
    """
    body = next(each for network in _NETWORKS if accepted(each := body_of(name, row, network)))
    words: list[str] = ["potstill federation create", f"--name {name} --recipe {shlex.quote(name)}"]
    [prototype] = body["prototypes"]
    words.append(f"--architecture {prototype['architecture']}")
    words += [f"--architecture-option {key}={json.dumps(value)}" for key, value in prototype.get("options", {}).items()]
    words += ["--input-shape 3,32,32 --classes 10", *(f"--{each} {name}" for each, name in body["datasets"].items())]
    words.append("--rounds 20 --min-clients 10 --min-updates 5")
    before = ""
    if body["server_model"]:
        before = f"With `server.json`:\n```json\n{json.dumps({'server_model': body['server_model']})}\n```\n"
        words.insert(1, "--file server.json")
    return f"{before}```sh\n{_folded(words)}\n```\n"


def _folded(words: Iterable[str]) -> str:
    """Return words as a command of lines of at most 120 letters."""
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) > 116:
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n".join(lines)
