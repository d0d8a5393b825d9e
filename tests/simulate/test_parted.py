"""Every recipe on a network of which devices train a part: the base never moves, and is in no round's file."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contract.nn.registry import initialise
from contract.tensors import TensorFile
from contract.updates import BASE_KEY
from potstill.simulate.config import SimulatedClient, SimulationError
from potstill.simulate.engine import Simulation
from potstill.simulate.history import History, RoundRecord, digest_of

from .small import CLASSES, LOCAL, NAMES, body, config, samples
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


def run(folder: Path, prototype: dict[str, Any], **changes: Any) -> History:
    changes = {"prototypes": [prototype], **changes}
    return Simulation(config(folder, body_=body(**changes), keep_updates=True)).run()


def frozen_body() -> torch.nn.Module:
    """Return the same network with its first layer frozen by its user."""
    module = initialise("mlp", {"hidden": [5]}, body().task, 0)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in TRAINED)
    return module


def read(path: Path, names: Collection[str]) -> dict[str, Any]:
    with TensorFile(path) as file:
        return {name: file.read(name) for name in names}


def test_the_trained_tensors_are_those_of_whole_rounds_whose_devices_freeze_the_others(tmp_path: Path) -> None:
    parted = run(tmp_path / "parted", PARTED)
    clients = [
        SimulatedClient(name, samples(number, 12 + number), model=frozen_body) for number, name in enumerate(NAMES)
    ]
    whole = Simulation(config(tmp_path / "whole", clients=clients, keep_updates=True)).run()
    assert [record.accuracy for record in parted.rounds] == [record.accuracy for record in whole.rounds]
    for one, other in zip(parted.rounds, whole.rounds, strict=True):
        expected = read(other.models["main"], TRAINED)
        for name, values in read(one.models["main"], TRAINED).items():
            np.testing.assert_array_equal(values, expected[name])
        up, full = ([path.stat().st_size for path in updates(record)] for record in (one, other))
        assert max(up) < min(full)


def updates(record: RoundRecord) -> list[Path]:
    return [part.update for part in record.participants if part.update is not None]


def test_a_round_sends_small_files_and_the_base_once(tmp_path: Path) -> None:
    """Four devices, three asked a round: each is sent the base in its first round, the model in each."""
    history = run(tmp_path, PARTED)
    base, begun = history.initial.state["send.base.main"].stat().st_size, set[str]()
    model = history.initial.models["main"].stat().st_size
    for record in history.rounds:
        new = {part.client for part in record.participants} - begun
        begun |= new
        assert record.cost is not None
        assert record.cost.files.down == len(record.participants) * model + len(new) * base
        model = record.models["main"].stat().st_size
    assert begun == set(NAMES)


def test_distances_are_of_the_trained_tensors(tmp_path: Path) -> None:
    history = run(tmp_path, PARTED)
    (record, *_), start = history.rounds, read(history.initial.models["main"], TRAINED)
    for part in record.participants:
        assert part.update is not None
        sent = read(part.update, TRAINED)
        distance = sum(float(((sent[name].astype(float) - start[name]) ** 2).sum()) for name in TRAINED) ** 0.5
        norm = sum(float((start[name].astype(float) ** 2).sum()) for name in TRAINED) ** 0.5
        told = record.metrics["distances"][part.client]
        assert told["distance"] == pytest.approx(distance)
        assert told["relative"] == pytest.approx(distance / norm)


@pytest.mark.parametrize("lora", ["factors", "a_frozen"])
def test_the_average_of_an_adapter_is_exact_where_a_is_frozen_and_is_not_otherwise(tmp_path: Path, lora: str) -> None:
    layer = "backbone.layers.0.mlp.0"
    factors = {f"{layer}.lora_a.weight", f"{layer}.lora_b.weight"}
    random = np.random.default_rng(0)
    clients = [SimulatedClient(name, (random.integers(1, 20, (12, 4)), np.arange(12) % 3)) for name in NAMES]
    task = {"num_classes": CLASSES, "input": {"shape": [4], "dtype": "int64"}}
    options = {"vocab_size": 20, "lora_rank": 2}
    prototype = {"architecture": "transformer-tiny", "options": options, "trains": ["*.lora_*"], "lora": lora}
    local = {"optimizer": {"kind": "adam", "lr": 0.05}, "epochs": 2}
    request = body(prototypes=[prototype], task=task, local=local, rounds={"total": 1, "min_updates": 3})
    history = Simulation(config(tmp_path, body_=request, clients=clients, server={}, keep_updates=True)).run()
    (record,) = history.rounds

    def product(path: Path) -> Any:
        found: dict[str, Any] = {}
        for each in (record.state["send.base.main"], path):
            with TensorFile(each) as file:
                found |= {name: file.read(name).astype(float) for name in file.names if name in factors}
        return found[f"{layer}.lora_b.weight"] @ found[f"{layer}.lora_a.weight"]

    weights = np.array([part.num_samples for part in record.participants], float)
    products = np.stack([product(path) for path in updates(record)])
    mean = np.tensordot(weights / weights.sum(), products, 1)
    off = np.linalg.norm(product(record.models["main"]) - mean) / np.linalg.norm(mean)
    assert (off < 1e-6) == (lora == "a_frozen"), off


def test_the_common_head_is_trained_where_it_is_shared(tmp_path: Path) -> None:
    recipe = {"name": "fedet", "options": SCHEDULE}
    server = {"architecture": "mlp", "options": {"hidden": [7], "common_head": True}}
    history = run(tmp_path / "all", HEAD, recipe=recipe, server_model=server)
    assert all(record.outcome == "published" for record in history.rounds)
    heads = [read(record.models[name], {"head.2.weight"}) for record in history.rounds for name in ("main", "server")]
    np.testing.assert_array_equal(heads[-1]["head.2.weight"], heads[-2]["head.2.weight"])
    with pytest.raises(SimulationError, match=r"prototypes.0.trains: the recipe averages the common head; add 'head"):
        run(tmp_path / "some", {**HEAD, "trains": ["adapter.*"]}, recipe=recipe, server_model=server)


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
