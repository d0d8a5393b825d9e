"""What it costs a round's job that its inputs are compared with what they should be.

Both sides do what every round's job does with clients' files (where they lie, their mean, its digest); ours with an
inspection beside it that knows their checksums (XXH3), or their names alone (SHA-256).
"""

from collections.abc import Iterator
from functools import partial

from experiments.bench.average import files
from experiments.bench.measuring import Bench, Figure, timed
from service.infra.blob_checks import Inspection
from service.infra.sums import sums_of
from worker.parts.distances import measure_files
from worker.parts.fuse import average_files


def measure(bench: Bench) -> Iterator[Figure]:
    """Two figures, of ten clients."""
    megabytes, output = bench.pick(45.0, 8.0), bench.folder / "mean"
    sources = files(bench.folder, 10, megabytes)
    sums = {source.path: sums_of(source.path) for source in sources}
    known = {each.digest: path for path, each in sums.items()}
    checksums = {each.digest: each.checksum for each in sums.values()}

    def job(inspection: Inspection) -> None:
        with inspection:
            measure_files(sources, sources[0].path)
            average_files(sources, output)
            sums_of(output)  # as every result is, before it is published
            inspection.check()

    sides = {"checksums": partial(Inspection, known, checksums=checksums), "digests": partial(Inspection, known)}
    for name, inspected in sides.items():
        title = f"a round's job of 10 files of {megabytes:g} MB, inspected by {name}"
        ours, other = timed(lambda made=inspected: job(made())), timed(lambda: job(Inspection({})))  # type: ignore[misc]
        yield Figure(title, "s", "not inspected", bench.turns(title, ours, other, bench.pick(5, 3)))
