"""The worker's jobs in this process: as its child process runs them, each once, its result kept on the disk."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from contract.tensors import synced_later
from potstill.simulate.history import digest_of
from worker.pipeline import run
from worker.specs import JobFailure, JobResult, JobSpec, Progress

OnProgress = Callable[[str, int, int], None]
"""(phase, step, of)"""


@contextmanager
def deterministic() -> Iterator[None]:
    """Make torch repeat itself bit for bit, as the worker's child process does; settings are restored."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.get_deterministic_debug_mode()
    benchmark = torch.backends.cudnn.benchmark
    torch.set_deterministic_debug_mode("error")  # as use_deterministic_algorithms, which imports torch's compiler
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)
        torch.backends.cudnn.benchmark = benchmark


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Run with so many of torch's threads, or with what there are; the caller's random numbers go on afterwards."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Done:
    """A job's result, and what was noted with it, such as `state`: digests of the state's files, by name."""

    result: JobResult
    note: dict[str, Any]


class Jobs:
    """Runs jobs below a folder; one that is done already is read instead.

    Args:
        root: the simulation's folder; paths are noted relative to it, so that it can be moved.
        device: torch device.
        report: told where a job is.
        seconds: the plan's `rounds.job_seconds`, after which a job fails.
    """

    def __init__(self, root: Path, device: str, report: OnProgress, seconds: float | None = None):
        self._root, self._device, self._report, self._seconds = root.absolute(), device, report, seconds

    def allow(self, seconds: float | None) -> None:
        """Let jobs that begin from now on take so long."""
        self._seconds = seconds

    def done(self, name: str) -> Done | None:
        """Return a job's result if it is done."""
        try:
            tree = json.loads((self._root / name / "result.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        result = tree["result"]
        for field in ("models", "state"):
            if result[field] is not None:
                result[field] = {key: str(self._root / path) for key, path in result[field].items()}
        return Done(JobResult.model_validate(result), tree["note"])

    def run(self, name: str, spec: Callable[[Path], JobSpec], note: dict[str, Any] | None = None) -> Done:
        """Do the job that `spec` describes for an output folder, unless it is done; `note` is kept with its result.

        Raises:
            JobFailure: as the service would report it; out_of_time at the first step after the plan's limit.
        """
        known = self.done(name)
        if known is not None:
            return known
        folder = self._root / name / "job"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        started = time.monotonic()
        with deterministic(), synced_later():  # a kill leaves files as they are; a power cut may cost the run
            result = run(spec(folder), partial(self._tell, started), device=self._device)
        noted = {**(note or {}), "job_seconds": self._check_time(started)}
        return self.keep(name, result, noted)

    def keep(self, name: str, result: JobResult, note: dict[str, Any]) -> Done:
        """Note a result as done."""
        state = {key: digest_of(path) for key, path in (result.state or {}).items()}
        sizes = {key: path.stat().st_size for key, path in result.models.items()}
        noted = {**note, "state": state, "sizes": sizes}
        self._write(name, result, noted)
        return Done(result, noted)

    def _check_time(self, started: float) -> float:
        """Return how long a job has taken so far; refuse more than the plan allows."""
        taken = time.monotonic() - started
        if self._seconds is not None and taken > self._seconds:
            detail = f"the job was not done within rounds.job_seconds, {self._seconds:g} s: take fewer steps or smaller"
            raise JobFailure("out_of_time", f"{detail} networks, a faster device, or a larger job_seconds")
        return taken

    def _tell(self, started: float, progress: Progress) -> None:
        self._check_time(started)
        self._report(progress.phase, progress.step, progress.of)

    def _write(self, name: str, result: JobResult, note: dict[str, Any]) -> None:
        tree = result.model_dump(mode="json")
        for field in ("models", "state"):
            paths = getattr(result, field)
            if paths is not None:
                tree[field] = {key: os.path.relpath(path.absolute(), self._root) for key, path in paths.items()}
        target = self._root / name / "result.json"
        partial = target.with_suffix(".part")
        with partial.open("w") as file:
            json.dump({"result": tree, "note": note}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
