"""`python -m tools.inspection`: what it costs a round's job that its inputs are compared with what they should be.

What every round's job does with some clients' files (where they lie, their mean, its digest), as it is, with an
inspection beside it that knows their names alone (SHA-256), and with one that knows their checksums (XXH3), in turn, so
that all meet the same machine; each turn gives a ratio.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from contract.tensors import write_file
from potstill.console import print_table
from service.infra.blob_checks import Inspection
from service.infra.sums import sums_of
from worker.parts.blocks import Source
from worker.parts.distances import measure_files
from worker.parts.fuse import average_files

MIB = 1 << 20


@dataclass(frozen=True)
class Files:
    """Clients' files.

    Attributes:
        paths: digest -> path.
        checksums: digest -> checksum.
    """

    paths: dict[str, Path]
    checksums: dict[str, str]


def _files(folder: Path, count: int, megabytes: int) -> Files:
    """Write clients' files."""
    found = Files({}, {})
    for number in range(count):
        values = np.random.default_rng(number).normal(size=(megabytes * MIB // 4 // 1024, 1024)).astype(np.float32)
        path = folder / f"client-{number}.safetensors"
        write_file(path, {"weight": values})
        sums = sums_of(path)
        found.paths[sums.digest], found.checksums[sums.digest] = path, sums.checksum
    return found


def _sides(files: Files) -> dict[str, Callable[[], Inspection]]:
    """Return what is measured: the first is what the others are compared with."""
    return {
        "unchecked": lambda: Inspection({}),
        "SHA-256": lambda: Inspection(files.paths),
        "checksum": lambda: Inspection(files.paths, checksums=files.checksums),
    }


def _seconds(files: Files, output: Path, side: Callable[[], Inspection]) -> tuple[float, float]:
    """Measure the files' distances and average them; return seconds on the clock and of the processors."""
    sources = [Source(path.name, path, 1.0) for path in files.paths.values()]
    wall, cpu = time.perf_counter(), time.process_time()
    with side() as inspection:
        measure_files(sources, sources[0].path)
        average_files(sources, output)
        sums_of(output)  # as every result is, before it is published
        inspection.check()
    return time.perf_counter() - wall, time.process_time() - cpu


def run(clients: int, megabytes: int, turns: int) -> None:
    """Measure and print all sides and their ratios."""
    with tempfile.TemporaryDirectory(prefix="potstill-bench-") as temporary:
        files = _files(Path(temporary), clients, megabytes)
        output = Path(temporary) / "mean.safetensors"
        sides = _sides(files)
        for side in sides.values():
            _seconds(files, output, side)  # the files are in memory now
        measured = [[_seconds(files, output, side) for side in sides.values()] for _ in range(turns)]
    rows = []
    for number, name in enumerate(sides):
        row = [name]
        for part in (0, 1):
            ratios = [turn[number][part] / turn[0][part] for turn in measured]
            row.append(f"{statistics.median(turn[number][part] for turn in measured):.2f}")
            row.append(f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
        rows.append(row)
    print(f"distances and mean of {clients} files of {megabytes} MiB, {turns} turns")
    print_table(["inputs", "seconds on the clock", "ratio by turns", "of processors", "ratio by turns"], rows)


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(prog="inspection", description=__doc__)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--megabytes", type=int, default=45, help="of each client's file")
    parser.add_argument("--turns", type=int, default=9)
    given = parser.parse_args()
    run(given.clients, given.megabytes, given.turns)


if __name__ == "__main__":
    main()
