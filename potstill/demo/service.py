"""A `potstill up` of our own: another process, on a free port, in its own folder, with its log in a file."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from client_sdk import OperatorClient
from contract.programs import environment, python
from potstill.console import CliError
from potstill.home import Home
from potstill.supervisor import LAUNCH


def tail(log: Path, lines: int = 15) -> str:
    """Return the last lines of a log."""
    try:
        return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return "(no log)"


class LocalService:
    """A service as a context manager: started and ready inside, stopped after.

    Args:
        home: its folder.
        log: file for the output of API and worker.
        port: 0 takes a free one.
        env: further settings, POTSTILL_*.
    """

    def __init__(self, home: Path, log: Path, port: int = 0, env: dict[str, str] | None = None):
        self.home, self.log, self._port, self._env = Home(home), log, port, env or {}
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.token = ""

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the processes; `wait_ready` waits for them."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.home.make()
        self.home.url_file.unlink(missing_ok=True)
        up = python("-m", "potstill", "up", "--port", str(self._port), "--home", str(self.home.path))
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(LAUNCH), str(os.getpid()), *up],
                env=environment() | self._env | {"NO_COLOR": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )

    @property
    def pid(self) -> int | None:
        """Process id of the supervisor."""
        return self._process.pid if self._process else None

    def check(self) -> None:
        """Raise if the service has ended by itself.

        Raises:
            CliError: with the end of its log.
        """
        if self._process is None or self._process.poll() is not None:
            raise CliError(f"the service ended; the last lines of {self.log}:\n{tail(self.log)}")

    def wait_ready(self, seconds: float = 90.0) -> None:
        """Wait until API and database answer.

        Raises:
            CliError: it ended, or took too long.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.check()
            url = self.home.read(self.home.url_file)
            if url and self._answers(url):
                self.url, self.token = url, self.home.read(self.home.token_file) or ""
                return
            time.sleep(0.1)
        raise CliError(
            f"the service was not ready after {seconds:g} s; the last lines of {self.log}:\n{tail(self.log)}"
        )

    @staticmethod
    def _answers(url: str) -> bool:
        try:
            return httpx.get(f"{url}/healthz", timeout=5, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def operator(self) -> OperatorClient:
        """Return a client with the operator's token."""
        return OperatorClient(self.url, self.token)

    def wait(self) -> None:
        """Wait until it ends (for --keep)."""
        if self._process:
            self._process.wait()

    def stop(self, seconds: float = 30.0) -> None:
        """Stop it gracefully; kill it when that takes too long."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its children notice and end
            self._process.wait()
        self._process = None
