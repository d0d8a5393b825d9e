"""Which phase a job is in, and how long each took."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from worker.specs import Progress


class Phases:
    """Reports progress and keeps the time of every phase.

    Attributes:
        seconds: phase -> wall-clock seconds.
    """

    def __init__(self, report: Callable[[Progress], None]):
        self._report = report
        self._name = ""
        self._of = self._step = 0
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str, of: int = 0) -> Iterator[None]:
        """Report the start of a phase of `of` steps; its time is kept when it ends."""
        self._name, self._of, self._step = name, of, 0
        self._report(Progress(phase=name, of=of))
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - begun, 3)

    def step(self, step: int, resumed: bool = False) -> None:
        """Report that `step` steps of the phase are done, or were found done."""
        self._step = step
        self._report(Progress(phase=self._name, step=step, of=self._of, resumed=resumed))

    def alive(self) -> None:
        """Report the same again, within a long step: whoever wants the job to end can say so."""
        self._report(Progress(phase=self._name, step=self._step, of=self._of))
