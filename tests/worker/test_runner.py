"""The runner: what becomes of a job when it is done, fails, is cancelled, lost, or its worker stops."""

import contextlib
import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from contract.log_lines import JsonLine
from contract.recipes.presets import build
from contract.recipes.recipe import Recipe
from contract.tensors import TensorFile, pulse, write_file
from contract.wire.federations import Task
from worker import runner as module
from worker.lease import Interrupted, Lease
from worker.ledger import BlobFaults, Claimed, DomainError, Inspection, LostLease
from worker.limits import LastWords
from worker.runner import Child, ChildLost, Runner
from worker.specs import CheckpointSpec, InitializeSpec, JobFailure, JobResult, Progress, RoundSpec

JOB = Claimed("job_1", "round", 1, 1, "fed_1", "rnd_1")


class FakeLedger:
    """Writes down what it is told."""

    def __init__(self, folder: Path):
        self.settings = SimpleNamespace(lease_seconds=0.15, device="cpu", torch_threads=1)
        self.settings.job_memory_bytes, self.settings.log_format = 0, "text"
        self.folder = folder
        self.said: list[Any] = []
        self.details: list[str] = []
        self.renewed = threading.Event()
        self.wants_cancel = False
        self.lost = self.owed = False
        self.jobs = [JOB]
        self.files: dict[str, Path] = {}

    def claim(self) -> Claimed | None:
        return self.jobs.pop() if self.jobs else None

    @property
    def owes(self) -> bool:
        return self.owed

    def let_go(self, after_seconds: float = 0.0) -> None:
        if self.owed:
            self.said.append(("let go", after_seconds))
        self.owed = self.owed and after_seconds > 0

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
    def inputs(self, spec: RoundSpec, report: Any, on_fault: Any) -> Iterator[Any]:
        with Inspection(self.files, on_fault) as inspection:
            yield inspection

    def spoilt(self, job: Claimed, found: BlobFaults) -> None:
        self.said.append(("spoilt", *(fault.state for fault in found.faults)))

    def tidy(self) -> None:
        self.said.append("tidied")

    def postpone(self, job: Claimed, detail: str) -> None:
        self.said.append(("postponed", detail))

    def is_cancelled(self, job: Claimed) -> bool:
        if self.lost:
            raise LostLease(job.id)
        return self.wants_cancel

    def checkpointing(self, job: Claimed) -> Any:
        return contextlib.nullcontext()

    def renew(self, job: Claimed, progress: Any, resumed: Any) -> None:
        self.said.append(("progress", progress, resumed))
        self.renewed.set()

    def publish(self, job: Claimed, result: JobResult) -> None:
        self.said.append("published")

    def fail(self, job: Claimed, code: str, detail: str, final: bool) -> None:
        self.said.append(("failed", code, final))
        self.details.append(detail)

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


