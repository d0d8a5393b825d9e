"""A job's lease while it is done: kept from a thread of its own, which finds out when the job should stop."""

import contextlib
import contextvars
import logging
import threading
import time
from types import TracebackType
from typing import Any

from contract import traces
from worker.ledger import Claimed, Ledger, LostLease
from worker.specs import Progress, Resumed

log = logging.getLogger("worker.lease")
STALL_SECONDS = 3600.0
"""A job that takes no step for so long is ended and tried again."""
PULSE_SECONDS = 5.0
OUT_OF_TIME = "out_of_time"
"""Code of a job that took longer than its federation's plan allows."""
SPOILT = "spoilt"


class Interrupted(Exception):
    """The job was stopped from outside: cancelled, lost, or this worker ends."""


class Lease:
    """Keeps a job's lease from a thread of its own, and finds out when the job should stop."""

    def __init__(self, ledger: Ledger, job: Claimed, stop: threading.Event, kill: Any):
        self._ledger, self._job, self._stop, self._kill = ledger, job, stop, kill
        self._done = threading.Event()
        self._progress: dict[str, Any] | None = None
        self._resumed: Resumed | None = None
        self._taken = self._began = self._moved = time.monotonic()
        self._phase = contextlib.ExitStack()
        self.verdict: str | None = None
        knows = contextvars.copy_context()  # whose work it is, for the log: a thread does not inherit that
        self._thread = threading.Thread(target=knows.run, args=(self._run,), name="lease", daemon=True)

    def report(self, progress: Progress) -> None:
        """Note how far the job is; called by the job often.

        Raises:
            Interrupted: the job should stop; jobs without a child find out here.
        """
        self.check()
        moment, seen = time.monotonic(), self._progress
        if seen is None or seen["phase"] != progress.phase:
            self._began = moment
            self.rest()
            what, _, of = progress.phase.partition(" ")  # such as "distil main"
            self._phase.enter_context(traces.span(what, {"potstill.of": of or None, "potstill.steps": progress.of}))
        if progress.resumed:
            self._resumed = Resumed(phase=progress.phase, step=progress.step)
        self._progress = progress.model_dump(exclude={"resumed"}) | {"phase_seconds": round(moment - self._began, 3)}
        self._moved = moment

    def rest(self) -> None:
        """End the span of the phase that the job is in: it ends with the next one's first word, or here."""
        self._phase.close()

    def spoil(self) -> None:
        """End the job: a file that it reads is damaged, so that its result would be thrown away. From any thread."""
        self._end(SPOILT)

    def check(self) -> None:
        """Let the job go on.

        Raises:
            Interrupted: it should stop.
        """
        if self.verdict is not None:
            raise Interrupted(self.verdict)

    def __enter__(self) -> "Lease":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._phase.__exit__(kind, error, trace)
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        seconds = self._ledger.settings.lease_seconds
        renewed, told = time.monotonic(), None
        while not self._done.wait(min(1.0, seconds / 3)):
            if self._stop.is_set():
                self.verdict = "stopping"  # whoever said so sees to the child
                return
            if time.monotonic() - self._moved > STALL_SECONDS:
                self._end("stalled")
                return
            if self._job.seconds is not None and time.monotonic() - self._taken > self._job.seconds:
                self._end(OUT_OF_TIME)
                return
            try:
                if self._ledger.is_cancelled(self._job):
                    self._end("cancelled")
                    return
                if self._progress is not told or time.monotonic() - renewed > min(PULSE_SECONDS, seconds / 3):
                    told = self._progress
                    self._ledger.renew(self._job, told, self._resumed)
                    renewed = time.monotonic()
            except LostLease:
                self._end("lost")
                return
            except Exception:
                log.exception("cannot renew the lease of %s", self._job.id)
                if time.monotonic() - renewed > seconds:
                    self._end("lost")
                    return

    def _end(self, verdict: str) -> None:
        self.verdict = verdict
        self._kill()
