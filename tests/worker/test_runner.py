"""The runner: what becomes of a job when it is done, fails, is cancelled, lost, or its worker stops."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from contract.recipes.recipe import Recipe
from contract.wire.federations import Task
from worker import runner as module
from worker.ledger import Claimed, DomainError, LostLease
from worker.runner import Child, ChildLost, Runner
from worker.specs import JobFailure, JobResult, Progress, RoundSpec

JOB = Claimed("job_1", "round", 1, 1, "fed_1", "rnd_1")


class FakeLedger:
    """Writes down what it is told."""

    def __init__(self, folder: Path):
        self.settings = SimpleNamespace(lease_seconds=0.15, device="cpu", torch_threads=1)
        self.folder = folder
        self.said: list[Any] = []
        self.renewed = threading.Event()
        self.wants_cancel = False
        self.lost = False
        self.jobs = [JOB]

    def claim(self) -> Claimed | None:
        return self.jobs.pop() if self.jobs else None

    def load(self, job: Claimed) -> RoundSpec:
        return RoundSpec(
            seed=0,
            round_index=1,
            rounds_total=1,
            task=Task.model_validate({"num_classes": 2, "input": {"shape": [2]}}),
            recipe=Recipe(name="mine"),
            prototypes=[],
            updates=[],
            output_dir=self.folder,
        )

    @contextlib.contextmanager
    def inputs(self, spec: RoundSpec, report: Any) -> Iterator[None]:
        yield

    def tidy(self) -> None:
        self.said.append("tidied")

    def postpone(self, job: Claimed, detail: str) -> None:
        self.said.append(("postponed", detail))

    def is_cancelled(self, job: Claimed) -> bool:
        if self.lost:
            raise LostLease(job.id)
        return self.wants_cancel

    def renew(self, job: Claimed, progress: Any) -> None:
        self.said.append(("progress", progress))
        self.renewed.set()

    def publish(self, job: Claimed, result: JobResult) -> None:
        self.said.append("published")

    def fail(self, job: Claimed, code: str, detail: str, final: bool) -> None:
        self.said.append(("failed", code, final))

    def cancel(self, job: Claimed) -> None:
        self.said.append("cancelled")

    def give_back(self, job: Claimed) -> None:
        self.said.append("given back")

    def drop_outputs(self, spec: Any) -> None:
        self.said.append("dropped")

    def heartbeat(self) -> None: ...

    @property
    def verdicts(self) -> list[Any]:
        return [each for each in self.said if each != "dropped" and each[0] != "progress"]


@pytest.fixture
def ledger(tmp_path: Path) -> FakeLedger:
    return FakeLedger(tmp_path)


Work = Callable[[Callable[[Progress], None]], JobResult]


def do(ledger: FakeLedger, monkeypatch: pytest.MonkeyPatch, work: Work, runner: Runner | None = None) -> Runner:
    """Let a runner do the one job, with `work` in place of the pipeline."""
    monkeypatch.setattr(module, "run", lambda spec, report: work(report))
    runner = runner or Runner(ledger)  # type: ignore[arg-type]
    runner.drain()
    return runner


def until_stopped(report: Callable[[Progress], None]) -> JobResult:
    """Work until the report raises."""
    for step in range(2000):
        report(Progress(phase="average", step=step, of=2000))
        time.sleep(0.005)
    raise AssertionError("nobody stopped the job")


def test_a_job_that_is_done_is_published_and_its_folder_removed(ledger: FakeLedger, monkeypatch: Any) -> None:
    do(ledger, monkeypatch, lambda report: JobResult(models={}))
    assert ledger.said == ["published", "dropped"]


@pytest.mark.parametrize(
    ("error", "code", "final"),
    [
        (JobFailure("non_finite", "teacher 'a'"), "non_finite", True),
        (JobFailure("out_of_memory", "16 GB"), "out_of_memory", False),
        (ChildLost("was killed by signal 9"), "worker_lost", False),
        (RuntimeError("a fault of ours"), "internal", False),
    ],
)
def test_a_fault_is_recorded_with_its_code(
    ledger: FakeLedger, monkeypatch: Any, error: Exception, code: str, final: bool
) -> None:
    def broken(report: Any) -> JobResult:
        raise error

    do(ledger, monkeypatch, broken)
    assert ledger.verdicts == [("failed", code, final)]


def test_a_job_waits_for_a_store_that_is_away(ledger: FakeLedger, monkeypatch: Any) -> None:
    def broken(report: Any) -> JobResult:
        raise DomainError("unavailable", "the blob store does not answer")

    do(ledger, monkeypatch, broken)
    assert ledger.verdicts == [("postponed", "the blob store does not answer")]


def test_a_cancelled_job_ends_and_is_not_published(ledger: FakeLedger, monkeypatch: Any) -> None:
    ledger.wants_cancel = True
    do(ledger, monkeypatch, until_stopped)
    assert ledger.verdicts == ["cancelled"]


def test_a_job_whose_lease_is_lost_says_nothing_more(ledger: FakeLedger, monkeypatch: Any) -> None:
    ledger.lost = True
    do(ledger, monkeypatch, until_stopped)
    assert ledger.verdicts == []


def test_a_worker_that_stops_gives_its_job_back(ledger: FakeLedger, monkeypatch: Any) -> None:
    """The child is killed at once, before the keeper has looked: that is no fault of the job."""
    runner = Runner(ledger)  # type: ignore[arg-type]

    def stopped(report: Any) -> JobResult:
        runner.stop()
        raise ChildLost("the computing process was killed by signal 9")

    do(ledger, monkeypatch, stopped, runner)
    assert ledger.verdicts == ["given back"]


def test_progress_is_told_when_it_changes(ledger: FakeLedger, monkeypatch: Any) -> None:
    def slow(report: Callable[[Progress], None]) -> JobResult:
        report(Progress(phase="label", step=1, of=2))
        assert ledger.renewed.wait(5)
        return JobResult(models={})

    do(ledger, monkeypatch, slow)
    told = [each[1] for each in ledger.said if each[0] == "progress"]
    assert (told[0]["phase"], told[0]["step"], told[0]["of"]) == ("label", 1, 2)
    assert told[0]["phase_began"] > 0


def test_a_child_that_dies_is_named_and_another_one_starts(ledger: FakeLedger) -> None:
    child = Child("cpu", 1)
    spec = ledger.load(JOB)
    with pytest.raises(JobFailure) as refused:
        child.ask(spec, lambda progress: None)
    assert refused.value.code == "no_participants"
    first = child.pid
    child.kill()
    with pytest.raises(JobFailure):
        child.ask(spec, lambda progress: None)
    assert child.pid != first
    child.close()
    assert child.pid is None


def test_a_child_killed_under_a_job_is_lost(ledger: FakeLedger, monkeypatch: Any) -> None:
    child = Child("cpu", 1)
    with pytest.raises(JobFailure):
        child.ask(ledger.load(JOB), lambda progress: None)

    class Killing:
        def model_dump(self, mode: str) -> dict[str, str]:
            child.kill()
            return {}

    with pytest.raises(ChildLost, match="signal 9"):
        child.ask(Killing(), lambda progress: None)  # type: ignore[arg-type]
