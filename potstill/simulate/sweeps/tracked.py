"""Simulations as runs of TensorBoard and MLflow: one of each recipe and seed, or of each cell of a grid."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from potstill.console import CliError
from potstill.simulate import report
from potstill.simulate.experiment import Run
from potstill.simulate.sweeps.records import Record
from potstill.tracking.runs import Point, Sink, TrackedRun, flat

Figures = Mapping[str, float | int | None]


class Tracks:
    """Where runs of a simulation go besides its folder.

    Args:
        sinks: the places; none is fine.
        folder: of the simulation, by which its runs are found again.
    """

    def __init__(self, sinks: Sequence[Sink] = (), folder: Path = Path()):
        self._sinks, self._folder = sinks, folder.resolve()
        self._begun: dict[str, TrackedRun] = {}
        self._complained = False

    def note(self, name: str, run: Run, varied: Mapping[str, Any], settings: Callable[[], Mapping[str, Any]]) -> None:
        """Write the newest round of a run that goes on; with the first that is run now, all that were before.

        A place that cannot be reached is waited for until the run is done: `add` writes what is missing there.
        """
        if not self._sinks:
            return
        fresh = [run.history.rounds[-1]]
        if name not in self._begun:
            self._begun[name] = self._run(name, settings(), varied)
            fresh = [run.history.initial, *run.history.rounds]
        points = _points(report.figures(run, each) for each in fresh)
        for sink in self._sinks:
            try:
                sink.write(self._begun[name], points)
            except CliError as error:
                if not self._complained:
                    print(f"{error}; it is tried again when the run is done", file=sys.stderr)
                self._complained = True

    def add(self, name: str, record: Record, settings: Mapping[str, Any]) -> None:
        """Write a run that is done: its settings, and its figures by round as `metrics.csv` has them."""
        run = self._begun.pop(name, None) or self._run(name, settings, record.varied)
        failed = (record.ending or "").startswith("failed")
        for sink in self._sinks:
            sink.write(run, _points(record.rounds))
            sink.end(run, failed=failed)

    def _run(self, name: str, settings: Mapping[str, Any], varied: Mapping[str, Any]) -> TrackedRun:
        told = dict(flat(settings)) | dict(flat(varied))
        return TrackedRun(f"{self._folder}:{name}", self._folder.name, name, told)


def _points(rounds: Iterable[Figures]) -> list[Point]:
    return [
        Point(
            int(each["round"] or 0),
            {key: float(value) for key, value in each.items() if value is not None and key != "round"},
        )
        for each in rounds
    ]


NOWHERE = Tracks()
