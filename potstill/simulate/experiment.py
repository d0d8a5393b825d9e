"""Several recipes on the same data: per seed one split, one partition, the same first models and participation."""

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from contract.federation import FederationConfig
from contract.seeds import derive_seed
from contract.tasks import Metric
from contract.wire.changes import PlanChange
from contract.wire.federations import Task
from contract.wire.report import FederationReport
from potstill.samples import Labels, Samples
from potstill.simulate import central, costs, datasets, dealing, domain, liars, partition
from potstill.simulate.config import SimulatedClient, SimulationConfig, SimulationError, planned, resolve
from potstill.simulate.crew import Crew
from potstill.simulate.engine import Simulation
from potstill.simulate.history import History, RoundRecord
from potstill.simulate.jobs import OnProgress
from potstill.simulate.loaded import Loaded
from potstill.simulate.settings import (
    Experiment,
    ImageTransform,
    PlannedChange,
    RecipeEntry,
    federation,
    preset_of,
    task_of,
)
from service.domain import federation as rules
from service.domain.costs import TARGETS

_OWN_TEST = 0.2  # of a data set without a test set


@dataclass(frozen=True)
class Dealt:
    """One seed's data: the server's, and every client's by name.

    Attributes:
        strata: what samples are dealt by: how many there are, S.
        dealt_by: the same in words.
        vocabulary: token ids that networks know, where inputs are such.
    """

    task: Task
    clients: dict[str, Samples]
    server: Samples
    validation: Samples
    test: Samples
    strata: int
    dealt_by: str
    vocabulary: int | None

    @property
    def holdings(self) -> Labels:
        """Samples per client and stratum, [clients, S]."""
        dealt = [samples.dealt_by for samples in self.clients.values()]
        return np.stack([np.bincount(each, minlength=self.strata) for each in dealt])


@dataclass(frozen=True)
class Run:
    """One recipe with one seed, done."""

    entry: RecipeEntry
    seed: int
    history: History
    config: FederationConfig

    @property
    def metric(self) -> Metric:
        """What the task is measured by."""
        return self.config.task.main_metric

    def costs(self, targets: Sequence[float] = TARGETS) -> FederationReport | None:
        """Return what it has cost; None where nobody counted, and of central training, which sends no models."""
        return None if self.entry.pooled else costs.report(self.entry.title, self.config, self.history, targets)


def deal(experiment: Experiment, loaded: Loaded, seed: int) -> Dealt:
    """Split a data set for one seed and deal the clients' share.

    Raises:
        SimulationError: more samples are asked for than there are.
    """
    generator = np.random.default_rng(derive_seed(seed, "simulate", "split"))
    pool, test = loaded.train, loaded.test
    if test is None:
        size = experiment.test_samples or int(_OWN_TEST * len(pool))
        chosen, rest = partition.stratified(pool.dealt_by, [size], generator)
        pool, test = pool.take(rest), pool.take(chosen)
    elif experiment.test_samples is not None:
        test = test.take(partition.stratified(test.dealt_by, [experiment.test_samples], generator)[0])
    server, validation, pool = dealing.server_parts(experiment, loaded, pool, generator)
    server = dealing.of_other_domain(experiment, loaded, server, seed)
    if experiment.samples is not None:
        pool = pool.take(partition.stratified(pool.dealt_by, [experiment.samples], generator)[0])
    shares = dealing.shares(experiment, pool, np.random.default_rng(derive_seed(seed, "simulate", "partition")))
    width = len(str(experiment.clients - 1))
    clients = {f"client-{number:0{width}}": pool.take(share) for number, share in enumerate(shares)}
    task = task_of(loaded, experiment.metric)
    dealt = Dealt(task, clients, server, validation, test, loaded.strata, loaded.dealt_by, loaded.vocabulary)
    return dealt if experiment.client_transform is None else _of_own_features(dealt, experiment.client_transform, seed)


def _of_own_features(dealt: Dealt, how: ImageTransform, seed: int) -> Dealt:
    """Return the same data with clients' images each of one variant, in turn, and all others of all variants."""
    generator = np.random.default_rng(derive_seed(seed, "simulate", "client_transform"))
    clients = {name: domain.variant(each, how, number) for number, (name, each) in enumerate(dealt.clients.items())}
    others = (dealt.server, dealt.validation, dealt.test)
    server, validation, test = (domain.mixed(each, how, generator) for each in others)
    return replace(dealt, clients=clients, server=server, validation=validation, test=test)


