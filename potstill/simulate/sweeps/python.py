"""Simulations from Python: what `potstill simulate` does, with data that are there as arrays."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from client_sdk import data as device_data
from contract import plugins
from potstill.simulate import experiment as experiments
from potstill.simulate import own_files
from potstill.simulate.config import SimulationError
from potstill.simulate.loaded import Loaded
from potstill.simulate.sweeps import show, tables
from potstill.simulate.sweeps.course import Course
from potstill.simulate.sweeps.grid import VARY, sweep_of
from potstill.simulate.sweeps.records import Record

ARRAYS = "arrays"
"""What a data set is called that is there as arrays."""
_APART = {"recipes", "seeds", "first_seed", "seed_list", "data"}
_LISTS = {"prototypes", "changes"}
"""Fields whose one value is a list."""


@dataclass(frozen=True)
class Results:
    """What a run came to; `print` shows the table.

    Attributes:
        folder: has tables, plots and models.
        rows: a combination each, as in `table.json`: what varies, figures' mean, deviation and confidence interval.
        cells: every run with its figures by round.
    """

    folder: Path
    rows: list[dict[str, Any]]
    cells: list[Record]

    def __str__(self) -> str:
        from potstill.drawing import as_markdown

        found = tables.rows_of(self.cells)
        return as_markdown(*tables.table(found), texts=len(tables.axes_of(found)))


def run(
    recipes: Sequence[str | Mapping[str, Any]] | str,
    data: Any = "digits",
    *,
    out: str | os.PathLike[str],
    seeds: int | Iterable[int] = 3,
    test: Any = None,
    server_data: Any = None,
    users: Any = None,
    strata: Any = None,
    plugin: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    vary: Mapping[str, Sequence[Any]] | None = None,
    processes: int | None = None,
    resume: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Results:
    """Compare recipes, or run a grid of comparisons, and return what came of it; done cells of the folder are read.

    Args:
        recipes: names, or entries of a `--config` file: name, label, options, local, plan.
        data: a set's name, a file, or a pair (x, y) of arrays or tensors [N, ...]: floats or token ids, and labels.
        out: folder for models, tables and plots.
        seeds: how many, or which.
        test: a pair like `data`; by default a fifth of the data.
        server_data: the server's unlabelled inputs [M, ...], or a set's name; by default some of the data.
        users, strata: whose each sample is, and what samples are dealt by, [N]; where `data` is a pair.
        plugin: Python files with choices of your own, which are run.
        vary: what varies under a dotted name -> its values, such as `{"local.epochs": [1, 5]}`.
        processes: that train clients; by default as many as pay.
        resume: the folder's sweep may have other values, seeds or recipes.
        quiet: show no bars.
        settings: fields of `potstill.simulate.settings.Experiment`, such as `clients=20`; a field of one value that is
            given a list, a tuple or a range varies. `architecture="mlp"` names the network.

    Raises:
        CliError: it cannot be run as it was described; the message names the field.
        PluginError: a plugin's choice cannot be taken in.
        JobFailure, PotstillError: what a job or a device refused.
    """
    for file in [plugin] if isinstance(plugin, str | os.PathLike) else plugin:
        plugins.take_file(Path(file))
    tree = _tree(recipes, seeds, settings, vary or {})
    tree |= {"server_data": server_data} if isinstance(server_data, str) else {}
    tree["data"] = str(data) if isinstance(data, str | os.PathLike) else ARRAYS
    given = None if tree["data"] != ARRAYS else loaded(data, test, {"users": users, "strata": strata}, tree.get("task"))
    if given is None and any(each is not None for each in (test, users, strata)):
        raise SimulationError("test, users, strata: go with data that are a pair (x, y)")
    sweep = sweep_of(tree)
    if server_data is not None and not isinstance(server_data, str):
        whole = given or experiments.read(sweep.base)
        given = replace(whole, other=own_files.unlabelled(np.asarray(server_data), ARRAYS))
    course = Course(sweep, Path(out), resume, given)
    show.go(course, Path(out), processes, quiet)
    return Results(Path(out), tables.data(tables.rows_of(course.done)), course.done)


def _tree(
    recipes: Sequence[str | Mapping[str, Any]] | str,
    seeds: int | Iterable[int],
    settings: Mapping[str, Any],
    vary: Mapping[str, Sequence[Any]],
) -> dict[str, Any]:
    names = [recipes] if isinstance(recipes, str) else recipes
    tree: dict[str, Any] = {"recipes": [dict(each) if isinstance(each, Mapping) else {"name": each} for each in names]}
    tree |= {"seeds": seeds} if isinstance(seeds, int) else {"seed_list": list(seeds)}
    varied = _settings(tree, settings)
    return {**tree, VARY: varied | {name: list(values) for name, values in vary.items()}}


def _settings(tree: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Put settings of one value into the tree; return those that vary."""
    varied: dict[str, list[Any]] = {}
    for name, value in settings.items():
        several = isinstance(value, list | tuple | range) and name not in _LISTS
        if name == "architecture" and not several:
            tree["prototypes"] = [{"architecture": value}]
        elif several:
            varied[name] = list(value)
        elif name in _APART:
            raise SimulationError(f"{name}: give recipes, data and seeds by their own arguments")
        else:
            tree[name] = value
    return varied


def loaded(data: Any, test: Any, beside: Mapping[str, Any], kind: Any) -> Loaded:
    """Return a data set that is there as arrays.

    Args:
        data, test: pairs (x, y); `test` may be None.
        beside: `users` and `strata`, each [N] or None.
        kind: of its task; None: what its labels can only be of.

    Raises:
        DatasetError, SimulationError: the arrays do not fit.
    """
    known = {name: np.asarray(each) for name, each in beside.items() if each is not None}
    found = own_files.loaded_of(device_data.load(data), ARRAYS, ARRAYS, kind, known)
    if test is None:
        return found
    held = own_files.loaded_of(device_data.load(test), ARRAYS, "test", found.kind)
    if found.kind == "classification":
        return replace(found, test=held.train, num_classes=max(found.num_classes, held.num_classes))
    return replace(found, test=held.train)
