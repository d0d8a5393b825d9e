"""Every recipe on every kind of task that it has a meaning for, two rounds of it, as a service would run them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.recipes.presets import PRESETS
from contract.tasks import KINDS, TASKS, TaskKind
from contract.wire.federations import FederationCreate
from potstill.simulate.config import SimulatedClient, SimulationConfig, SimulationError, resolve
from potstill.simulate.engine import Simulation
from tools.tasks import body_of

Pair = tuple[np.ndarray, np.ndarray]
CLIENTS = ("east", "north", "south")


def samples(kind: TaskKind, seed: int, count: int) -> Pair:
    """Return inputs and labels that the networks of `tools.tasks` can learn."""
    random = np.random.default_rng(seed)
    if kind == "tokens":
        ids = random.integers(1, 12, (count, 8))
        ids[:, 6:] = np.where(random.random((count, 1)) < 0.3, 0, ids[:, 6:])
        return ids, np.where(ids == 0, -100, ids % 3)
    if kind == "dense":
        images = random.normal(0, 0.3, (count, 1, 8, 8)).astype(np.float32)
        masks = random.integers(0, 2, (count, 1, 4, 4)).repeat(2, 2).repeat(2, 3)
        labels = masks[:, 0].astype(np.uint8)
        labels[:, 0, 0] = 255
        return images + masks.astype(np.float32), labels
    inputs = random.normal(0, 1, (count, 1, 8, 8)).astype(np.float32)
    means = inputs.reshape(count, 4, 16).mean(2)
    if kind == "multilabel":
        return inputs, (means[:, :3] > 0).astype(np.int64)
    if kind == "regression":
        return inputs, means[:, :2]
    return inputs, means[:, :3].argmax(1)


def config_of(kind: TaskKind, recipe: str, folder: Path, **changes: Any) -> SimulationConfig:
    body = FederationCreate.model_validate(body_of(kind, recipe) | changes)
    clients = [SimulatedClient(name, samples(kind, seed, 9 + seed)) for seed, name in enumerate(CLIENTS)]
    server = {"unlabeled": samples(kind, 7, 12), "test": samples(kind, 8, 10), "validation": samples(kind, 9, 8)}
    return SimulationConfig(federation=body, clients=clients, server=server, folder=folder, threads=1)


def allowed(kind: TaskKind, recipe: str) -> bool:
    try:
        resolve(config_of(kind, recipe, Path("never-made")))
    except SimulationError:
        return False
    return True


PAIRS = [[(kind, recipe) for kind in KINDS if allowed(kind, recipe)] for recipe in PRESETS]
DAILY = {kinds[number % len(kinds)] for number, kinds in enumerate(PAIRS)}
"""Each recipe on one kind, in turn; all pairs are the nightly run's."""


@pytest.mark.parametrize(
    ("kind", "recipe"),
    [pytest.param(*pair, marks=[] if pair in DAILY else [pytest.mark.chaos]) for kinds in PAIRS for pair in kinds],
)
def test_two_rounds_of_every_pair(kind: TaskKind, recipe: str, tmp_path: Path) -> None:
    history = Simulation(config_of(kind, recipe, tmp_path)).run()
    assert [record.outcome for record in history.rounds] == ["published", "published"]
    main = TASKS[kind].metrics[0]
    for record in (history.initial, *history.rounds):
        assert record.measured is not None and np.isfinite(record.measured)
        figures = record.metrics["model"]["measures"]["main"]
        assert {metric.name for metric in TASKS[kind].metrics} <= figures.keys()
        assert not main.is_share or 0 <= record.measured <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_students_learn_the_labels_of_the_servers_set_in_every_kind(kind: TaskKind, tmp_path: Path) -> None:
    found = []
    for data in ("labeled", "unlabeled"):
        told = body_of(kind, "feddf")
        told["recipe"]["options"] |= {"data": {"kind": data}, "early_stop": None}
        changes = {"recipe": told["recipe"], "rounds": told["rounds"] | {"total": 1}}
        body = FederationCreate.model_validate(body_of(kind, "feddf") | changes)
        history = Simulation(replace(config_of(kind, "feddf", tmp_path / data), federation=body)).run()
        assert history.ending is not None and history.ending.state == "finished"
        found.append(history.rounds[0].digests)
    assert found[0] != found[1], "labels of the set teach otherwise than the ensemble's"
