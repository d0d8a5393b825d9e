"""Does jobs, one at a time: in this process when no network runs, else in a child that can be watched and killed."""

import contextlib
import logging
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from contract import log_lines, traces
from contract.log_lines import LogFormat
from contract.tensors import synced_later, watched
from worker.lease import OUT_OF_TIME, PULSE_SECONDS, SPOILT, STALL_SECONDS, Interrupted, Lease
from worker.ledger import BlobFaults, Claimed, DomainError, Inspection, Ledger, LostLease
from worker.limits import LastWords, is_disk_full, is_out_of_memory, is_storage_fault, oom_kills, out_of_memory
from worker.origin import code, environment, traced
from worker.pace import Pace
from worker.pipeline import run
from worker.protocol import STOPPED, Failed, Terms, answers, order, start
from worker.specs import CheckpointSpec, Handover, JobFailure, JobResult, JobSpec, Progress

log = logging.getLogger("worker.runner")
_IDLE_SECONDS = 60.0
"""Without a job that runs a network, after which the computing process with its 300 MB of torch is let go."""
_TIDY_SECONDS = 600.0
_QUIET_SECONDS = 0.1
"""After a publication: devices are told of it and fetch it before anything else is written."""
_OWED_SECONDS = 10.0
"""So long what publications owe waits while one job follows another."""
_GRACE_SECONDS = 5.0  # to put a state on the disk when the worker stops
_NOT_FINAL = frozenset({"disk_full", "internal", "out_of_memory", "storage_unavailable", STOPPED})


class ChildLost(Exception):
    """The child died under a job; `code` says of what."""

    def __init__(self, detail: str, code: str = "worker_lost"):
        super().__init__(detail)
        self.code = code


