"""Every recipe on a network of which devices train a part: the base never moves, and is in no round's file."""

from pathlib import Path
from typing import Any

import pytest
import torch

from contract.nn.codec import load_state
from contract.nn.registry import initialise
from contract.tensors import TensorFile
from contract.updates import BASE_KEY
from contract.wire.federations import Task
from potstill.simulate.engine import Simulation
from potstill.simulate.history import History, digest_of

from .small import LOCAL, body, config
from .test_engine import SCHEDULE, STATEFUL

TRAINED = {"3.weight", "3.bias"}
PARTED = {"architecture": "mlp", "options": {"hidden": [5]}, "trains": ["3.*"]}
HEAD = {"architecture": "mlp", "options": {"hidden": [5], "common_head": True}, "trains": ["adapter.*", "head.*"]}
CASES: dict[str, dict[str, Any]] = {name: case for name, case in STATEFUL.items() if name != "fedgan"} | {
    "fedavg": {},
    "fedprox": {"local": {"objective": {"kind": "fedprox", "mu": 1.0}, **LOCAL}},
    "fedyogi": {"recipe": {"name": "fedyogi"}},
    "median": {"recipe": {"name": "own", "fuse": {"kind": "median"}}},
    "krum": {"recipe": {"name": "own", "fuse": {"kind": "krum", "byzantine": 0}}},
    "fedbe": {"recipe": {"name": "fedbe", "options": {"schedule": {"epochs": 1, "batch_size": 16}}}},
    "swag": {"recipe": {"name": "fedbe", "options": {**SCHEDULE, "members": {"posterior": {"kind": "swag"}}}}},
    "binary": {"local": {"precision": {"kind": "binary"}, **LOCAL}},
    "secure": {"rounds": {"total": 2, "min_updates": 3, "secure": {}}},
    "private": {"local": {"privacy": {"noise_multiplier": 0.5}, **LOCAL}},
}


def network(task: Task, prototype: dict[str, Any], model: Path, base: Path) -> torch.nn.Module:
    module = initialise(prototype["architecture"], prototype["options"], task, 0)
    load_state(module, model, base)
    return module


def run(folder: Path, prototype: dict[str, Any], **changes: Any) -> History:
    changes = {"prototypes": [prototype], **changes}
    return Simulation(config(folder, body_=body(**changes), keep_updates=True)).run()


@pytest.mark.parametrize("name", CASES)
def test_a_recipe_moves_the_trained_tensors_and_nothing_else(tmp_path: Path, name: str) -> None:
    history = run(tmp_path / name, PARTED, **CASES[name])

    base = history.initial.state["send.base.main"]
    for record in history.rounds:
        assert record.outcome == "published"
        assert record.state["send.base.main"].read_bytes() == base.read_bytes()
        with TensorFile(record.models["main"]) as file:
            assert set(file.names) == TRAINED
            assert file.header.metadata[BASE_KEY] == digest_of(base)
        assert record.digests["main"] != history.initial.digests["main"]
        assert record.accuracy is not None
    with TensorFile(base) as file:
        assert set(file.names) == {"1.weight", "1.bias"}
