"""What varies in a sweep, the points that it spans, and their cells: a point, a recipe and a seed."""

import copy
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from contract.recipes.recipe import merge
from potstill.console import nest
from potstill.simulate.config import SimulationError
from potstill.simulate.settings import Experiment, RecipeEntry
from potstill.simulate.told import OPTION, experiment, give

VARY = "vary"
RECIPE, SEED = "recipe", "seed"
_FOLDERS_MOST = 120
_APART = {
    RECIPE: "recipes",
    SEED: "seeds",
    "recipes": "recipes",
    "seeds": "seeds",
    "first_seed": "seeds",
    "rounds.": "rounds",
}
_FILES = ("data", "server_data")


@dataclass(frozen=True)
class Point:
    """One combination of what varies beside recipes and seeds.

    Attributes:
        varied: what varies -> its value here, in the order in which it was named.
        experiment: that of this point, with all recipes and seeds.
        lacking: a recipe's title -> options that vary and that it does not have.
    """

    varied: Mapping[str, Any]
    experiment: Experiment
    lacking: Mapping[str, frozenset[str]]

    @property
    def name(self) -> str:
        """What its folder is called."""
        return _name(self.varied)


@dataclass(frozen=True)
class Cell:
    """One run of a sweep."""

    point: Point
    entry: RecipeEntry
    seed: int

    @property
    def varied(self) -> dict[str, Any]:
        """What varies -> its value here, recipe and seed last; without options that the recipe does not have."""
        lacking = self.point.lacking.get(self.entry.title, frozenset())
        own = {name: value for name, value in self.point.varied.items() if name not in lacking}
        return {**own, RECIPE: self.entry.title, SEED: self.seed}

    @property
    def name(self) -> str:
        """What its file is called; the same for all points that mean the same to its recipe."""
        return _name(self.varied)


@dataclass(frozen=True)
class Sweep:
    """A grid.

    Attributes:
        base: what does not vary.
        vary: what varies -> its values.
    """

    base: Experiment
    vary: Mapping[str, Sequence[Any]]
    points: Sequence[Point]

    @property
    def cells(self) -> list[Cell]:
        """All cells in their order: point by point, seed by seed, recipe by recipe; of equal ones the first."""
        found: dict[str, Cell] = {}
        for point in self.points:
            for seed in point.experiment.all_seeds:
                for entry in point.experiment.recipes:
                    cell = Cell(point, entry, seed)
                    found.setdefault(cell.name, cell)
        return list(found.values())

    @property
    def told(self) -> dict[str, Any]:
        """The sweep as `--config` reads it."""
        return {**self.base.model_dump(mode="json"), VARY: {name: list(values) for name, values in self.vary.items()}}


def sweep_of(tree: Mapping[str, Any]) -> Sweep:
    """Return the sweep of an experiment's tree, in which `vary` says what varies -> its values.

    Raises:
        CliError: something varies that cannot, twice the same, or a point is no experiment; the message names it.
    """
    vary = tree.get(VARY, {})
    rest = {name: value for name, value in tree.items() if name != VARY}
    if not isinstance(vary, dict):
        raise SimulationError('vary: give what varies and its values, such as {"alpha": [0.1, 1.0]}')
    for name, values in vary.items():
        _check(name, values)
    points = []
    for values in product(*vary.values()):
        varied = dict(zip(vary, values, strict=True))
        points.append(_point(rest, varied))
    return Sweep(experiment(copy.deepcopy(rest)), vary, points)


def _check(name: str, values: Any) -> None:
    if name in _APART:
        raise SimulationError(f"vary: {name}: that is told by {_APART[name]!r}, which takes several")
    if not isinstance(values, list) or not values:
        raise SimulationError(f"vary: {name}: give a list of values")
    shown = [shown_of(value) for value in values]
    twice = next((each for each in shown if shown.count(each) > 1), None)
    if twice is not None:
        raise SimulationError(f"vary: {name}: {twice} is there twice; leave one out")


def _point(rest: Mapping[str, Any], varied: Mapping[str, Any]) -> Point:
    tree, lacking = copy.deepcopy(dict(rest)), dict[str, set[str]]()
    for name, value in varied.items():
        if name.startswith(OPTION):
            for title in give(tree["recipes"], f"{name.removeprefix(OPTION)}", value):
                lacking.setdefault(title, set()).add(name)
        elif name == "architecture":
            first = (tree.get("prototypes") or [{}])[0]
            tree["prototypes"] = [{**first, "architecture": value}]
        elif name.partition(".")[0] not in Experiment.model_fields:
            raise SimulationError(f"vary: {name}: an experiment has nothing of that name")
        else:
            tree = merge(tree, nest({name: value}))
    return Point(varied, experiment(tree), {title: frozenset(names) for title, names in lacking.items()})


def shown_of(value: Any) -> str:
    """Return a value as tables and names have it: numbers as short as they can be, of a path its last part."""
    if isinstance(value, bool) or value is None or isinstance(value, dict | list):
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def called(varied: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what varies and its value as text."""
    for name, value in varied.items():
        yield name, Path(value).name if name in _FILES and isinstance(value, str) else shown_of(value)


def _name(varied: Mapping[str, Any]) -> str:
    """Return a name for files; what cannot stand in one, or is too long, has a digest of the whole at its end."""
    plain = ",".join(f"{name}={shown}" for name, shown in called(varied))
    whole = ",".join(f"{name}={shown_of(value)}" for name, value in varied.items())
    clean = re.sub(r"[^\w.+=,-]", "_", plain).lstrip(".")
    if clean == whole and len(clean) <= _FOLDERS_MOST:
        return clean
    return f"{clean[:_FOLDERS_MOST]}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"
