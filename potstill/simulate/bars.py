"""Progress bars of simulations."""

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from potstill.figures import main_figure
from potstill.simulate.history import RoundRecord


class Bars:
    """Three bars on stderr: runs, rounds of this run, steps of what goes on.

    Args:
        what: runs are called.
        total: of them there are.
        rounds: of the first run.
        quiet: nothing is shown.
    """

    def __init__(self, what: str, total: int, rounds: int, quiet: bool = False):
        self.progress = Progress(
            TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=Console(file=sys.stderr, quiet=quiet), transient=True, disable=quiet,
        )  # fmt: skip
        self._runs = self.progress.add_task(what, total=total)
        self._rounds = self.progress.add_task("rounds", total=rounds)
        self._steps = self.progress.add_task("", total=1)
        self._what = ""

    def begin(self, what: str, rounds: int) -> None:
        """Start the bar of a run's rounds."""
        self._what = what
        self.progress.update(self._rounds, completed=0, total=rounds, description=what)

    def round(self, record: RoundRecord) -> None:
        """Note a round."""
        self.progress.update(
            self._rounds, completed=record.index, description=f"{self._what}: {main_figure(record.metrics)}"
        )

    def step(self, what: str, step: int, of: int) -> None:
        """Note a step of a device or a job."""
        self.progress.update(self._steps, description=what, completed=step, total=max(of, 1))

    def end(self, runs: int = 1) -> None:
        """Note the end of a run, or of several."""
        self.progress.advance(self._runs, runs)
