"""Simulations as runs of TensorBoard and MLflow: one of each recipe and seed, or of each cell of a grid."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from potstill.simulate.sweeps.records import Record
from potstill.tracking.runs import Point, Sink, TrackedRun, flat


class Tracks:
    """Where runs of a simulation go besides its folder.

    Args:
        sinks: the places; none is fine.
        folder: of the simulation, by which its runs are found again.
    """

    def __init__(self, sinks: Sequence[Sink] = (), folder: Path = Path()):
        self._sinks, self._folder = sinks, folder.resolve()

    def add(self, name: str, record: Record, settings: Mapping[str, Any]) -> None:
        """Write a run that is done: its settings, and its figures by round as `metrics.csv` has them."""
        told = dict(flat(settings)) | dict(flat(record.varied))
        run = TrackedRun(f"{self._folder}:{name}", self._folder.name, name, told)
        points = [
            Point(
                int(each["round"] or 0),
                {key: float(value) for key, value in each.items() if value is not None and key != "round"},
            )
            for each in record.rounds
        ]
        failed = (record.ending or "").startswith("failed")
        for sink in self._sinks:
            sink.write(run, points)
            sink.end(run, failed=failed)


NOWHERE = Tracks()
