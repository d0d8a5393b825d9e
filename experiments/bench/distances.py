"""What measuring every update's distance costs, beside averaging them: both read every file once."""

from collections.abc import Iterator
from functools import partial

from experiments.bench.average import files
from experiments.bench.measuring import Bench, Figure, timed
from worker.parts.distances import measure_files
from worker.parts.fuse import average_files


def measure(bench: Bench) -> Iterator[Figure]:
    """One figure a size of model."""
    for megabytes in bench.pick((0.4, 4.0, 40.0), (0.4, 4.0)):
        base, *sources = files(bench.folder / f"{megabytes:g}", 11, megabytes)
        output = bench.folder / "average"
        ours, other = timed(partial(measure_files, sources, base.path)), timed(partial(average_files, sources, output))
        other()  # the files are in memory now
        title = f"distances of 10 files of {megabytes:g} MB"
        pairs = bench.turns(title, ours, other, bench.pick(5, 3))
        yield Figure(title, "s", "averaging them", pairs)
