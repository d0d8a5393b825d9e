"""Child processes of one command: started together, prefixed in one log, restarted when they fall, stopped cleanly.

Every child leads its own process group, so a terminal's Ctrl-C reaches the supervisor alone and a stop reaches a
child's children too. Losing the supervisor ends the children (`potstill.launch`).
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import IO

from contract.private import UMASK
from contract.programs import environment

LAUNCH = Path(__file__).with_name("launch.py")
COLOURS = ("36", "35", "33", "32")  # cyan, magenta, yellow, green
BACKOFF_FIRST, BACKOFF_MOST = 0.5, 30.0  # seconds
STOPS = (signal.SIGINT, signal.SIGTERM)
ONE_SIGNAL = 0.3  # seconds: `timeout` and some terminals send to the process and to its group, which is one wish
PROBE_AFTER, PROBE_EVERY = 60.0, 15.0  # seconds: a program has time to start
HEALTHY_AFTER = 10.0  # seconds that a child must live for its back-off to start over


@dataclass
class ChildSpec:
    """One program to keep running."""

    name: str
    argv: Sequence[str]
    env: dict[str, str] = field(default_factory=dict)
    pass_fds: Sequence[int] = ()
    probe: Callable[[int], str | None] | None = None
    """Says of the program with this process id why it is of no use although it lives, or None."""


def as_object(name: str, text: str) -> str:
    """Return a child's line as a JSON object that names the program; what is none by itself is its message."""
    line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"}
    with suppress(ValueError):
        told = json.loads(text)
        if isinstance(told, dict):
            return json.dumps(told | {"program": name})
    return json.dumps(line | {"level": "info", "logger": name, "message": text, "program": name})


class Printer:
    """Lines of several children on one stream, each with its child's name in its colour, or each a JSON object."""

    def __init__(self, stream: IO[str], names: Sequence[str], *, objects: bool = False):
        self._stream, self._lock, self._objects = stream, threading.Lock(), objects
        self._width = max(map(len, names), default=0)
        coloured = stream.isatty() and "NO_COLOR" not in os.environ
        self._colour = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)} if coloured else {}

    def line(self, name: str, text: str) -> None:
        """Print one line; a reader that went away is no reason to stop."""
        prefix = f"{name:<{self._width}} |"
        if colour := self._colour.get(name):
            prefix = f"\x1b[{colour}m{prefix}\x1b[0m"
        line = as_object(name, text) if self._objects else f"{prefix} {text}"
        with self._lock:
            try:
                print(line, file=self._stream, flush=True)
            except (BrokenPipeError, ValueError):
                self._stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # for the rest of the process


