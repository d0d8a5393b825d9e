"""The worker's computing process, asked to do recorded jobs again; one for each kind of environment stays warm."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import IO, Any

from potstill.console import CliError

OnProgress = Callable[[str, int, int], None]
"""(phase, step, of)"""


class Computers:
    """Processes that do jobs with as many threads and on the kind of device that made the originals."""

    def __init__(self) -> None:
        self._warm: dict[tuple[str, str], _Computer] = {}

    def compute(
        self, spec: dict[str, Any], environment: dict[str, Any], part: str | None, report: OnProgress
    ) -> dict[str, Any]:
        """Do a job and return its result; where only a part was published, that part, and the job ends there.

        Raises:
            CliError: it fails.
        """
        device = "cuda" if str(environment.get("device", "")).startswith("cuda") else "cpu"
        key = device, str(environment.get("threads") or 0)
        computer = self._warm.get(key) or _Computer(*key)
        self._warm[key] = computer
        try:
            return computer.ask(spec, part, report)
        finally:
            if computer.is_spent:
                computer.close()
                del self._warm[key]

    def close(self) -> None:
        """End the processes."""
        while self._warm:
            self._warm.popitem()[1].close()

    def __enter__(self) -> "Computers":
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


class _Computer:
    def __init__(self, device: str, threads: str):
        wanted = {
            "OMP_WAIT_POLICY": "passive",
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
            "POTSTILL_DEVICE": device,
            "POTSTILL_TORCH_THREADS": threads,
            "POTSTILL_JOB_MEMORY_BYTES": "0",
        }
        self.is_spent = True  # unless a job has come to its end
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "worker.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=os.environ | wanted,
        )

    def ask(self, spec: dict[str, Any], part: str | None, report: OnProgress) -> dict[str, Any]:
        self.is_spent = True
        stdin, stdout = self._pipes
        with contextlib.suppress(BrokenPipeError):
            stdin.write(json.dumps({"job": spec}) + "\n")
            stdin.flush()
        for line in stdout:
            message = json.loads(line)
            if "progress" in message:
                told = message["progress"]
                report(told["phase"], told["step"], told["of"])
            elif "handover" in message:
                if part is not None:
                    made: dict[str, Any] = message["handover"]
                    return made | {"state": None}
            elif "error" in message:
                self.is_spent = False
                raise CliError(f"the job fails here: {message['error']['code']}: {message['error']['detail']}")
            else:
                self.is_spent = False
                found: dict[str, Any] = message["result"]
                if part is not None:
                    raise CliError(f"the job hands over no {part} here")
                return found
        self._log.seek(0)
        said = self._log.read().strip().splitlines()
        raise CliError(f"the computing process ended: {said[-1] if said else 'it said nothing'}")

    @property
    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (*self._pipes, self._log):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