def save_server(dealt: Dealt, folder: Path, learns_labels: bool = False) -> dict[str, Path]:
    """Write the server's sets, once for all recipes; return role -> file.

    Args:
        dealt: the split data.
        folder: where they go.
        learns_labels: a recipe's students learn the labels of what is named as unlabelled; else they are left out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths: dict[str, Path] = {}
    for role, samples in (("unlabeled", dealt.server), ("validation", dealt.validation), ("test", dealt.test)):
        if len(samples):
            paths[role] = samples.save(folder / f"{role}.safetensors", labelled=learns_labels or role != "unlabeled")
    return paths


def save_clients(dealt: Dealt, folder: Path) -> None:
    """Write who the clients are: by name, how many samples each has, and whose they are where that is known."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {name: {"samples": len(each)} | _user(each) for name, each in dealt.clients.items()}
    (folder / "clients.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def _user(samples: Samples) -> dict[str, str]:
    users = set() if samples.users is None else set(samples.users.tolist())
    return {"user": str(users.pop())} if len(users) == 1 else {}


def folder_name(label: str) -> str:
    """Return a label as a folder's name."""
    return re.sub(r"[^\w.+-]", "_", label).lstrip(".") or "_"


NETWORKS = "networks"
"""Folder of the documents that an experiment names; it is filled before the experiment begins."""


def claim(told: dict[str, Any], out: Path, resume: bool) -> None:
    """Make the experiment's folder and note what it is; one that holds the very same is gone on with.

    Args:
        told: the experiment as `--config` reads it.
        out: the folder.
        resume: what is there may be another one, to which runs are added; what is done is checked where it is read.

    Raises:
        SimulationError: it holds another experiment and `resume` was not asked for, or something else.
    """
    note = out / "experiment.json"
    text = json.dumps(told, indent=2) + "\n"
    if out.exists() and any(each.name != NETWORKS for each in out.iterdir()):
        if not note.exists():
            raise SimulationError(f"{out} is not empty and holds no experiment; choose another with --out")
        other = _other(json.loads(note.read_text(encoding="utf-8")), json.loads(text))
        if other is not None and not resume:
            raise SimulationError(
                f"{out} holds another experiment: {other}; choose another with --out, or add to it by --resume"
            )
    out.mkdir(parents=True, exist_ok=True)
    partial = note.with_suffix(".part")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, note)


_ELSEWHERE = ("device", "data_dir")
"""What of an experiment may be otherwise on another machine."""


def _other(known: dict[str, Any], told: dict[str, Any]) -> str | None:
    """Return the first field in which two experiments differ, and how; None where they are the same."""
    for name in (*told, *known):
        if name not in _ELSEWHERE and known.get(name) != told.get(name):
            return f"its {name} is {json.dumps(known.get(name))}, and {json.dumps(told.get(name))} is asked for"
    return None


def check(experiment: Experiment, loaded: Loaded) -> None:
    """Refuse what cannot be run, before anything is.

    Raises:
        SimulationError: names the recipe and the part.
    """
    titles = [folder_name(entry.title) for entry in experiment.recipes]
    twice = sorted({title for title in titles if titles.count(title) > 1})
    if twice:
        raise SimulationError(f"recipes: {twice[0]!r} comes twice; give each a label of its own")
    if experiment.partition != "dirichlet" and experiment.balanced:
        raise SimulationError(f"balanced: goes with partition dirichlet, not {experiment.partition}")
    _check_liars(experiment)
    _check_changes(experiment)
    dealing.check(experiment, loaded)
    dealt = deal(experiment, loaded, experiment.all_seeds[0])
    roles = {"unlabeled": dealt.server, "validation": dealt.validation, "test": dealt.test}
    server = {role: samples for role, samples in roles.items() if len(samples)}
    for entry in experiment.recipes:
        try:
            config = _config(experiment, entry, dealt, dict(server), Path(), experiment.all_seeds[0])
            resolved = resolve(config)
            planned(config, resolved)
            _check_labels(loaded, resolved)
            if experiment.lie is not None and not entry.pooled:
                liars.check(experiment.lie, resolved)
        except SimulationError as error:
            raise SimulationError(f"{entry.title}: {error}") from error


def _check_liars(experiment: Experiment) -> None:
    if bool(experiment.liars) != (experiment.lie is not None):
        raise SimulationError("liars: --liars and --lie go together: how many clients lie, and what they send")
    if experiment.liars > experiment.clients:
        raise SimulationError(f"liars: {experiment.liars} of {experiment.clients} clients; ask for fewer with --liars")


def _check_changes(experiment: Experiment) -> None:
    indices = [each.from_round for each in experiment.changes]
    twice = next((index for index in indices if indices.count(index) > 1), None)
    if twice is not None:
        raise SimulationError(f"changes: from round {twice} on there are two; make them one")
    for each in experiment.changes:
        if not any(_change(each, entry) for entry in experiment.recipes):
            raise SimulationError(f"changes: round {each.from_round}: schedule: no recipe that is compared distils")


def _check_labels(loaded: Loaded, config: FederationConfig) -> None:
    if loaded.other is not None and config.recipe.needs_labels:
        raise SimulationError(
            "its students learn the labels of the server's samples, and those of server_data are of other classes; "
            "leave --server-data out"
        )


