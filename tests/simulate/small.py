"""Small federations for tests."""

from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner, Result

from contract.wire.federations import FederationCreate
from potstill.cli import app
from potstill.simulate.config import SimulatedClient, SimulationConfig

CLASSES = 3
SHAPE = [6]
NAMES = ("east", "north", "south", "west")
LOCAL = {"optimizer": {"kind": "sgd", "lr": 0.1}, "epochs": 1, "batch_size": 8}


def samples(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors around a corner per class, and their labels."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count)
    inputs = random.normal(0, 0.4, (count, *SHAPE)).astype(np.float32)
    inputs[np.arange(count), labels] += 2
    return inputs, labels.astype(np.int64)


def body(recipe: Any = "fedavg", **more: Any) -> FederationCreate:
    return FederationCreate.model_validate(
        {
            "name": "small",
            "task": {"num_classes": CLASSES, "input": {"shape": SHAPE}},
            "prototypes": [{"architecture": "mlp", "options": {"hidden": [5]}}],
            "recipe": {"name": recipe} if isinstance(recipe, str) else recipe,
            "local": LOCAL,
            "rounds": {"total": 3, "clients_per_round": 3, "min_updates": 3},
            "seed": 5,
        }
        | more
    )


def config(
    folder: Path, recipe: Any = "fedavg", *, body_: FederationCreate | None = None, **more: Any
) -> SimulationConfig:
    clients = [SimulatedClient(name, samples(number, 12 + number)) for number, name in enumerate(NAMES)]
    server = {"unlabeled": samples(90, 30)[0], "test": samples(91, 40)}
    given: dict[str, Any] = {"clients": clients, "server": server, "folder": folder, "threads": 1}
    return SimulationConfig(**{"federation": body_ or body(recipe), **given, **more})


def simulate(*arguments: object) -> Result:
    """Run `potstill simulate`."""
    return CliRunner().invoke(app, ["simulate", *map(str, arguments)])