def test_lines_of_a_job_say_which_it_is(ledger: FakeLedger, monkeypatch: Any, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> JobResult:
        raise JobFailure("non_finite", "update of 'a'")

    caplog.handler.setFormatter(JsonLine())
    caplog.set_level("INFO")
    do(ledger, monkeypatch, fail)
    lines = [json.loads(line) for line in caplog.text.splitlines()]
    ids = {"job_id": "job_1", "federation_id": "fed_1", "round_id": "rnd_1"}
    assert lines and all(line.items() >= ids.items() for line in lines)


def test_what_publications_owe_is_done_when_no_job_is_due(ledger: FakeLedger, monkeypatch: Any) -> None:
    """Between jobs only what waits for long."""
    monkeypatch.setattr(module, "_QUIET_SECONDS", 0.0)
    ledger.jobs, ledger.owed = [JOB, JOB], True
    do(ledger, monkeypatch, lambda report: JobResult(models={}))
    done = ["published", ("let go", module._OWED_SECONDS)]
    assert [each for each in ledger.said if each != "dropped"] == [*done, *done, ("let go", 0.0)]


def test_a_job_that_comes_meanwhile_is_done_before_what_is_owed(ledger: FakeLedger, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "_QUIET_SECONDS", 60.0)
    found = iter([None, JOB])
    runner = Runner(ledger)  # type: ignore[arg-type]
    ledger.owed = True
    runner.wake()

    def work(report: Any) -> JobResult:
        monkeypatch.setattr(module, "_QUIET_SECONDS", 0.0)
        return JobResult(models={})

    monkeypatch.setattr(ledger, "claim", lambda: next(found, None))
    do(ledger, monkeypatch, work, runner)
    assert [each[0] if each[0] == "let go" else each for each in ledger.said if each != "dropped"] == [
        "published", "let go", "let go",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "code", "final"),
    [
        (JobFailure("non_finite", "teacher 'a'"), "non_finite", True),
        (JobFailure("out_of_memory", "16 GB"), "out_of_memory", False),
        (ChildLost("was killed by signal 9"), "worker_lost", False),
        (ChildLost("ended for want of memory", "out_of_memory"), "out_of_memory", False),
        (MemoryError(), "out_of_memory", False),
        (JobFailure("disk_full", "no room"), "disk_full", False),
        (OSError(errno.ENOSPC, "No space left on device"), "disk_full", False),
        (OSError(errno.EROFS, "Read-only file system"), "storage_unavailable", False),
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


def test_a_damaged_file_ends_the_job_at_once_and_is_what_is_told(
    ledger: FakeLedger, monkeypatch: Any, tmp_path: Path
) -> None:
    """Not the sequel of it: a model that cannot be read, a loss that is not finite."""
    path = tmp_path / "update"
    path.write_bytes(b"other bytes")
    ledger.files = {"sha256-" + "0" * 64: path}
    do(ledger, monkeypatch, until_stopped)
    assert ledger.verdicts == [("spoilt", "damaged")]


def test_a_wish_to_cancel_comes_before_a_damaged_file(ledger: FakeLedger, monkeypatch: Any, tmp_path: Path) -> None:
    ledger.files = {"sha256-" + "0" * 64: tmp_path / "not there"}
    monkeypatch.setattr(Lease, "spoil", lambda lease: None)
    ledger.wants_cancel = True
    do(ledger, monkeypatch, until_stopped)
    assert ledger.verdicts == ["cancelled"]


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
    assert told[0]["phase_seconds"] >= 0


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


def test_a_child_whose_progress_nobody_wants_to_hear_ends_with_the_job(ledger: FakeLedger, monkeypatch: Any) -> None:
    """Or what it still says of this job would be taken for the answer to the next one."""
    said = '{"progress": {"phase": "label"}}'
    program = f"import sys; sys.stdin.readline(); print({said!r}, flush=True); sys.stdin.readline()"
    real = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda command, **options: real([sys.executable, "-c", program], **options)
    )
    child = Child("cpu", 1)

    def enough(progress: Progress) -> None:
        raise Interrupted("cancelled")

    with pytest.raises(Interrupted):
        child.ask(ledger.load(JOB), enough)
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


def test_a_job_that_takes_no_step_is_stopped(ledger: FakeLedger, monkeypatch: Any) -> None:
    monkeypatch.setattr("worker.lease.STALL_SECONDS", 0.2)

    def stuck(report: Callable[[Progress], None]) -> JobResult:
        for _ in range(1000):
            pulse()  # it reads and reads
            time.sleep(0.01)
        raise AssertionError("nobody stopped the job")

    do(ledger, monkeypatch, stuck)
    assert ledger.verdicts == [("failed", "stalled", False)]


@pytest.mark.parametrize("tells", [True, False])
def test_a_job_that_takes_longer_than_its_plan_allows_fails_for_good(
    ledger: FakeLedger, monkeypatch: Any, tells: bool
) -> None:
    """It takes steps, so it is not stalled; or it only reads."""

    def endless(report: Callable[[Progress], None]) -> JobResult:
        for number in range(1000):
            if tells:
                report(Progress(phase="distil main", step=number, of=10**9))
            pulse()
            time.sleep(0.01)
        raise AssertionError("nobody stopped the job")

    ledger.jobs = [dataclasses.replace(JOB, seconds=0.2)]
    do(ledger, monkeypatch, endless)
    assert ledger.verdicts == [("failed", "out_of_time", True)]
    assert "rounds.job_seconds, 0.2 s" in ledger.details[-1]


def test_a_child_that_takes_too_long_is_killed(ledger: FakeLedger) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    job = dataclasses.replace(JOB, seconds=0.1)
    with Lease(ledger, job, threading.Event(), child.kill) as lease:  # type: ignore[arg-type]
        assert child.wait(20) == -9
    assert lease.verdict == "out_of_time"


def test_a_cancel_reaches_a_job_inside_a_long_read(ledger: FakeLedger, monkeypatch: Any, tmp_path: Path) -> None:
    """No progress is told while one file after another is read: the reader itself looks."""
    write_file(tmp_path / "large", {"w": np.zeros(1000, np.float32)})
    ledger.wants_cancel = True

    def reading(report: Callable[[Progress], None]) -> JobResult:
        with TensorFile(tmp_path / "large") as file:
            end = time.monotonic() + 20
            while time.monotonic() < end:
                file.read_block("w", 0, 10)
        raise AssertionError("nobody stopped the job")

    do(ledger, monkeypatch, reading)
    assert ledger.verdicts == ["cancelled"]


def test_where_a_job_was_taken_up_is_told_with_its_progress(ledger: FakeLedger, monkeypatch: Any) -> None:
    def slow(report: Callable[[Progress], None]) -> JobResult:
        report(Progress(phase="distil main", step=40, of=90, resumed=True))
        report(Progress(phase="distil main", step=41, of=90))
        assert ledger.renewed.wait(5)
        return JobResult(models={})

    do(ledger, monkeypatch, slow)
    told = next(each for each in ledger.said if each[0] == "progress")
    assert (told[1]["step"], told[2].phase, told[2].step) == (41, "distil main", 40)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_DATA counts so on Linux only")
@pytest.mark.slow
def test_a_child_has_its_own_limit_of_memory(ledger: FakeLedger, tmp_path: Path) -> None:
    """Weights of 1 GB do not fit into 600 MB: the job is told so, the child lives, and nobody else feels it."""
    child = Child("cpu", 1, 600 * 2**20)
    prototype = {"name": "main", "network": {"architecture": "mlp", "options": {"hidden": [4096] * 16}}}
    task = {"num_classes": 2, "input": {"shape": [2]}}
    huge = {"kind": "initialize", "seed": 1, "task": task, "prototypes": [prototype], "output_dir": str(tmp_path)}
    with pytest.raises(JobFailure) as refused:
        child.ask(InitializeSpec.model_validate(huge), lambda progress: None)
    assert refused.value.code == "out_of_memory"
    first = child.pid
    with pytest.raises(JobFailure) as other:
        child.ask(ledger.load(JOB), lambda progress: None)
    assert (other.value.code, child.pid) == ("no_participants", first)
    child.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_DATA counts so on Linux only")
@pytest.mark.parametrize("mebibytes", [16, 60, 110, 140, 170, 190])
def test_whatever_fails_first_for_want_of_memory_is_named_so(mebibytes: int, tmp_path: Path) -> None:
    """The loader, the C library's ABORT with status 127, C++'s terminate, Python: each says it in a way of its own."""
    child = Child("cpu", 1, mebibytes * 2**20)
    prototype = {"name": "main", "network": {"architecture": "mlp", "options": {"hidden": [4]}}}
    task = {"num_classes": 2, "input": {"shape": [2]}}
    small = {"kind": "initialize", "seed": 1, "task": task, "prototypes": [prototype], "output_dir": str(tmp_path)}
    try:
        with pytest.raises((JobFailure, ChildLost)) as refused:
            child.ask(InitializeSpec.model_validate(small), lambda progress: None)
    finally:
        child.close()
    assert getattr(refused.value, "code", None) == "out_of_memory", refused.value
    assert str(refused.value).endswith("use smaller models or batches")


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("terminate called after throwing an instance of 'std::bad_alloc'", "out_of_memory"),
        ("warning: something else", "worker_lost"),
    ],
)
def test_the_last_words_of_a_child_say_why_it_ended(ledger: FakeLedger, monkeypatch: Any, said: str, code: str) -> None:
    """It says so and is gone, without an answer; what it said of an earlier job does not count."""
    program = "import sys; print('MemoryError of another job', file=sys.stderr, flush=True); sys.stdin.readline()"
    program += f"; sys.stderr.write({said!r}); sys.stderr.flush(); import os; os.abort()"
    real = subprocess.Popen

    monkeypatch.setattr(
        subprocess, "Popen", lambda command, **options: real([sys.executable, "-c", program], **options)
    )
    child = Child("cpu", 1)
    waited = LastWords.forget

    def late(self: LastWords) -> None:
        time.sleep(1.0)
        waited(self)

    monkeypatch.setattr(LastWords, "forget", late)
    with pytest.raises(ChildLost) as lost:
        child.ask(ledger.load(JOB), lambda progress: None)
    assert lost.value.code == code