class Child:
    """One running program and what is needed to start it again."""

    def __init__(self, spec: ChildSpec, printer: Printer):
        self.spec, self._printer = spec, printer
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._started = 0.0
        self._backoff = BACKOFF_FIRST
        self._start_at = 0.0
        self._probe_at = 0.0
        self._useless = 0  # times in a row

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the program in its own process group, with its output read by a thread."""
        told = environment() | {"PYTHONUNBUFFERED": "1", **self.spec.env}
        launcher = [sys.executable, "-I", "-S", str(LAUNCH), str(os.getpid())]
        self._process = subprocess.Popen(
            [*launcher, *self.spec.argv],
            env=told,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            pass_fds=tuple(self.spec.pass_fds),
            process_group=0,
            umask=UMASK,
        )
        self._started = time.monotonic()
        self._probe_at, self._useless = self._started + PROBE_AFTER, 0
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for text in stream:
                self._printer.line(self.spec.name, text.rstrip("\n"))

    def tend(self) -> None:
        """Start the program if it is due; take note if it ended by itself."""
        if self._process is None:
            if time.monotonic() >= self._start_at:
                self.start()
            return
        code = self._process.poll()
        if code is None:
            self._look()
            return
        self.kill()  # what it left of its own children must not run beside its successor
        if time.monotonic() - self._started >= HEALTHY_AFTER:
            self._backoff = BACKOFF_FIRST
        self._printer.line(self.spec.name, f"ended ({_how(code)}); starting again in {self._backoff:g} s")
        self._start_at = time.monotonic() + self._backoff
        self._backoff = min(2 * self._backoff, BACKOFF_MOST)
        self._process = None

    def _look(self) -> None:
        """End a program that lives and does nothing; twice in a row it must be said so."""
        if self.spec.probe is None or self._process is None or time.monotonic() < self._probe_at:
            return
        self._probe_at = time.monotonic() + PROBE_EVERY
        why = self.spec.probe(self._process.pid)
        self._useless = 0 if why is None else self._useless + 1
        if why is not None and self._useless >= 2:
            self._printer.line(self.spec.name, f"{why}: killing it")
            self.kill()

    def terminate(self) -> None:
        """Ask the program to finish what it is doing and end."""
        if self._process and self._process.poll() is None:
            self._process.terminate()

    def kill(self) -> None:
        """End the program and everything in its group at once."""
        if self._process:
            with suppress(ProcessLookupError, PermissionError):  # all gone; macOS says EPERM for a group of zombies
                os.killpg(self._process.pid, signal.SIGKILL)

    def ended(self) -> bool:
        """Return whether nothing of it runs any more."""
        return self._process is None or self._process.poll() is not None

    def close(self) -> None:
        """Wait for the end and for the last line of output."""
        if self._process:
            self._process.wait()
            self.kill()
        if self._reader:
            self._reader.join(timeout=2)


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


class Supervisor:
    """Keeps children running until SIGINT or SIGTERM; a second signal, or the deadline, kills.

    Args:
        specs: what to run.
        stream: where all output goes.
        deadline: seconds that a graceful stop may take. Killing is safe: work in progress is leased and taken up again.
        objects: each line of output is a JSON object.
    """

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        stream: IO[str] | None = None,
        deadline: float = 20.0,
        *,
        objects: bool = False,
    ):
        names = ["potstill", *(spec.name for spec in specs)]
        self.printer = Printer(stream or sys.stdout, names, objects=objects)
        self.children = [Child(spec, self.printer) for spec in specs]
        self._deadline = deadline
        self._signals = 0
        self._heard = -ONE_SIGNAL
        self._wake = threading.Event()

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._heard >= ONE_SIGNAL:
            self._signals += 1
        self._heard = now
        self._wake.set()

    def stop(self) -> None:
        """Ask for a graceful stop, as the first Ctrl-C does; asked again, kill."""
        self._on_signal(signal.SIGTERM, None)

    def run(self, started: Callable[[], None] | None = None) -> int:
        """Run until told to stop; return the exit code: 0 after a graceful stop, 1 if something had to be killed.

        Must be called in the main thread: signals arrive there, and children live as long as the thread that made them.
        """
        before = {signum: signal.signal(signum, self._on_signal) for signum in STOPS}
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)  # who became this program may have held them back until now
        try:
            for child in self.children:
                child.start()
            if started:
                started()
            while not self._signals:
                for child in self.children:
                    child.tend()
                self._wake.wait(0.1)
            return self._stop_all()
        finally:
            for child in self.children:
                child.kill()
            for child in self.children:
                child.close()
            for signum, handler in before.items():
                signal.signal(signum, handler)

    def _stop_all(self) -> int:
        self.printer.line("potstill", "stopping; press Ctrl-C again to kill")
        for child in self.children:
            child.terminate()
        end = time.monotonic() + self._deadline
        while not all(child.ended() for child in self.children):
            late = time.monotonic() > end
            if late or self._signals > 1:
                why = f"not finished after {self._deadline:g} s" if late else "asked twice"
                self.printer.line("potstill", f"{why}: killing; running work is taken up again at the next start")
                return 1
            self._wake.wait(0.05)
            self._wake.clear()
        self.printer.line("potstill", "stopped")
        return 0
