"""A sweep's course: what is done already is read, the rest is run in the order of the cells."""

from collections.abc import Callable, Iterator
from pathlib import Path

from potstill.simulate import experiment as experiments
from potstill.simulate.crew import Crew
from potstill.simulate.experiment import Run
from potstill.simulate.jobs import OnProgress
from potstill.simulate.loaded import Loaded
from potstill.simulate.settings import Experiment, RecipeEntry
from potstill.simulate.sweeps import records
from potstill.simulate.sweeps.grid import Cell, Point, Sweep
from potstill.simulate.sweeps.records import Record

RUNS = "runs"
"""Folder of the simulations, those of each point as an experiment without a grid has them."""


class Course:
    """A sweep in its folder.

    Attributes:
        sweep: what is run.
        cells: all of them, in their order.
        records: those that are done, by name.

    Args:
        sweep: what to run.
        out: its folder.
        resume: what is there may be a sweep with other values, seeds or recipes, to which cells are added.
        given: the data set, where it is no name and no file.

    Raises:
        SimulationError: a point cannot be run, the folder holds something else, or a cell was made otherwise.
    """

    def __init__(self, sweep: Sweep, out: Path, resume: bool, given: Loaded | None = None):
        self.sweep, self._out, self._given = sweep, out, given
        self._sets: dict[tuple[object, ...], tuple[Loaded, str]] = {}
        self.cells = sweep.cells
        for point in sweep.points:
            experiments.check(point.experiment, self._data(point.experiment)[0])
        digests = [self._data(cell.point.experiment)[1] for cell in self.cells]
        self.records = records.read(self.cells, digests, out)
        experiments.claim(sweep.told, out, resume)

    @property
    def done(self) -> list[Record]:
        """The records of the cells that are done, in the cells' order."""
        return [self.records[cell.name] for cell in self.cells if cell.name in self.records]

    def run(
        self,
        crew: Crew,
        on_run: Callable[[Cell], None] | None = None,
        on_round: Callable[[Cell, Run], None] | None = None,
        on_progress: OnProgress | None = None,
    ) -> Iterator[tuple[Cell, Record]]:
        """Run the cells that are not done by a crew, and yield each when its record is on the disk.

        Raises:
            SimulationError, JobFailure, PotstillError: what cannot be run; what is done stays.
        """
        for point in self.sweep.points:
            mine = {(cell.entry.title, cell.seed): cell for cell in self.cells if cell.point is point}
            yield from self._run_point(crew, point, mine, on_run, on_round, on_progress)

    def _run_point(
        self,
        crew: Crew,
        point: Point,
        mine: dict[tuple[str, int], Cell],
        on_run: Callable[[Cell], None] | None,
        on_round: Callable[[Cell, Run], None] | None,
        on_progress: OnProgress | None,
    ) -> Iterator[tuple[Cell, Record]]:
        def wanted(entry: RecipeEntry, seed: int) -> bool:
            cell = mine.get((entry.title, seed))
            return cell is not None and cell.name not in self.records

        def begin(entry: RecipeEntry, seed: int) -> None:
            crew.runs = len(self.cells) - len(self.records) - 1
            if on_run is not None:
                on_run(mine[entry.title, seed])

        def told(run: Run) -> None:
            if on_round is not None:
                on_round(mine[run.entry.title, run.seed], run)

        loaded, digest = self._data(point.experiment)
        for run in experiments.run(
            point.experiment,
            loaded,
            self._out / RUNS / point.name,
            wanted=wanted,
            crew=crew,
            on_run=begin,
            on_round=told,
            on_progress=on_progress,
        ):
            cell = mine[run.entry.title, run.seed]
            record = records.record_of(cell, run, digest)
            records.write(record, records.path_of(cell, self._out))
            self.records[cell.name] = record
            yield cell, record

    def _data(self, experiment: Experiment) -> tuple[Loaded, str]:
        """Return a point's data set and its digest, each set read once."""
        key = (experiment.data, experiment.data_dir, experiment.task, experiment.server_data)
        if key not in self._sets:
            loaded = self._given or experiments.read(experiment)
            self._sets[key] = loaded, records.digest_of_data(loaded)
        return self._sets[key]
