"""`potstill simulate` of a grid as people see it: a bar over the cells, a line a cell, the table, and the files."""

from pathlib import Path

from client_sdk.errors import PotstillError
from potstill.console import CliError, out, print_table
from potstill.figures import measured
from potstill.simulate.bars import Bars
from potstill.simulate.crew import Crew
from potstill.simulate.experiment import Run
from potstill.simulate.sweeps import pictures, tables
from potstill.simulate.sweeps.course import Course
from potstill.simulate.sweeps.grid import SEED, Cell, Sweep, called
from potstill.simulate.sweeps.records import CELLS, Record, settings_of
from potstill.simulate.sweeps.tracked import NOWHERE, Tracks
from worker.specs import JobFailure


def run(sweep: Sweep, folder: Path, resume: bool, processes: int | None = None, tracks: Tracks = NOWHERE) -> int:
    """Run what is not done yet of a sweep and write its report after every cell; return the exit code.

    `processes` as `Crew` takes them.

    Raises:
        CliError: it cannot be run; what is done stays, and the same command goes on.
    """
    try:
        course = Course(sweep, folder, resume)
        done = len(course.records)
        print(f"{title_of(sweep)}: {len(course.cells)} cells, {done} done, into {folder}", flush=True)
        go(course, folder, processes, tracks=tracks)
    except (JobFailure, PotstillError) as error:
        raise CliError(f"{error}; what is done is in {folder}, and the same command goes on") from error
    except KeyboardInterrupt:
        raise CliError("stopped; the same command goes on") from None
    print_table(*tables.table(tables.rows_of(course.done)), title=title_of(sweep))
    out().print(f"table.md, table.csv, table.json, metrics.csv, plots and a file a cell ({CELLS}/) are in {folder}")
    return 0


def go(course: Course, folder: Path, processes: int | None, quiet: bool = False, tracks: Tracks = NOWHERE) -> None:
    """Run a course to its end, with bars and a line a cell on stderr unless `quiet`, and write its report.

    Raises:
        SimulationError, JobFailure, PotstillError: what cannot be run; what is done stays.
    """
    told = title_of(course.sweep)
    bars = Bars("cells", len(course.cells), 1, quiet)
    bars.end(len(course.records))
    for name, record in course.records.items():
        tracks.add(name, record, record.settings)

    def on_round(cell: Cell, run: Run) -> None:
        bars.round(run.history.rounds[-1])
        tracks.note(cell.name, run, cell.varied, lambda: settings_of(cell.point.experiment, cell.entry))

    with bars.progress, Crew(processes, course.sweep.base.device) as crew:
        for cell, record in course.run(
            crew,
            on_run=lambda each: bars.begin(_named(each), each.point.experiment.rounds),
            on_round=on_round,
            on_progress=bars.step,
        ):
            bars.end()
            tables.write(course.done, folder, told)
            tracks.add(cell.name, record, record.settings)
            bars.progress.console.print(_line(cell, record), highlight=False)
    tables.write(course.done, folder, told)
    pictures.draw(tables.rows_of(course.done), folder, told)


def title_of(sweep: Sweep) -> str:
    """Return what a sweep is about, in one line."""
    shown = {
        name: ", ".join(text for value in values for _, text in called({name: value}))
        for name, values in sweep.vary.items()
    }
    varied = "; ".join(f"{name} {values}" for name, values in shown.items())
    data = "" if "data" in shown else f"{Path(sweep.base.data).name}, "
    return f"{data}{varied}"


def _named(cell: Cell) -> str:
    shown = dict(called(cell.varied))
    seed = shown.pop(SEED)
    return (
        f"{', '.join(f'{name} {value}' if name != 'recipe' else value for name, value in shown.items())}, seed {seed}"
    )


def _line(cell: Cell, record: Record) -> str:
    curve, metric = record.curve, record.metric[0]
    last = f"{metric} {measured(curve[-1], metric)}" if curve else "no test set"
    return f"{_named(cell)}: {last}" + ("" if record.ending is None else f"; {record.ending}")
