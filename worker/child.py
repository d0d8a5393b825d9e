"""The child process that runs networks for one worker, so that a job can be killed and its memory given back.

What it is told and what it answers is in `worker.protocol`.
"""

import contextlib
import ctypes
import logging
import os
import resource
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import IO

from contract import log_lines
from worker.checkpoints import Checkpoints, Stopped, key_of
from worker.limits import die_first, is_disk_full, is_out_of_memory, is_storage_fault, limit_memory, out_of_memory
from worker.origin import traced, traced_handover
from worker.pipeline import run
from worker.protocol import STOPPED, Answer, Failed, Order, Terms, answer, ordered
from worker.specs import Handover, JobFailure, JobResult, Progress

_log = logging.getLogger("worker.child")
_PR_SET_PDEATHSIG = 1
_PROGRESS_SECONDS = 0.2


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies: a killed worker must leave no computation behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def make_deterministic(threads: int | None) -> None:
    """Make torch repeat itself bit for bit; sums depend on the number of threads, so that is fixed too."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    torch.set_deterministic_debug_mode("error")  # as use_deterministic_algorithms, which imports torch's compiler
    torch.backends.cudnn.benchmark = False
    if threads:
        torch.set_num_threads(threads)


def choose_device(asked: str) -> str:
    """Return the torch device for 'auto' or the one that was asked for.

    Raises:
        JobFailure: bad_option, it is not there.
    """
    from contract.nn import devices

    if asked != "auto":
        try:
            return str(devices.find(asked))
        except ValueError as error:
            raise JobFailure("bad_option", f"POTSTILL_DEVICE: {error}, or auto for the best of them") from error
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


class Reporter:
    """Writes progress lines, at most five a second within a phase.

    Attributes:
        out: where lines go.
    """

    def __init__(self, out: IO[str]):
        self.out = out
        self._phase = ""
        self._at = 0.0

    def __call__(self, progress: Progress) -> None:
        """Write the line if it is due: a new phase, the last step, or long enough after the line before."""
        now = time.monotonic()
        due = progress.phase != self._phase or progress.step in (0, progress.of) or now - self._at >= _PROGRESS_SECONDS
        if due:
            self._phase, self._at = progress.phase, now
            self.write(progress)

    def write(self, said: Answer) -> None:
        """Write one line and see that it leaves."""
        self.out.write(answer(said))
        self.out.flush()


def reset_peak_memory(device: str) -> None:
    """Begin to count anew: this process is warm, and the job before may have been a large one."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.reset_peak_memory_stats(device)
    with contextlib.suppress(OSError):  # Linux only, and not in every sandbox
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def peak_memory_bytes(device: str) -> int:
    """Return the largest memory in use since the count began: of the accelerator if one is used, else resident memory.

    Where Linux does not tell, the largest of the process's life.
    """
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.max_memory_allocated(device))
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class Wish:
    """Whether this process should end: SIGTERM says so. A job at hand puts its state on the disk first."""

    def __init__(self) -> None:
        self.told = self.busy = False
        self.checkpoints: Checkpoints | None = None

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Take the signal."""
        self.told = True
        if not self.busy:
            sys.exit(0)
        if self.checkpoints is not None:
            self.checkpoints.asked = True

    def begin(self, checkpoints: Checkpoints) -> Checkpoints:
        """Have a job's checkpoints told, also of a signal that came before."""
        self.checkpoints = checkpoints
        checkpoints.asked = self.told
        return checkpoints


wish = Wish()


def _checkpoints(order: Order, device: str) -> Checkpoints:
    keeping = order.checkpoints
    if keeping is None:
        return Checkpoints(None)
    threads = 0
    if order.job.needs_networks:
        import torch

        threads = torch.get_num_threads()
    key = key_of(order.job, device, threads)
    return Checkpoints(keeping.folder, key, keeping.fence, keeping.every_seconds, keeping.max_bytes)


def _run(line: str, report: Reporter) -> JobResult:
    order, terms = ordered(line), Terms.told()
    log_lines.begin(**order.about)
    spec, device = order.job, "cpu"
    if spec.needs_networks:
        make_deterministic(terms.torch_threads or None)
        device = choose_device(terms.device)
    reset_peak_memory(device)
    checkpoints = wish.begin(_checkpoints(order, device))

    def hand_over(made: Handover) -> None:
        report.write(traced_handover(spec, device, made))

    def work() -> JobResult:
        return run(spec, report, device=device, checkpoints=checkpoints, hand_over=hand_over)

    result = traced(spec, device, work)
    more = {"peak_memory_bytes": peak_memory_bytes(device), "resumed_from": checkpoints.resumed}
    return result.model_copy(update=more)


def do(line: str, report: Reporter) -> None:
    """Do the job of one line and write its answer; whatever goes wrong becomes an error with a stable code."""
    wish.busy = True
    log_lines.begin()
    try:
        report.write(_run(line, report))
    except JobFailure as failure:
        _fail(report, failure.code, failure.detail)
    except Stopped:
        _fail(report, STOPPED, "asked to end; the state is kept")
    except (KeyError, ValueError) as error:
        _log.exception("job could not be read or done")
        _fail(report, "internal", f"{type(error).__name__}: {error}")
    except Exception as error:  # noqa: BLE001 - the parent must hear of every failure
        if is_disk_full(error):
            _fail(report, "disk_full", f"no room for the job's files: {error}; make room")
            return
        if is_storage_fault(error):
            _fail(report, "storage_unavailable", f"{error}; see to the folder or disk")
            return
        if is_out_of_memory(error):
            _fail(report, "out_of_memory", out_of_memory(error))
            return
        _log.exception("job failed")
        _fail(report, "internal", f"{type(error).__name__}: {error}")
    finally:
        wish.busy, wish.checkpoints = False, None


def _fail(report: Reporter, code: str, detail: str) -> None:
    report.write(Failed(code=code, detail=detail))


def main() -> None:
    """Answer jobs from stdin until it ends."""
    die_with_parent()
    die_first()
    limit = Terms.told().memory_bytes
    if limit:
        limit_memory(limit)
    signal.signal(signal.SIGTERM, wish.hear)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the worker's to act on
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    handler.setFormatter(log_lines.JsonLine() if Terms.told().log_format == "json" else text)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    out, sys.stdout = sys.stdout, sys.stderr  # a stray print must not break the protocol
    report = Reporter(out)
    for line in sys.stdin:
        if line.strip():
            do(line, report)
        if wish.told:
            break


if __name__ == "__main__":
    main()
