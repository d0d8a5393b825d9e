"""`potstill simulate` beside Flower's simulation: the same FedAvg, the same clients, the same first weights, in turns.

python -m experiments.bench.simulations --flower FLOWER/bin/python

Flower has an environment of its own: `pip install 'flwr[simulation]' torch numpy`. Both evaluate after each round and
use all cores; whole runs include starting, rounds are counted from the second on. Ray makes way for all other
processes (niceness 15); here it does not, so that a machine that others use is the same for both.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from contract.tensors import TensorFile
from experiments.bench import machine, usage
from experiments.bench.measuring import Bench, Figure, Pairs, Taken
from experiments.bench.table import shown
from potstill.simulate import experiment as experiments
from potstill.simulate.crew import cores
from potstill.simulate.settings import Experiment

_PEERS = Path(__file__).with_name("peers")
_FLOWER = "import flower_app; flower_app.main()"
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "FLWR_TELEMETRY_ENABLED": "0",
}
_LEAST = 0.6
"""Accuracy that both sides must reach: what learns nothing is not the same work."""


@dataclass(frozen=True)
class Work:
    """What both sides do."""

    clients: int
    asked: int
    rounds: int
    epochs: int

    def told(self) -> list[str]:
        """Return the work as `potstill simulate` takes it."""
        return [
            "--data", "digits", "--partition", "iid", "--server-samples", "0", "--clients", str(self.clients),
            "--clients-per-round", str(self.asked), "--rounds", str(self.rounds), "--seeds", "1", "--recipe", "fedavg",
            "--local", f"epochs={self.epochs}",
        ]  # fmt: skip

    def experiment(self) -> Experiment:
        """Return it as an experiment, of one round."""
        return Experiment.model_validate({
            "recipes": [{"name": "fedavg"}], "data": "digits", "partition": "iid", "server_samples": 0,
            "clients": self.clients, "clients_per_round": self.asked, "rounds": 1, "seeds": 1,
            "local": {"epochs": self.epochs},
        })  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """A run: seconds in all and of a round, processor seconds in all, the accuracy at its end."""

    whole: float
    round: float
    processor: float
    accuracy: float


def prepare(work: Work, folder: Path) -> None:
    """Write the clients' data, the test set and the first weights, as ours has them, for the other side."""
    experiment = work.experiment()
    loaded = experiments.load(experiment)
    dealt = experiments.deal(experiment, loaded, 0)
    arrays: dict[str, Any] = {"test_x": dealt.test.inputs, "test_y": dealt.test.labels}
    for number, samples in enumerate(dealt.clients.values()):
        arrays |= {f"x{number}": samples.inputs, f"y{number}": samples.labels}
    np.savez(folder / "data.npz", allow_pickle=False, **arrays)
    (run,) = experiments.run(experiment, loaded, folder / "first")
    with TensorFile(run.history.initial.models["main"]) as file:
        first: dict[str, Any] = {name.replace(".", "_"): file.read(name) for name in file.names}
    np.savez(folder / "first.npz", allow_pickle=False, **first)


def watched(command: Sequence[str | int | Path], log: Path, **variables: str) -> tuple[float, float]:
    """Run a command to its end; return its seconds, and the processor seconds of all its processes.

    Raises:
        RuntimeError: it failed.
    """
    env = os.environ | _ENVIRONMENT | variables
    begun, most, over = time.monotonic(), 0.0, threading.Event()
    with log.open("wb") as out, subprocess.Popen(list(map(str, command)), stdout=out, stderr=out, env=env) as process:

        def watch() -> None:
            nonlocal most
            while not over.wait(0.1):
                with suppress(psutil.Error):
                    most = max(most, usage.processor_seconds(process.pid))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        process.wait()
        seconds = time.monotonic() - begun
        over.set()
        watcher.join()
    if process.returncode:
        raise RuntimeError(f"{command[0]} failed: {_tail(log)}")
    return seconds, most


def _tail(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-2000:]


def ours(work: Work, folder: Path) -> Seen:
    """Run `potstill simulate`; a round is over when its result is on the disk."""
    command: list[str | int | Path] = [
        sys.executable,
        "-m",
        "potstill",
        "simulate",
        *work.told(),
        "--processes",
        cores(),
        "--out",
        folder / "out",
    ]
    seconds, processor = watched(command, folder / "ours.log")
    results = sorted((folder / "out" / "seed-0" / "fedavg" / "rounds").glob("*/result.json"))
    (row,) = json.loads((folder / "out" / "table.json").read_text(encoding="utf-8"))
    return Seen(
        seconds, _between([path.stat().st_mtime for path in results]), processor, row["figures"]["last"]["mean"]
    )


def flower(python: Path, work: Work, folder: Path, data: Path) -> Seen:
    """Run Flower's simulation with the same data; a round is over when its model is evaluated."""
    told = (work.clients, work.asked, work.rounds, work.epochs, cores())
    seconds, processor = watched([python, "-c", _FLOWER, data, *told], folder / "flower.log", PYTHONPATH=str(_PEERS))
    seen = json.loads((data / "rounds.json").read_text(encoding="utf-8"))
    return Seen(seconds, _between([when for when, _ in seen[1:]]), processor, seen[-1][1])


def _between(moments: Sequence[float]) -> float:
    return statistics.median(later - earlier for earlier, later in zip(moments, moments[1:], strict=False))


def measure(bench: Bench, python: Path, work: Work, times: int) -> list[Figure]:
    """Return the figures; both sides take turns.

    Raises:
        RuntimeError: one of them learnt nothing.
    """
    prepare(work, bench.folder)
    found: dict[str, list[Seen]] = {"ours": [], "flower": []}

    def go(side: str) -> Taken:
        with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
            seen = ours(work, Path(folder)) if side == "ours" else flower(python, work, Path(folder), bench.folder)
        if seen.accuracy < _LEAST:
            raise RuntimeError(f"{side} reached {seen.accuracy:.2f} after {work.rounds} rounds: not the same work")
        found[side].append(seen)
        return Taken(seen.whole, seen.processor)

    what = f"{work.rounds} rounds, {work.asked} of {work.clients} clients, {work.epochs} epochs"
    whole = bench.turns(what, lambda: go("ours"), lambda: go("flower"), times)
    rounds = Pairs.of(*([each.round for each in found[side]] for side in ("ours", "flower")))
    right = ", ".join(f"{side} {100 * statistics.mean(s.accuracy for s in seen):.1f} %" for side, seen in found.items())
    print(f"test accuracy at the end: {right}")
    return [
        Figure(f"{what}: the whole run", "s", "Flower's simulation", whole, limit=1.0),
        Figure(f"{what}: a round", "s", "Flower's simulation", rounds, limit=1.0),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table; return 1 where ours is slower."""
    parser = argparse.ArgumentParser(prog="simulations", description=__doc__)
    parser.add_argument("--flower", type=Path, required=True, help="Python of an environment that has flwr[simulation]")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--times", type=int, default=3, help="runs of each side")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="potstill-bench-") as folder:
        work = Work(100, 10, given.rounds, given.epochs)
        figures = measure(Bench(False, Path(folder)), given.flower.absolute(), work, given.times)
    print(machine.sentence(machine.description()))
    return int(bool(shown({"parts": {"simulations": {"figures": [each.document() for each in figures]}}})))


if __name__ == "__main__":
    sys.exit(main())