def _config(
    experiment: Experiment, entry: RecipeEntry, dealt: Dealt, server: dict[str, object], folder: Path, seed: int
) -> SimulationConfig:
    body = federation(experiment, entry, dealt.task, seed, dealt.vocabulary)
    names = [prototype.name for prototype in body.prototypes]
    lying = dict.fromkeys(liars.choose(dealt.clients, experiment.liars, seed), experiment.lie)
    clients = [
        SimulatedClient(
            name, (samples.inputs, samples.labels), prototype=names[number % len(names)], lie=lying.get(name)
        )
        for number, (name, samples) in enumerate(dealt.clients.items())
    ]
    config = SimulationConfig(
        federation=body,
        clients=clients,
        server=server,
        folder=folder,
        device=experiment.device,
        threads=experiment.threads,
        keep_models=False,
        changes=_changes(experiment, entry),
        speeds=experiment.speeds,
    )
    return central.alone(config, dealt.clients) if entry.pooled else config


def _changes(experiment: Experiment, entry: RecipeEntry) -> dict[int, PlanChange]:
    found = {each.from_round: _change(each, entry) for each in experiment.changes}
    return {index: change for index, change in found.items() if change is not None}


def _change(planned_change: PlannedChange, entry: RecipeEntry) -> PlanChange | None:
    """Return what of a change a recipe has; None where nothing is left, or nobody knows the recipe."""
    recipe = preset_of(entry)
    return None if recipe is None else planned_change.of(recipe)


def _learns_labels(experiment: Experiment, task: Task, seed: int) -> bool:
    bodies = (federation(experiment, entry, task, seed) for entry in experiment.recipes)
    return any(rules.resolve_recipe(body.recipe).needs_labels for body in bodies)


def read(experiment: Experiment) -> Loaded:
    """Return the experiment's data set.

    Raises:
        SimulationError: there is none of that name, or it cannot be read.
    """
    folder = Path(experiment.data_dir) if experiment.data_dir else None
    loaded = datasets.load(experiment.data, folder, experiment.task)
    if experiment.server_data is not None:
        loaded = replace(loaded, other=datasets.server_inputs(experiment.server_data, folder))
    return loaded


def load(experiment: Experiment) -> Loaded:
    """Return the experiment's data set, after all checks that need no training.

    Raises:
        SimulationError: there is no such data set, or a recipe cannot be run on it.
    """
    loaded = read(experiment)
    check(experiment, loaded)
    return loaded


def run(
    experiment: Experiment,
    loaded: Loaded,
    out: Path,
    *,
    crew: Crew | None = None,
    wanted: Callable[[RecipeEntry, int], bool] = lambda entry, seed: True,
    on_dealt: Callable[[int, Dealt], None] | None = None,
    on_run: Callable[[RecipeEntry, int], None] | None = None,
    on_round: Callable[[Run], None] | None = None,
    on_progress: OnProgress | None = None,
) -> Iterator[Run]:
    """Run every recipe with every seed and yield each when it is done; what is done already is read from `out`.

    Args:
        crew: who trains devices; by default this process.
        wanted: says which runs are; the others are left out.
        on_round: called with the run so far after each round that is run now.

    Raises:
        SimulationError, JobFailure, PotstillError: what cannot be run; earlier runs stay on the disk.
    """
    for seed in experiment.all_seeds:
        entries = [entry for entry in experiment.recipes if wanted(entry, seed)]
        if not entries:
            continue
        dealt, home = deal(experiment, loaded, seed), out / f"seed-{seed}"
        server = _laid_out(experiment, dealt, home, seed)
        if on_dealt is not None:
            on_dealt(seed, dealt)
        for entry in entries:
            if on_run is not None:
                on_run(entry, seed)
            config = _config(experiment, entry, dealt, server, home / folder_name(entry.title), seed)
            yield _done(entry, seed, Simulation(config, on_progress, crew), on_round)


def _done(entry: RecipeEntry, seed: int, simulation: Simulation, on_round: Callable[[Run], None] | None) -> Run:
    def told(record: RoundRecord) -> None:
        if on_round is not None:
            on_round(Run(entry, seed, simulation.history, simulation.config))

    return Run(entry, seed, simulation.run(told), simulation.config)


def _laid_out(experiment: Experiment, dealt: Dealt, home: Path, seed: int) -> dict[str, object]:
    """Write one seed's data of the server, and who its clients are; return the server's sets by role."""
    learns = _learns_labels(experiment, dealt.task, seed)
    save_clients(dealt, home)
    if experiment.liars:
        lying = liars.choose(dealt.clients, experiment.liars, seed)
        note = json.dumps({"lie": experiment.lie, "clients": lying}) + "\n"
        (home / "liars.json").write_text(note, encoding="utf-8")
    return dict(save_server(dealt, home / "data", learns))
