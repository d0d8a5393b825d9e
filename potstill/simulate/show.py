"""`potstill simulate` as people see it: progress bars, a line a run, the table, and the files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from client_sdk.errors import PotstillError
from potstill import drawing
from potstill.console import CliError, out, print_table
from potstill.figures import measured
from potstill.simulate import costs, report
from potstill.simulate import experiment as experiments
from potstill.simulate.bars import Bars
from potstill.simulate.crew import Crew
from potstill.simulate.experiment import Dealt, Run
from potstill.simulate.settings import Experiment, RecipeEntry, task_of
from potstill.simulate.sweeps import records, tables
from potstill.simulate.sweeps.grid import RECIPE, SEED
from potstill.simulate.sweeps.records import Record
from potstill.simulate.sweeps.tracked import NOWHERE, Tracks
from worker.specs import JobFailure

_DATA = {
    "data", "clients", "partition", "alpha", "balanced", "smallest", "major", "minor", "samples", "server_samples",
    "server_data", "server_transform", "server_skew", "client_transform", "validation_samples", "test_samples",
    "speeds", "liars", "lie",
}  # fmt: skip
"""What of an experiment no plan tells: whose data are where, how fast devices are, who lies."""


def title_of(experiment: Experiment) -> str:
    """Return what an experiment is about, in one line."""
    how = {"iid": "IID", "user": "one user each", "step": f"step, {experiment.major} major classes"}.get(
        experiment.partition, f"Dirichlet({experiment.alpha:g}){', balanced' if experiment.balanced else ''}"
    )
    asked = experiment.clients_per_round
    parts = [Path(experiment.data).name, f"{experiment.clients} clients", how]
    parts += [] if asked is None else [f"{asked:g} a round"]
    return ", ".join([*parts, *_unusual(experiment)])


def _unusual(experiment: Experiment) -> list[str]:
    """Return what of an experiment is not as it is by default: whose the server's samples are, and who lies."""
    found = [] if not experiment.liars else [f"{experiment.liars} liars ({experiment.lie})"]
    found += [] if experiment.client_transform is None else [f"images of clients: {experiment.client_transform}"]
    found += [] if experiment.server_skew is None else [f"server: {experiment.server_skew:g} of half the classes"]
    other = experiment.server_data or ("its own" if experiment.server_transform else None)
    if other is None:
        return found
    done = {"invert": " inverted", "rotate": " rotated", None: ""}[experiment.server_transform]
    return [*found, f"server: {Path(other).name}{done}"]


def run(
    experiment: Experiment,
    folder: Path,
    resume: bool,
    targets: Sequence[float] | None = None,
    processes: int | None = None,
    tracks: Tracks = NOWHERE,
) -> int:
    """Run an experiment and write its report, with the costs to reach each target; return the exit code.

    By default the targets are those of `costs.targets_of`; `processes` as `Crew` takes them.

    Raises:
        CliError: it cannot be run; what is done stays for --resume.
    """
    try:
        loaded = experiments.load(experiment)
        targets = costs.targets_of(task_of(loaded, experiment.metric).main_metric, targets)
    except PotstillError as error:
        raise CliError(str(error)) from error
    experiments.claim(experiment.model_dump(mode="json"), folder, resume)
    crew = Crew(processes, experiment.device)
    crew.runs = len(experiment.recipes) * len(experiment.all_seeds)
    bars = Bars("runs", crew.runs, experiment.rounds)
    title, runs = title_of(experiment), list[Run]()
    settings = experiment.model_dump(mode="json", include=_DATA)

    def begin(entry: RecipeEntry, seed: int) -> None:
        crew.runs -= 1
        bars.begin(f"{entry.title}, seed {seed}", experiment.rounds)

    def dealt(seed: int, data: Dealt) -> None:
        report.plot_holdings(data, folder / f"seed-{seed}" / "clients.png", f"{title}, seed {seed}")

    try:
        with bars.progress, crew:
            for done in experiments.run(
                experiment,
                loaded,
                folder,
                crew=crew,
                on_dealt=dealt,
                on_run=begin,
                on_round=_noting(experiment, bars, tracks),
                on_progress=bars.step,
            ):
                runs.append(done)
                bars.end()
                _write(runs, folder, title, experiment, tracks)
                home = folder / f"seed-{done.seed}" / experiments.folder_name(done.entry.title)
                costs.write(done.costs(targets), home / "report.json", settings)
                for line in _lines(done, first=done.seed == experiment.all_seeds[0]):
                    bars.progress.console.print(line, highlight=False)
    except (JobFailure, PotstillError) as error:
        raise CliError(f"{error}; what is done is in {folder}") from error
    except KeyboardInterrupt:
        raise CliError(f"stopped; go on with: potstill simulate --out {folder} --resume") from None
    _finish(runs, folder, title, targets)
    return 0


def _noting(experiment: Experiment, bars: Bars, tracks: Tracks) -> Callable[[Run], None]:
    """Return what is told of every round."""

    def told(run: Run) -> None:
        bars.round(run.history.rounds[-1])
        tracks.note(_name(run), run, _varied(run), lambda: records.settings_of(experiment, run.entry))

    return told


def _write(runs: Sequence[Run], folder: Path, title: str, experiment: Experiment, tracks: Tracks) -> None:
    """Write the report of what is done, and the last run to where else runs go."""
    found, last = [_record(each) for each in runs], runs[-1]
    report.write(runs, folder, title)
    tables.write_data(found, folder)
    tracks.add(_name(last), found[-1], records.settings_of(experiment, last.entry))


def _name(run: Run) -> str:
    return f"{run.entry.title},seed={run.seed}"


def _varied(run: Run) -> dict[str, Any]:
    return {RECIPE: run.entry.title, SEED: run.seed}


def _record(done: Run) -> Record:
    return records.told_of(done, _varied(done))


def _lines(done: Run, first: bool) -> list[str]:
    """Return what is said of a run; its notes once, with the first seed."""
    notes = done.history.notes if first else []
    return [*(f"{done.entry.title}: note: {note}" for note in notes), _line(done)]


def _line(done: Run) -> str:
    curve, metric = done.history.measurements, done.metric.name
    last = "" if not curve else measured(curve[-1], metric)
    shown = f"last {last}, mean {measured(sum(curve) / len(curve), metric)}" if curve else "no test set"
    shown = shown if metric == "accuracy" else f"{metric} {shown}"
    line = f"{done.entry.title}, seed {done.seed}: {len(done.history.rounds)} rounds, {shown}"
    ending = done.history.ending
    return line if ending is None or ending.detail is None else f"{line}; {ending.state}: {ending.detail}"


def _finish(runs: list[Run], folder: Path, title: str, targets: Sequence[float]) -> None:
    if report.by_recipe(runs):
        heading, rows = report.table(runs)
        print_table(heading, rows, title=f"{title}: test {drawing.unit(runs[0].metric)}")
    if report.has_clock(runs) and report.by_recipe(runs):
        heading, rows = report.time_table(runs, targets)
        print_table(heading, rows, title="seconds of the virtual clock; means of all seeds")
        (folder / "times.md").write_text(drawing.as_markdown(heading, rows), encoding="utf-8")
    heading, rows = report.cost_table(runs, targets)
    if rows:
        print_table(heading, rows, title="bytes of devices' files, down and up, and operations; means of all seeds")
        (folder / "costs.md").write_text(drawing.as_markdown(heading, rows), encoding="utf-8")
    out().print(f"{report.picture(runs[0].metric)}, table.md, metrics.csv and the models are in {folder}")
