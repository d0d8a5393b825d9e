"""Progress of several federations: a live table on a terminal, a line per event elsewhere."""

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from client_sdk import OperatorClient
from contract.wire.federations import TERMINAL_STATES, Federation
from contract.wire.rounds import JobProgress
from potstill.console import CliError, out, percent

EVERY = 0.5  # seconds between looks


@dataclass
class Watched:
    """A federation under its label, as last seen."""

    label: str
    id: str
    seen: Federation | None = None
    work: JobProgress | None = None
    started: float | None = None
    seconds: float | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self.seen is not None and self.seen.state in TERMINAL_STATES

    def phase(self) -> str:
        """What is being done for it now."""
        if self.seen is None:
            return ""
        if self.work:
            of = f" {self.work.step}/{self.work.of}" if self.work.of else ""
            eta = f", {self.work.eta:.0f} s left" if self.work.eta and self.work.eta >= 1 else ""
            return f"worker: {self.work.phase}{of}{eta}"
        if self.seen.state == "running":
            return "devices train" if self.seen.clients else "waits for devices"
        return self.seen.state.replace("_", " ")


def look(client: OperatorClient, item: Watched, now: float) -> None:
    """Ask the service for the federation's state and its running job."""
    item.seen = client.federation(item.id)
    jobs = client.jobs(federation=item.id, state="running", limit=1).items
    item.work = jobs[0].progress if jobs else None
    if item.started is None and (item.seen.round or item.seen.clients):
        item.started = now
    if item.over and item.seconds is None:
        item.seconds = now - (item.started or now)


def table(items: list[Watched], elapsed: float) -> Group:
    """Return the live picture."""
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("method", "round", "", "accuracy", "now"):
        grid.add_column(name)
    for item in items:
        seen = item.seen
        done, total = (len(seen.accuracies), seen.rounds_total) if seen else (0, 1)
        style = "green" if item.over else ("" if seen and seen.clients else "dim")
        grid.add_row(
            Text(item.label, style=style),
            f"{done}/{total}",
            ProgressBar(total=total, completed=done, width=20),
            percent(seen.accuracies[-1][1] if seen and seen.accuracies else None),
            Text(item.phase(), style="dim"),
        )
    return Group(grid, Text(f"{elapsed:.0f} s", style="dim"))


class Lines:
    """Prints each new accuracy and each change of state once."""

    def __init__(self, say: Callable[[str], None] = print):
        self._say, self._said = say, {}  # type: ignore[var-annotated]

    def update(self, items: list[Watched], elapsed: float) -> None:
        """Print what is new."""
        for item in items:
            if item.seen is None:
                continue
            rounds, state = self._said.get(item.id, (0, ""))
            if item.seen.state != state and not item.over:
                self._say(f"{elapsed:6.1f} s  {item.label}: {item.seen.state.replace('_', ' ')}")
            for index, accuracy in item.seen.accuracies[rounds:]:
                of = item.seen.rounds_total
                self._say(f"{elapsed:6.1f} s  {item.label}: round {index}/{of}, accuracy {percent(accuracy)}")
            if item.over and item.seen.state != state:
                self._say(f"{elapsed:6.1f} s  {item.label}: {item.seen.state}")
            self._said[item.id] = (len(item.seen.accuracies), item.seen.state)


def watch(
    client: OperatorClient, items: list[Watched], check: Callable[[], None], limit: float = 3600.0
) -> list[Federation]:
    """Show progress until every federation is over.

    Args:
        check: called at every look; raises when a process that is needed has gone.
        limit: seconds after which to give up.

    Returns:
        The federations in the order of `items`.

    Raises:
        CliError: one failed or was cancelled, or `limit` has passed.
    """
    start = time.monotonic()
    live = Live(console=out(), refresh_per_second=4) if sys.stdout.isatty() else None
    lines = Lines()
    scope: AbstractContextManager[object] = live or nullcontext()
    with scope:
        while True:
            elapsed = time.monotonic() - start
            for item in items:
                if not item.over:
                    look(client, item, elapsed)
            if live:
                live.update(table(items, elapsed))
            else:
                lines.update(items, elapsed)
            done = [_finished(item) for item in items if item.over]
            if len(done) == len(items):
                return done
            check()
            if elapsed > limit:
                raise CliError(f"not finished after {limit:.0f} s; {', '.join(i.label for i in items if not i.over)}")
            time.sleep(EVERY)


def _finished(item: Watched) -> Federation:
    assert item.seen is not None  # `watch` has looked
    if item.seen.state != "finished":
        why = f": {item.seen.error}, {item.seen.detail}" if item.seen.error else ""
        raise CliError(
            f"the federation {item.label!r} ended as {item.seen.state}{why}; the logs in the report say more"
        )
    return item.seen
