"""`python -m tools.inspection`: what it costs a round's job that its inputs are compared with their digests.

What every round's job does with some clients' files (where they lie, their mean, its digest), once as it is and once
with the inspection beside it, in turn, so that both meet the same machine; each pair gives a ratio.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from contract.tensors import write_file
from potstill.console import print_table
from service.infra.blob_checks import Inspection
from service.infra.blobs import digest_of
from worker.parts.blocks import Source
from worker.parts.distances import measure_files
from worker.parts.fuse import average_files

MIB = 1 << 20


def _files(folder: Path, count: int, megabytes: int) -> dict[str, Path]:
    """Write clients' files; return digest -> path."""
    found = {}
    for number in range(count):
        values = np.random.default_rng(number).normal(size=(megabytes * MIB // 4 // 1024, 1024)).astype(np.float32)
        path = folder / f"client-{number}.safetensors"
        write_file(path, {"weight": values})
        found[digest_of(path)[0]] = path
    return found


def _seconds(files: dict[str, Path], output: Path, checked: bool) -> tuple[float, float]:
    """Measure the files' distances and average them; return seconds on the clock and of the processors."""
    sources = [Source(path.name, path, 1.0) for path in files.values()]
    wall, cpu = time.perf_counter(), time.process_time()
    with Inspection(files if checked else {}) as inspection:
        measure_files(sources, sources[0].path)
        average_files(sources, output)
        digest_of(output)  # as every result is, before it is published
        inspection.check()
    return time.perf_counter() - wall, time.process_time() - cpu


def run(clients: int, megabytes: int, pairs: int) -> None:
    """Measure and print both sides and their ratio."""
    with tempfile.TemporaryDirectory(prefix="potstill-bench-") as temporary:
        files = _files(Path(temporary), clients, megabytes)
        output = Path(temporary) / "mean.safetensors"
        _seconds(files, output, True)  # the files are in memory now
        measured = [(_seconds(files, output, False), _seconds(files, output, True)) for _ in range(pairs)]
    rows = []
    for name, part in (("on the clock", 0), ("of processors", 1)):
        plain, checked = [pair[0][part] for pair in measured], [pair[1][part] for pair in measured]
        ratios = [after / before for before, after in zip(plain, checked, strict=True)]
        rows.append(
            [
                f"seconds {name}",
                f"{statistics.median(plain):.2f}",
                f"{statistics.median(checked):.2f}",
                f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})",
            ]
        )
    print(f"distances and mean of {clients} files of {megabytes} MiB, {pairs} pairs")
    print_table(["figure", "unchecked", "checked", "ratio by pairs"], rows)


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(prog="inspection", description=__doc__)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--megabytes", type=int, default=45, help="of each client's file")
    parser.add_argument("--pairs", type=int, default=9)
    given = parser.parse_args()
    run(given.clients, given.megabytes, given.pairs)


if __name__ == "__main__":
    main()
