"""Real digits: honest devices never stand out, one that sends differences or scales its weights does."""

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from contract.tensors import TensorFile, write_file
from potstill.simulate.config import SimulatedClient, SimulationConfig
from potstill.simulate.engine import Simulation
from potstill.simulate.history import RoundRecord
from worker.parts.blocks import Source
from worker.parts.distances import measure_files, outliers

from .small import body


def clients() -> list[SimulatedClient]:
    """Five devices with two classes each; the first have few samples, the last have all that there are."""
    digits = load_digits()
    inputs, labels = (digits.images[:, None] / 16).astype(np.float32), digits.target.astype(np.int64)
    found = []
    for number in range(5):
        mine = np.flatnonzero(labels // 2 == number)[: 60 * (number + 1)]
        found.append(SimulatedClient(f"ward-{number}", (inputs[mine], labels[mine])))
    return found


def lie(update: Path, base: Path, target: Path, scale: float | None) -> Source:
    """Write what a device would send that scales its weights, or for None sends their difference from the model."""
    with TensorFile(update) as sent, TensorFile(base) as model:
        arrays = {}
        for name in sent.names:
            value = sent.read(name)
            if value.dtype.kind == "f":
                value = value - model.read(name) if scale is None else value * np.float32(scale)
            arrays[name] = value
    write_file(target, arrays)
    return Source("liar", target, 1)


def test_honest_digits_are_not_flagged_and_differences_and_scaled_weights_are(tmp_path: Path) -> None:
    asked = body(
        task={"num_classes": 10, "input": {"shape": [1, 8, 8]}},
        prototypes=[{"architecture": "cnn-digits"}],
        local={"optimizer": {"kind": "adam", "lr": 1e-3}, "epochs": 3, "batch_size": 32},
        rounds={"total": 2, "clients_per_round": 5, "min_updates": 5},
    )
    found: list[dict[str, Any]] = []

    def look(record: RoundRecord) -> None:
        base = next(tmp_path.glob("sim/initialize/job/*main*"), None) or next(tmp_path.glob("sim/initialize/job/*"))
        sources = [Source(part.client, part.update, 1) for part in record.participants if part.update is not None]
        assert len(sources) == 5
        if record.index == 1:
            for scale in (None, 100.0, 0.01):
                liar = lie(sources[0].path, base, tmp_path / "liar", scale)
                judged = outliers(measure_files([liar, *sources[1:]], base))
                assert set(judged) == {"liar"}, (scale, judged)
        found.append(record.metrics)

    given = SimulationConfig(federation=asked, clients=clients(), server={}, folder=tmp_path / "sim", threads=1)
    Simulation(given).run(look)
    assert [set(metrics["distances"]) for metrics in found] == [{f"ward-{n}" for n in range(5)}] * 2
    assert all("outliers" not in metrics for metrics in found)