@pytest.mark.parametrize(("kills", "code"), [([3, 4], "out_of_memory"), ([3, 3], "worker_lost")])
def test_a_child_that_the_system_ends_is_told_from_one_that_was_killed(
    ledger: FakeLedger, monkeypatch: Any, kills: list[int], code: str
) -> None:
    monkeypatch.setattr(module, "oom_kills", lambda: kills.pop(0))
    child = Child("cpu", 1)

    class Dying:
        def model_dump(self, mode: str) -> dict[str, str]:
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)
            return {}

    with pytest.raises(ChildLost) as lost:
        child.ask(Dying(), lambda progress: None)  # type: ignore[arg-type]
    assert lost.value.code == code
    child.close()


def test_a_child_that_is_asked_to_stop_keeps_its_state(tmp_path: Path, federation: Any) -> None:
    """SIGTERM in the middle of a distillation: what was done is on the disk, long before the next time it is due."""
    recipe = build("feddf", {"schedule": {"steps": 100_000, "batch_size": 8}})
    spec = federation(tmp_path, recipe).spec("out")
    child = Child("cpu", 1)
    kept = tmp_path / "kept"

    def report(progress: Progress) -> None:
        if progress.phase.startswith("distil") and progress.step > 10:
            threading.Thread(target=child.stop, args=(30.0,)).start()

    with pytest.raises(JobFailure) as stopped:
        child.ask(spec, report, CheckpointSpec(folder=kept, fence=1, every_seconds=1e6, max_bytes=10**9))
    assert stopped.value.code == "stopped"
    assert len(list(kept.iterdir())) == 2, "labels, and the student"
