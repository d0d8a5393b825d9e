"""`python -m experiments.bench.distances`: what measuring every update's distance costs, as a part of averaging them.

Both read every file once. The ratio is what tells: seconds are this machine's.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from contract.tensors import write_file
from potstill.console import print_table
from worker.parts.blocks import Source
from worker.parts.distances import measure_files
from worker.parts.fuse import average_files


def _files(folder: Path, clients: int, parameters: int) -> list[Source]:
    rng = np.random.default_rng(0)
    found = []
    for number in range(clients + 1):
        path = folder / f"{number}.safetensors"
        write_file(path, {"w": rng.standard_normal(parameters, np.float32)})
        found.append(Source(f"c{number:03}", path, 1 + number))
    return found


def _seconds(work: Callable[[], object], times: int) -> float:
    """Return the shortest of several runs: the others were held up."""
    found = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        found.append(time.perf_counter() - begun)
    return min(found)


def ratio(clients: int, parameters: int, times: int = 3) -> tuple[float, float]:
    """Return the seconds of averaging so many updates, and of measuring them."""
    with tempfile.TemporaryDirectory() as name:
        base, *sources = _files(Path(name), clients, parameters)
        averaged = _seconds(lambda: average_files(sources, Path(name) / "average"), times)
        return averaged, _seconds(lambda: measure_files(sources, base.path), times)


def main() -> None:
    """Print the ratio for models of several sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--millions", type=float, nargs="+", default=[0.1, 1, 10], help="parameters of a model")
    given = parser.parse_args()
    rows = []
    for millions in given.millions:
        averaged, measured = ratio(given.clients, int(millions * 1e6))
        rows.append([millions, given.clients, f"{averaged:.3f}", f"{measured:.3f}", f"{measured / averaged:.2f}"])
    print_table(["million parameters", "clients", "averaging, s", "distances, s", "ratio"], rows)


if __name__ == "__main__":
    main()
