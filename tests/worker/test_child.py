"""The child process: lines in, lines out, and its end."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract import log_lines
from contract.log_lines import JsonLine
from contract.tensors import write_file
from worker import child
from worker.protocol import order
from worker.specs import InitializeSpec, JobFailure, JobResult, Progress

TASK = {"num_classes": 3, "input": {"shape": [6]}}


def initialize(root: Path) -> dict[str, Any]:
    prototype = {"name": "main", "network": {"architecture": "mlp", "options": {"hidden": [4]}}}
    return {"kind": "initialize", "seed": 1, "task": TASK, "prototypes": [prototype], "output_dir": str(root / "out")}


def last(lines: list[str]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def test_several_jobs_then_the_end(tmp_path: Path) -> None:
    jobs = [initialize(tmp_path), {"kind": "paint"}, initialize(tmp_path)]
    text = "".join(json.dumps({"job": job, "about": {"job_id": "job_1"}}) + "\n" for job in jobs)
    done = subprocess.run(
        [sys.executable, "-m", "worker.child"],
        input=text, capture_output=True, text=True, timeout=120, check=True,
        env=os.environ | {"POTSTILL_TORCH_THREADS": "1", "POTSTILL_DEVICE": "cpu", "POTSTILL_LOG_FORMAT": "json"},
    )  # fmt: skip
    (logged,) = (json.loads(line) for line in done.stderr.splitlines())
    assert logged["message"] == "job could not be read or done" and "paint" in logged["exception"]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    finals = [answer for answer in answers if "progress" not in answer]
    assert [next(iter(answer)) for answer in finals] == ["result", "error", "result"]
    assert finals[1]["error"]["code"] == "internal"
    result = JobResult.model_validate(finals[0]["result"])
    assert result.models["main"].is_file() and result.device == "cpu"
    assert result.peak_memory_bytes is not None and result.peak_memory_bytes > 10_000_000
    assert answers[0]["progress"] == {"phase": "initialize", "step": 0, "of": 1, "resumed": False}


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (JobFailure("non_finite", "update of 'a'"), "non_finite"),
        (MemoryError(), "out_of_memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 9 bytes"), "out_of_memory"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "out_of_memory"),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), "out_of_memory"),
        (ImportError("libtorch_cpu.so: cannot map zero-fill pages"), "out_of_memory"),
        (OSError("libx.so: failed to map segment from shared object: Operation not permitted"), "internal"),
        (SystemError("error return without exception set"), "internal"),  # nothing limits this process
        (RuntimeError("surprise"), "internal"),
        (ZeroDivisionError("surprise"), "internal"),
    ],
)
def test_every_failure_has_a_code(
    raised: Exception, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> JobResult:
        raise raised

    monkeypatch.setattr(child, "run", fail)
    monkeypatch.setattr(InitializeSpec, "needs_networks", False, raising=False)
    out = io.StringIO()
    child.do(json.dumps({"job": initialize(tmp_path)}), child.Reporter(out))
    assert last(out.getvalue().splitlines())["error"]["code"] == code


def test_what_goes_wrong_in_a_job_is_logged_with_its_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> JobResult:
        raise RuntimeError("surprise")

    monkeypatch.setattr(child, "run", fail)
    monkeypatch.setattr(InitializeSpec, "needs_networks", False, raising=False)
    caplog.handler.setFormatter(JsonLine())
    with log_lines.about(job_id="job_1", federation_id="fed_1"):
        line = order(initialize(tmp_path))
    child.do(line, child.Reporter(io.StringIO()))
    logged = json.loads(caplog.text)
    assert (logged["job_id"], logged["federation_id"], logged["message"]) == ("job_1", "fed_1", "job failed")
    log_lines.begin()


def test_progress_is_thinned_but_first_and_last_steps_are_told() -> None:
    out = io.StringIO()
    report = child.Reporter(out)
    for step in range(101):
        report(Progress(phase="distil", step=step, of=100))
    steps = [json.loads(line)["progress"]["step"] for line in out.getvalue().splitlines()]
    assert steps[0] == 0 and steps[-1] == 100
    assert len(steps) < 50


PARENT = """
import subprocess, sys
pipe = subprocess.PIPE
process = subprocess.Popen([sys.executable, "-m", "worker.child"], stdin=pipe, stdout=pipe, text=True)
process.stdin.write(sys.argv[1] + "\\n")
process.stdin.flush()
process.stdout.readline()
print(process.pid, flush=True)
process.wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl")
def test_a_killed_parent_takes_a_busy_child_with_it(tmp_path: Path) -> None:
    """The child is in the middle of a long job and does not look at its stdin."""
    write_file(tmp_path / "u", {"inputs": np.linspace(0, 1, 120, dtype=np.float32).reshape(20, 6)})
    job = {
        "kind": "generator", "seed": 1, "task": TASK, "unlabeled": str(tmp_path / "u"), "output_dir": str(tmp_path),
        "generator": {"steps": 1_000_000}, "discriminator": {"architecture": "disc-mlp"},
    }  # fmt: skip
    command = [sys.executable, "-c", PARENT, json.dumps({"job": job})]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    deadline = time.monotonic() + 20
    while _alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _alive(pid)


def _alive(pid: int) -> bool:
    """A zombie waits for init to look at it and computes nothing."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
