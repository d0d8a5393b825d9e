"""What is said to a computing process and what it answers: one JSON object a line, spelt and read here by both ends.

stdin: an order, ``{"job": <JobSpec>, "checkpoints": <CheckpointSpec>, "about": <ids for the log>}``. stdout:
``{"progress": <Progress>}`` any number of times and ``{"handover": <Handover>}`` at most once, then
``{"result": <JobResult>}`` or ``{"error": <Failed>}``. End of stdin ends the process, and so does SIGTERM, after the
job at hand has put its state on the disk. Logging goes to stderr.
"""

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

from pydantic import BaseModel

from contract import log_lines
from contract.bodies import stored
from contract.programs import LEAN, environment, python
from worker.specs import CheckpointSpec, Handover, JobResult, JobSpec, Progress

STOPPED = "stopped"
"""Code of a job whose process was asked to end; its state is kept."""


class Order(BaseModel):
    """A job, and where its states are kept for another attempt."""

    job: JobSpec
    checkpoints: CheckpointSpec | None = None
    about: dict[str, str] = {}
    """Ids by which the process's log says whose work it does."""


class Failed(BaseModel):
    """A job that cannot be done; `code` is stable."""

    code: str
    detail: str


Answer = Progress | Handover | JobResult | Failed
_ANSWERS: dict[str, type[Answer]] = {"progress": Progress, "handover": Handover, "result": JobResult, "error": Failed}
_NAMES = {made: name for name, made in _ANSWERS.items()}


def order(job: Mapping[str, Any], checkpoints: CheckpointSpec | None = None) -> str:
    """Return the line that orders a job; one that cannot be read is answered as a failure."""
    kept = None if checkpoints is None else checkpoints.model_dump(mode="json")
    return json.dumps({"job": dict(job), "checkpoints": kept, "about": log_lines.known()}) + "\n"


def ordered(line: str) -> Order:
    """Return what a line orders.

    Raises:
        ValueError: it is no order.
    """
    return stored(Order, line)


def answer(said: Answer) -> str:
    """Return the line that says it."""
    return json.dumps({_NAMES[type(said)]: said.model_dump(mode="json")}) + "\n"


def answers(lines: Iterable[str]) -> Iterator[Answer]:
    """Yield what a process says, until its output ends; a line in the middle of which it died says nothing."""
    for line in lines:
        if not line.endswith("\n"):
            return
        ((name, said),) = json.loads(line).items()
        yield _ANSWERS[name].model_validate(said)


@dataclass(frozen=True)
class Terms:
    """What a computing process is given for its life.

    Attributes:
        device: a torch device, or `auto`.
        torch_threads: 0 for torch's own choice.
        memory_bytes: address space, 0 for any.
        log_format: what its log looks like.
    """

    device: str = "cpu"
    torch_threads: int = 0
    memory_bytes: int = 0
    log_format: str = "text"

    def environment(self) -> dict[str, str]:
        """Return the environment that says so, and in which threads sleep rather than spin.

        With spinning threads two torch processes on two busy cores slow each other down more than tenfold.
        """
        unless_set = {"OMP_WAIT_POLICY": "passive", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        terms = {
            "POTSTILL_DEVICE": self.device,
            "POTSTILL_TORCH_THREADS": str(self.torch_threads),
            "POTSTILL_JOB_MEMORY_BYTES": str(self.memory_bytes),
            "POTSTILL_LOG_FORMAT": self.log_format,
        }
        given = {name: value for name, value in os.environ.items() if LEAN.get(name) != value}
        return unless_set | given | terms

    @classmethod
    def told(cls) -> "Terms":
        """Return what this process was given."""
        return cls(
            os.environ.get("POTSTILL_DEVICE", cls.device),
            int(os.environ.get("POTSTILL_TORCH_THREADS", cls.torch_threads)),
            int(os.environ.get("POTSTILL_JOB_MEMORY_BYTES", cls.memory_bytes)),
            os.environ.get("POTSTILL_LOG_FORMAT", cls.log_format),
        )


def start(terms: Terms, stderr: int | IO[str]) -> subprocess.Popen[str]:
    """Start a computing process, with pipes for orders and answers."""
    return subprocess.Popen(
        python("-m", "worker.child"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        encoding="utf-8",
        errors="replace",
        env=environment(terms.environment()),
    )