class Child:
    """A warm process of `worker.child`; started when it is first needed."""

    def __init__(self, device: str, torch_threads: int, memory_bytes: int = 0, log_format: LogFormat = "text"):
        self._terms = Terms(device, torch_threads, memory_bytes, log_format)
        self._process: subprocess.Popen[str] | None = None
        self._words: LastWords | None = None
        self.used_at = time.monotonic()

    def ask(
        self,
        spec: JobSpec,
        report: Any,
        checkpoints: CheckpointSpec | None = None,
        hand_over: Callable[[Handover], None] | None = None,
    ) -> JobResult:
        """Have a job done.

        Args:
            spec: the job.
            report: called with its progress.
            checkpoints: where its states are kept for another attempt.
            hand_over: called with what is ready before the job ends; when it, or `report`, raises, the child goes too.

        Raises:
            JobFailure: the child says that it cannot be done.
            ChildLost: the child died.
        """
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        self.used_at = time.monotonic()
        words, ended_before = self._words, oom_kills()
        assert words is not None
        words.forget()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(order(spec.model_dump(mode="json"), checkpoints))
            process.stdin.flush()
        for said in answers(process.stdout):
            if isinstance(said, Progress):
                self._told(said, report)
            elif isinstance(said, Handover):
                if hand_over is not None:
                    self._told(said, hand_over)
            elif isinstance(said, Failed):
                if said.code == STOPPED:
                    self.close()  # it is about to end
                raise JobFailure(said.code, said.detail)
            else:
                self.used_at = time.monotonic()
                return said
        code = process.wait()
        self.close()
        if code == -9 and oom_kills() > ended_before:
            why = "the system ended the computing process for want of memory; use smaller models or batches"
            raise ChildLost(why, "out_of_memory")
        last = words.of_memory()
        if last is not None:
            raise ChildLost(out_of_memory(last), "out_of_memory")
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        raise ChildLost(f"the computing process {how}" + (" (out of memory?)" if code == -9 else ""))

    def _told(self, said: Any, hear: Callable[[Any], None]) -> None:
        """Pass on what the process says; a hearer that has heard enough ends the process with the job."""
        try:
            hear(said)
        except BaseException:
            self.close()  # or what it still says of this job would be taken for the next one's
            raise

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = start(self._terms, subprocess.PIPE)
            assert self._process.stderr is not None
            self._words = LastWords(self._process.stderr)
        return self._process

    @property
    def pid(self) -> int | None:
        """The process, if one runs."""
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        """End the process and let go of its pipes; called by the thread that asks."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()

    def stop(self, grace_seconds: float) -> None:
        """Ask the process to put its state on the disk and end; kill it after a while. From any thread."""
        process = self._process
        if process is not None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace_seconds)
            self.kill()

    def kill(self) -> None:
        """End the process, whatever it is doing and from any thread; its memory is free afterwards."""
        process = self._process
        if process is not None:
            process.kill()
            process.wait()


class Runner:
    """One worker's loop over the jobs table, in a thread that lives as long as the worker.

    One thread for good, because Linux ends a child with the thread that started it (PR_SET_PDEATHSIG).
    """

    def __init__(self, ledger: Ledger):
        self.ledger = ledger
        settings = ledger.settings
        code(), environment("cpu")  # as this process was started, whatever is installed over it later
        limits = (settings.torch_threads, settings.job_memory_bytes)
        self._child = Child(settings.device, *limits, settings.log_format)
        self._stop = threading.Event()
        self._wanted = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jobs", daemon=True)

    def start(self) -> None:
        """Begin with the jobs that have waited for a worker."""
        self._wanted.set()
        self._thread.start()

    def wake(self) -> None:
        """Look at the jobs table now; returns at once."""
        self._wanted.set()

    def _run(self) -> None:
        tidied = -_TIDY_SECONDS
        while not self._stop.is_set():
            self._wanted.clear()
            try:
                self.drain()
                self.ledger.heartbeat()
                if time.monotonic() >= tidied + _TIDY_SECONDS:
                    self.ledger.tidy()
                    tidied = time.monotonic()
            except Exception:
                log.exception("cannot reach the jobs table; trying again")
            if time.monotonic() - self._child.used_at > _IDLE_SECONDS:
                self._child.close()
            self._wanted.wait(PULSE_SECONDS)

    def drain(self) -> int:
        """Do jobs until none is due, and then what they owe; return how many were done."""
        done = 0
        while not self._stop.is_set():
            job = self.ledger.claim()
            if job is not None:
                self.do(job)
                done += 1
                self.ledger.let_go(_OWED_SECONDS)
            elif not self.ledger.owes:
                break
            elif self._wanted.wait(_QUIET_SECONDS):
                self._wanted.clear()
            else:
                self.ledger.let_go()
        return done

    def do(self, job: Claimed) -> None:
        """Do one job and record what became of it."""
        ids = {"job_id": job.id, "federation_id": job.federation_id, "round_id": job.round_id}
        told: dict[str, traces.Value | None] = {f"potstill.{name}": value for name, value in ids.items()}
        told |= {"potstill.kind": job.kind, "potstill.attempt": job.attempt}
        with (
            traces.below(job.traceparent),
            traces.span(f"job {job.kind}", told, kind="consumer", links=job.links),
            log_lines.about(**ids, **traces.known()),
        ):
            self._held(job)

    def _held(self, job: Claimed) -> None:
        log.info("job %s: %s, attempt %d, fence %d", job.id, job.kind, job.attempt, job.fence)
        began = time.monotonic()
        try:
            with Lease(self.ledger, job, self._stop, self._child.kill) as lease:
                self._do(job, lease)
            log.info("job %s: done in %.1f s", job.id, time.monotonic() - began)
        except LostLease:
            traces.at_hand().fail("lost_lease")
            log.warning("job %s: the lease was lost, or given back for shards of its labels; no result counts", job.id)

    def _do(self, job: Claimed, lease: Lease) -> None:
        try:
            spec = self.ledger.load(job)
            try:
                with self.ledger.inputs(spec, lease.report, lease.spoil) as inspection:
                    result = self._checked(job, spec, lease, inspection)
                    if self._verdict(lease) in ("cancelled", "lost"):
                        raise Interrupted
                    with traces.span("publish"):
                        self.ledger.publish(job, result)
            finally:
                self.ledger.drop_outputs(spec)
        except LostLease:
            raise
        except Exception as error:  # noqa: BLE001 - recorded by _failed or _interrupted
            verdict = self._verdict(lease)
            if verdict in (None, SPOILT):
                self._failed(job, error)
            else:
                self._interrupted(job, verdict, error)

    def _verdict(self, lease: Lease) -> str | None:
        """Return why the job was stopped from outside, if it was: a killed child is no fault of the job then."""
        return lease.verdict or ("stopping" if self._stop.is_set() else None)

    def _failed(self, job: Claimed, error: Exception) -> None:
        traces.at_hand().fail(str(getattr(error, "code", type(error).__name__)))
        if isinstance(error, JobFailure):
            log.error("job %s: %s: %s", job.id, error.code, error.detail)
            self.ledger.fail(job, error.code, error.detail, final=error.code not in _NOT_FINAL)
        elif isinstance(error, BlobFaults):
            log.error("job %s: %s", job.id, error)
            self.ledger.spoilt(job, error)
        elif isinstance(error, DomainError) and error.kind == "unavailable":  # the blob store is away
            log.error("job %s: put back: %s", job.id, error)
            self.ledger.postpone(job, str(error))
        elif isinstance(error, ChildLost):
            log.error("job %s: %s", job.id, error)
            self.ledger.fail(job, error.code, str(error), final=False)
        elif is_disk_full(error):
            log.error("job %s: the disk is full: %s", job.id, error)
            self.ledger.fail(job, "disk_full", f"no room for the job's files: {error}; make room", final=False)
        elif is_storage_fault(error):
            log.error("job %s: the storage cannot be used: %s", job.id, error)
            self.ledger.fail(job, "storage_unavailable", f"{error}; see to the folder or disk", final=False)
        elif is_out_of_memory(error):
            log.error("job %s: out of memory: %s", job.id, error)
            self.ledger.fail(job, "out_of_memory", out_of_memory(error), final=False)
        else:
            log.error("job %s failed", job.id, exc_info=error)
            self.ledger.fail(job, "internal", f"{type(error).__name__}: {error}", final=False)

    def _checked(self, job: Claimed, spec: JobSpec, lease: Lease, inspection: Inspection) -> JobResult:
        """Compute, and see that what was read is what was sent: neither result nor failure counts otherwise."""
        try:
            result = self._compute(job, spec, lease, inspection)
        except Exception:
            if self._verdict(lease) in (None, SPOILT):
                inspection.check()
            raise
        lease.rest()
        with traces.span("inspect"):
            inspection.check()
        return result

    def _compute(self, job: Claimed, spec: JobSpec, lease: Lease, inspection: Inspection) -> JobResult:
        def hand_over(made: Handover) -> None:
            inspection.check()
            self.ledger.publish_groups(job, made)

        pace = Pace()

        def report(progress: Progress) -> None:
            lease.report(progress)
            seconds = pace.of(progress, time.monotonic())
            if seconds is not None:
                self.ledger.give_way(job, seconds, progress.of - progress.step)

        lease.check()  # a child that is not there yet could not be killed
        if spec.needs_networks:
            with self.ledger.checkpointing(job) as checkpoints:
                return self._child.ask(spec, report, checkpoints, hand_over)
        with watched(lease.check), synced_later():  # `publish` puts on the disk what it takes
            return traced(spec, "cpu", lambda: run(spec, lease.report))

    def _interrupted(self, job: Claimed, verdict: str, error: Exception) -> None:
        traces.at_hand().fail(verdict)
        if verdict == "cancelled":
            log.info("job %s: cancelled", job.id)
            self.ledger.cancel(job)
        elif verdict == "stopping":
            log.info("job %s: given back, this worker stops", job.id)
            self.ledger.give_back(job)
        elif verdict == "stalled":
            log.error("job %s: no step within %g s; stopped", job.id, STALL_SECONDS)
            self.ledger.fail(job, "stalled", f"no step within {STALL_SECONDS:g} s", final=False)
        elif verdict == OUT_OF_TIME:
            log.error("job %s: not done within %g s; stopped", job.id, job.seconds)
            detail = (
                f"the job was not done within rounds.job_seconds, {job.seconds:g} s: take fewer steps or smaller "
                "networks, a faster device, or a larger job_seconds. A retry goes on where it was"
            )
            self.ledger.fail(job, OUT_OF_TIME, detail, final=True)
        else:
            raise LostLease(job.id) from error

    def stop(self) -> None:
        """Give the running job back and take no other."""
        self._stop.set()
        self._wanted.set()
        self._child.stop(_GRACE_SECONDS)

    def close(self) -> None:
        """Stop, wait for the loop's end, and leave the ledger."""
        self.stop()
        self._thread.join()
        self._child.close()
        self.ledger.leave()
        traces.close()
