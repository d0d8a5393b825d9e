"""The worker's computing process, asked to do recorded jobs again; one for each kind of environment stays warm."""

import contextlib
import tempfile
from collections.abc import Callable
from typing import IO, Any

from potstill.console import CliError
from worker.protocol import Failed, Terms, answers, order, start
from worker.specs import Handover, Progress

OnProgress = Callable[[str, int, int], None]
"""(phase, step, of)"""


class Computers:
    """Processes that do jobs with as many threads and on the kind of device that made the originals."""

    def __init__(self) -> None:
        self._warm: dict[Terms, _Computer] = {}

    def compute(
        self, spec: dict[str, Any], environment: dict[str, Any], part: str | None, report: OnProgress
    ) -> dict[str, Any]:
        """Do a job and return its result; where only a part was published, that part, and the job ends there.

        Raises:
            CliError: it fails.
        """
        device = "cuda" if str(environment.get("device", "")).startswith("cuda") else "cpu"
        terms = Terms(device, int(environment.get("threads") or 0))
        computer = self._warm.get(terms) or _Computer(terms)
        self._warm[terms] = computer
        try:
            return computer.ask(spec, part, report)
        finally:
            if computer.is_spent:
                computer.close()
                del self._warm[terms]

    def close(self) -> None:
        """End the processes."""
        while self._warm:
            self._warm.popitem()[1].close()

    def __enter__(self) -> "Computers":
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


class _Computer:
    def __init__(self, terms: Terms):
        self.is_spent = True  # unless a job has come to its end
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  # closed with the process
        self._process = start(terms, self._log)

    def ask(self, spec: dict[str, Any], part: str | None, report: OnProgress) -> dict[str, Any]:
        self.is_spent = True
        stdin, stdout = self._pipes
        with contextlib.suppress(BrokenPipeError):
            stdin.write(order(spec))
            stdin.flush()
        for said in answers(stdout):
            if isinstance(said, Progress):
                report(said.phase, said.step, said.of)
            elif isinstance(said, Handover):
                if part is not None:
                    return said.model_dump(mode="json") | {"state": None}
            elif isinstance(said, Failed):
                self.is_spent = False
                raise CliError(f"the job fails here: {said.code}: {said.detail}")
            else:
                self.is_spent = False
                if part is not None:
                    raise CliError(f"the job hands over no {part} here")
                return said.model_dump(mode="json")
        self._log.seek(0)
        logged = self._log.read().strip().splitlines()
        raise CliError(f"the computing process ended: {logged[-1] if logged else 'it said nothing'}")

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
