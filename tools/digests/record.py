"""Runs a case and returns what it made: digests of files, and figures that are no times.

Only `potstill.simulate` and what it leaves on the disk are used, so that the tool outlives the code that it watches.
"""

import hashlib
import itertools
import json
import random
import struct
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from contract.tensors import write_file
from contract.wire.federations import FederationCreate
from potstill.simulate.config import SimulatedClient, SimulationConfig
from potstill.simulate.engine import Simulation
from potstill.simulate.history import History, Participation, RoundRecord
from tools.digests.cases import ROUNDS, Case

CLASSES = 4
NAMES = ("west", "east", "north", "south", "centre")
_TIMES = ("seconds",)


def record(case: Case, seed: int) -> dict[str, Any]:
    """Run a case in a folder of its own; return its tree of digests and figures."""
    with tempfile.TemporaryDirectory(prefix="digests-") as name:
        folder = Path(name)
        rounds: dict[str, Any] = {}
        config = _config(case, seed, folder / "run")
        # The noise of DP-SGD is the operating system's, whatever the seed; here it is to repeat itself.
        with patch("secrets.randbits", random.Random(seed).getrandbits):
            history = Simulation(config).run(lambda each: rounds.update({f"{each.index}": _round(each)}))
        return {"before": _before(history, folder / "run"), "rounds": rounds, "devices": _devices(folder / "run")}


# ------------------------------------------------------------------------------------------------------ what is run
def _config(case: Case, seed: int, folder: Path) -> SimulationConfig:
    body = {
        "name": "digests",
        "task": {"num_classes": CLASSES, "input": _INPUTS[case.inputs]},
        "prototypes": case.prototypes,
        "server_model": case.server_model,
        "recipe": {"name": case.recipe, "options": case.options},
        "local": case.local,
        "rounds": {"total": ROUNDS, "clients_per_round": 4} | case.rounds,
        "seed": seed,
    }
    names = [each.get("name", "main") for each in case.prototypes]
    clients = [
        SimulatedClient(name, _samples(case.inputs, seed, number, 10 + number), names[number % len(names)])
        for number, name in enumerate(NAMES)
    ]
    server: dict[str, Any] = {
        role: _samples(case.inputs, seed, 90 + number, 18 + 2 * number)
        for number, role in enumerate(("unlabeled", "validation", "test"))
        if role in case.sets
    }
    return SimulationConfig(
        federation=FederationCreate.model_validate(body),
        clients=clients,
        server=server,
        folder=folder,
        threads=1,
        generator=_generator(folder.parent / "generator.safetensors", seed) if case.imports else None,
        keep_updates=True,
    )


_INPUTS: dict[str, dict[str, Any]] = {
    "images": {"shape": [1, 8, 8], "dtype": "float32"},
    "text": {"shape": [5], "dtype": "int64"},
}


def _samples(inputs: str, seed: int, number: int, count: int) -> tuple[Any, Any]:
    """Return inputs of two classes that are likelier than the others, and labels; the same for the same numbers."""
    chance = np.random.default_rng([seed, number])
    shares = np.full(CLASSES, 0.1)
    shares[[number % CLASSES, (number + 1) % CLASSES]] = 0.4
    labels = chance.choice(CLASSES, count, p=shares).astype(np.int64)
    if inputs == "text":
        return chance.integers(1, 6, (count, 5)) + 6 * labels[:, None], labels
    images = chance.uniform(0, 0.4, (count, 1, 8, 8)).astype(np.float32)
    for image, label in zip(images, labels, strict=True):
        image[0, 2 * label : 2 * label + 2] += np.float32(0.6)
    return images, labels


def _generator(path: Path, seed: int) -> Path:
    """Write weights of `gen-mlp` with one hidden layer of 6, as an operator would import them."""
    widths, chance = (16, 6, 64), np.random.default_rng([seed, 80])
    tensors = {}
    for layer, (wide, out) in enumerate(itertools.pairwise(widths)):
        tensors[f"layers.{2 * layer}.weight"] = chance.normal(0, 0.3, (out, wide)).astype(np.float32)
        tensors[f"layers.{2 * layer}.bias"] = chance.normal(0, 0.3, out).astype(np.float32)
    write_file(path, tensors)
    return path


# --------------------------------------------------------------------------------------------------- what is recorded
def _before(history: History, folder: Path) -> dict[str, Any]:
    return {
        "models": _by_name(history.initial.models),
        "state": _contents(history.initial.state.values()),
        "generator": _by_name(history.generator),
        "generator rounds": _contents(path for path in sorted(folder.glob("gan/*/job/*")) if path.is_file()),
        "discriminators": _by_name(history.discriminators),
        "scores": _by_name(history.scores),
    }


def _round(done: RoundRecord) -> dict[str, Any]:
    return {
        "models": _by_name(done.models),
        "published": done.published,
        "updates": {part.client: update_digest(part.update) for part in done.participants if part.update},
        "state": _contents(done.state.values()),
        "participants": {part.client: _told(part) for part in done.participants},
        "accuracy": done.accuracy,
        "metrics": _timeless(done.metrics),
    }


def _told(part: Participation) -> dict[str, Any]:
    """Return what is known of a client's part; that nobody was left out is not said."""
    return part.model_dump(mode="json", exclude={"update"} if part.excluded else {"update", "excluded"})


def _devices(folder: Path) -> list[str]:
    """Return what devices keep, after the last round: the models of rounds left out, which are only a cache."""
    kept = (path for path in folder.glob("devices/*/*.safetensors") if path.is_file())
    return sorted(update_digest(path) for path in kept)


def _by_name(files: dict[str, Path]) -> dict[str, str]:
    return {name: _digest(path.read_bytes()) for name, path in sorted(files.items())}


def _contents(files: Iterable[Path]) -> list[str]:
    """Return digests sorted, without names: what a file of state is called may change, what is in it may not."""
    return sorted(_digest(path.read_bytes()) for path in files)


def update_digest(path: Path) -> str:
    """Return the digest of a safetensors file with what its metadata says of time left out."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    if "metrics" in metadata:
        metadata["metrics"] = _timeless(json.loads(metadata["metrics"]))
    said = json.dumps([metadata, header], sort_keys=True).encode()
    return _digest(said + data[8 + length :])


def _timeless(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _timeless(value) for key, value in tree.items() if key not in _TIMES}
    return tree


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
