"""The one place that reads the clock of this machine, and says how far a stored moment is to be believed.

A clock is put back or ahead while the service runs: by NTP after a boot without a battery, by an operator, by a machine
that sleeps. Within a process only monotonic time is waited by. What is stored is wall-clock time, for other processes
read it; so nothing stored is believed that the clock could not have written (`SLACK`), and this process notices its
own clock's steps by comparing it with monotonic time (`patient`).
"""

import logging
import os
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

log = logging.getLogger("service.clock")
SLACK = timedelta(seconds=10)
"""The clocks of the machines of one installation may be so far apart; a moment further ahead was written by another."""
PATIENCE = timedelta(seconds=60)
"""After a step ahead nothing counts as silent or late for so long that was alive before: what lives says so again."""
A_DAY = timedelta(days=1)
_SMALLEST = 2.0  # what is less is slewing, or a process that was held up between two lines
_HELD_UP = 0.25


def wall() -> float:
    """Return the seconds since 1970 by the machine's clock, which may be wrong, and go back."""
    return time.time()


def steady() -> float:
    """Return seconds that only grow; they stand still while the machine sleeps."""
    return time.monotonic()


@dataclass(frozen=True)
class Step:
    """The clock was moved by so many seconds, back if negative.

    Attributes:
        at: when, in monotonic seconds.
        seconds: by how much.
        own: seen by this process as it happened; else told by what is stored.
    """

    at: float
    seconds: float
    own: bool = True


class Steps:
    """The steps of the clock that this process knows of."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._apart: float | None = None
        self._found: list[Step] = []
        self._settled = 0.0
        self._backward = 0

    def look(self) -> float:
        """Return the time of the clock, and note if it has moved since the last look."""
        before = steady()
        moment = wall()
        after = steady()
        if after - before > _HELD_UP:
            return moment
        with self._lock:
            apart = moment - after
            moved = 0.0 if self._apart is None else apart - self._apart
            self._apart = apart
        if abs(moved) >= _SMALLEST:
            self._note(Step(after, moved))
        return moment

    def told(self, seconds: float) -> None:
        """Note that something stored lies so far ahead that the clock must have gone back since."""
        self._note(Step(steady(), -seconds, own=False))

    def _note(self, step: Step) -> None:
        with self._lock:
            self._found = [*self._found[-99:], step]
            self._backward += step.seconds < 0
        log.warning("the clock went %s by %.0f s", "ahead" if step.seconds > 0 else "back", abs(step.seconds))

    def within(self, span: timedelta) -> list[Step]:
        """Return the steps of the last while."""
        since = steady() - span.total_seconds()
        return [step for step in self._found if step.at >= since]

    def backward(self) -> int:
        """Return how often the clock went back while this process looked on."""
        self.look()
        return self._backward

    def unsettled(self) -> list[Step]:
        """Return the steps that this process saw and after which nobody has put right yet what is stored."""
        return [step for step in self._found if step.own and step.at > self._settled]

    def settle(self, steps: list[Step]) -> None:
        """Note that what is stored was put right after these steps."""
        self._settled = max([self._settled, *(step.at for step in steps)])


STEPS = Steps()
"""Of this process."""


def now() -> datetime:
    """Return the present moment, aware, in UTC."""
    return datetime.fromtimestamp(STEPS.look(), UTC)


def ahead(span: timedelta = PATIENCE) -> timedelta:
    """Return by how much the clock went ahead of the time that passed, within a while."""
    return timedelta(seconds=max(0.0, sum(step.seconds for step in STEPS.within(span) if step.own)))


def patient(moment: datetime, span: timedelta = PATIENCE) -> datetime:
    """Return the moment by which to judge what was stored before the clock went ahead: as if it had not, for a while.

    Leases, silence and deadlines are renewed or put right in that time. What is removed for its age alone, and cannot
    be had back, waits for a day.
    """
    return moment - ahead(span)


def is_impossible(stamp: datetime | None, moment: datetime, longest: timedelta = timedelta(0)) -> bool:
    """Whether a stored moment lies further ahead than it can: the clock went back since it was written."""
    return stamp is not None and stamp > moment + longest + SLACK


def is_due(stamp: datetime | None, span: timedelta, moment: datetime) -> bool:
    """Whether so much time has passed since something, or nobody can tell: never, or the clock went back."""
    return stamp is None or moment - stamp >= span or is_impossible(stamp, moment)


def is_recent(stamp: datetime, span: timedelta, moment: datetime) -> bool:
    """Whether less time has passed since something. What lies ahead says nothing."""
    return patient(moment) - stamp < span and not is_impossible(stamp, moment)


def recent(span: timedelta, moment: datetime) -> tuple[datetime, datetime]:
    """Return between which moments something was, if it was recent: the bounds of a query."""
    return patient(moment) - span, moment + SLACK


def went_back(span: timedelta = timedelta(minutes=10)) -> str:
    """Return what to say of a clock that went back lately, or nothing."""
    steps = [step for step in STEPS.within(span) if step.seconds < 0]
    if not steps:
        return ""
    far = -min(step.seconds for step in steps)
    return f"the clock went back by {far:.0f} s, {steady() - steps[-1].at:.0f} s ago"


def age(path: Path) -> float:
    """Return the seconds since a file was written, none of those by which the clock went ahead within a day.

    One that was written in the future counts from now on: nobody knows how old it is.

    Raises:
        FileNotFoundError: it is gone.
    """
    moment, written = STEPS.look(), path.stat().st_mtime
    if written > moment + SLACK.total_seconds():
        os.utime(path, (moment, moment))
        return 0.0
    return max(0.0, moment - ahead(A_DAY).total_seconds() - written)
