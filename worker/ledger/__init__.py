"""The worker's only way to the database: claim a job, load its inputs, keep its lease, publish its result."""

import contextlib
import logging
import math
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from contract import traces
from contract.ids import new_id
from service.config import Settings
from service.domain.errors import DomainError
from service.infra.bells import ring
from service.infra.blob_checks import BlobFaults, Inspection
from service.infra.blob_store import open_blobs
from service.infra.blobs import BlobFault
from service.infra.queue import Sender
from service.operations.ledger import checksums, garbage, locks
from service.operations.ledger.unit import Store
from service.operations.progress import jobs, reading, sharing
from service.operations.progress.jobs import LostLease
from service.operations.steer import overlap, publishing, retention
from service.operations.store import faults, workers
from service.operations.store.outcome import Outcome
from service.persistence.engine import Database
from service.persistence.tables import FederationRow, JobRow, ModelRow, RoundRow
from worker import checkpoints
from worker.ledger.loading import Claimed, Loader
from worker.ledger.made import Made, members
from worker.specs import CheckpointSpec, Handover, JobResult, JobSpec, Progress, Resumed

log = logging.getLogger("worker.ledger")
__all__ = ["BlobFaults", "Claimed", "DomainError", "Inspection", "Ledger", "LostLease"]
_ABANDONED_SECONDS = 3600.0


class Ledger:
    """The jobs table, seen by one worker."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.worker_id = new_id("worker")
        self._sender = Sender(settings)
        self._blobs = open_blobs(settings)
        self._database = Database(settings)
        self._store = Store(self._database, self._blobs.store, self._wake, self._tell)
        self._loader = Loader(self._blobs.cache)
        self._owed: dict[str, float] = {}

    def _wake(self, queues: set[str]) -> None:
        for queue in sorted(queues):
            self._sender.send(queue)

    def _tell(self) -> None:
        """Have the API, which waits with the devices, look now: sooner than it would see the commit by itself."""
        bell = self.settings.changed_bell
        if bell is not None:
            ring(bell)

    # ------------------------------------------------------------------------------------------------ holding a job
    def claim(self) -> Claimed | None:
        """Take the oldest job that is due, or None; a round's job gives way to shards of its labels."""
        job = self._claim()
        while job is not None and job.kind == "round" and self._gives_way(job):
            job = self._claim()
        return job

    def give_way(self, job: Claimed, seconds: float, left: int) -> None:
        """Put a round's job back that asks its teachers, where shards would be quicker at the rest of them.

        Args:
            job: the round's, or another, to which nothing happens.
            seconds: of a teacher, as it is measured now.
            left: teachers that are still to be asked.

        Raises:
            LostLease: it gives way.
        """
        worth = seconds * left >= 2 * self.settings.labels_shard_seconds
        if job.kind == "round" and worth and self._gives_way(job, seconds):
            raise LostLease(job.id)

    def _gives_way(self, job: Claimed, measured: float | None = None) -> bool:
        """Put a round's job back where shards of its labels are to be made first."""
        settings, round_id = self.settings, str(job.round_id)
        seconds = settings.labels_shard_seconds
        with self._store.read() as session:
            queue = session.get_one(JobRow, job.id).queue
            there = workers.serving(session, queue, settings.device)
            if not sharing.may_come_first(session, round_id, there, seconds):
                return False
        try:
            with self._store.write() as session:
                row = jobs.held(session, job.id, job.fence)
                return sharing.comes_first(session, row, there, seconds, measured)
        except LostLease:
            return True

    def _claim(self) -> Claimed | None:
        with self._store.read() as session:
            if not jobs.any_due(session, self.settings.queue_list):
                return None
        if self._blobs.scratch.free_bytes() < self.settings.min_free_bytes:
            log.warning("jobs wait: the disk has less than POTSTILL_MIN_FREE_BYTES left; make room")
            return None
        with self._store.write() as session:
            settings = self.settings
            job = jobs.claim(session, self.worker_id, settings.device, settings.lease_seconds, settings.queue_list)
            if job is None:
                return None
            federation = session.get_one(FederationRow, job.federation_id)
            limit = reading.config_of(federation).rounds.job_seconds
            links = tuple(jobs.traces_of(session, job)) if traces.wanted() else ()
            about = (job.id, job.kind, job.fence, job.attempt, job.federation_id, job.round_id)
            return Claimed(*about, limit, job.traceparent, links)

    def is_cancelled(self, job: Claimed) -> bool:
        """Whether somebody wants the job to end; a look that takes no write lock.

        Raises:
            LostLease: another worker has the job.
        """
        with self._store.read() as session:
            return jobs.is_cancelled(session, job.id, job.fence)

    def renew(self, job: Claimed, progress: dict[str, Any] | None, resumed: Resumed | None = None) -> None:
        """Keep the lease and tell the progress, and from where the work was taken up.

        Raises:
            LostLease: another worker has the job.
        """
        with self._store.write() as session:
            row = jobs.renew(session, job.id, job.fence, self.settings.lease_seconds, progress)
            row.resumed_from = row.resumed_from if resumed is None else resumed.model_dump()
            self._heartbeat(session, job.id)

    def heartbeat(self) -> None:
        """Say that this worker is alive and idle."""
        with self._store.write() as session:
            self._heartbeat(session, None)

    def _heartbeat(self, session: Session, job_id: str | None) -> None:
        settings = self.settings
        host, pid = socket.gethostname(), os.getpid()
        workers.heartbeat(session, self.worker_id, host, pid, settings.device, job_id, settings.queue_list)

    def leave(self) -> None:
        """Do what is owed, say goodbye and close."""
        self.let_go()
        with self._store.write() as session:
            workers.leave(session, self.worker_id)
        self._database.close()
        self._sender.close()

    # --------------------------------------------------------------------------------------------- ending a job
    def publish(self, job: Claimed, result: JobResult) -> None:
        """Make a result visible: files become blobs, rows follow, in one transaction with the fencing token.

        Raises:
            LostLease: somebody else has the job by now; nothing becomes visible.
            JobFailure: a file is not what it should be.
        """
        made = Made(self._blobs, self._bases(job))
        for named in (result.models, result.state or {}, members(result)):
            made.take(named)
        made.prepare()
        with self._store.write() as session:
            self._keep(session, job, made)
            outcome = Outcome(
                files=made.of(result.models),
                state=None if result.state is None else made.of(result.state),
                ensemble=None if result.ensemble is None else [made.member(each) for each in result.ensemble],
                metrics=plain(result.metrics),
                peak_memory_bytes=result.peak_memory_bytes,
                device=result.device,
                resumed_from=None if result.resumed_from is None else result.resumed_from.model_dump(),
                origin=result.origin,
            )
            publishing.publish(session, job.id, job.fence, outcome)
            made.note(session)
        made.adopt()
        self._blobs.states.forget(job.id)
        self._owed.setdefault(job.federation_id, time.monotonic())

    @property
    def owes(self) -> bool:
        """Whether retention is to be applied to federations of which something was published."""
        return bool(self._owed)

    def let_go(self, after_seconds: float = 0.0) -> None:
        """Apply retention where something was published at least so long ago.

        In transactions of their own, when devices have the new model and what they are told is noted: they would wait
        for these. The tidying does it where a crash comes between.
        """
        for federation_id, since in list(self._owed.items()):
            if time.monotonic() - since < after_seconds:
                continue
            del self._owed[federation_id]
            try:
                with self._store.write() as session:
                    retention.tidy(session, federation_id, self.settings.retention)
            except Exception:  # what is published stands
                log.exception("what retention does not keep of %s stays until the tidying", federation_id)

    def publish_groups(self, job: Claimed, given: Handover) -> None:
        """Make visible what a round's job hands over before it ends; the job goes on.

        Raises:
            LostLease: somebody else has the job by now, and nothing becomes visible; or it gives way to shards.
            JobFailure: a file is not what it should be.
        """
        made = Made(self._blobs, self._bases(job))
        made.take(given.models)
        made.prepare()
        with self._store.write() as session:
            self._keep(session, job, made)
            outcome = Outcome(made.of(given.models), origin=given.origin)
            overlap.publish_groups(session, job.id, job.fence, outcome)
            made.note(session)
        made.adopt()
        if self._gives_way(job):
            raise LostLease(job.id)

    def _keep(self, session: Session, job: Claimed, made: Made) -> None:
        """Make blobs of files while the job is still this worker's, under the lock that keeps blobs from going."""
        locks.hold_blobs(session)
        jobs.held(session, job.id, job.fence)
        made.keep()

    def _bases(self, job: Claimed) -> dict[str, str]:
        """Return the digests of the models that a round started from, by their names."""
        if job.round_id is None or job.kind != "round":
            return {}
        with self._store.read() as session:
            bases = session.get_one(RoundRow, job.round_id).base_models
            return {name: session.get_one(ModelRow, id_).digest for name, id_ in bases.items()}

    def fail(self, job: Claimed, code: str, detail: str, final: bool) -> None:
        """Record a failure. A final one ends the job; any other is tried again later, up to the limit of attempts."""
        with self._store.write() as session:
            row = jobs.held(session, job.id, job.fence)
            if row.cancel_requested:
                publishing.cancelled(session, row)
            elif final:
                publishing.give_up(session, row, code, detail)
            elif not jobs.release(session, row, code, detail):
                publishing.give_up(session, row, code, f"{detail} (after {row.attempt} attempts)")
            over = row.state != "queued"
        if over:
            self._blobs.states.forget(job.id)

    def give_back(self, job: Claimed) -> None:
        """Put a job back untouched, because this worker stops; the attempt does not count."""
        with self._store.write() as session:
            row = jobs.held(session, job.id, job.fence)
            if row.cancel_requested:
                publishing.cancelled(session, row)
            else:
                jobs.give_back(session, row)

    def cancel(self, job: Claimed) -> None:
        """End a job because an operator wants it to end."""
        with self._store.write() as session:
            publishing.cancelled(session, jobs.held(session, job.id, job.fence))
        self._blobs.states.forget(job.id)

    # ------------------------------------------------------------------------------------------- loading a job
    def load(self, job: Claimed) -> JobSpec:
        """Return everything the job needs, with an empty folder for what it makes."""
        folder = self._blobs.scratch.work_dir(job.id, job.fence)
        with self._store.read() as session:
            return self._loader.load(session, job, folder)

    @contextlib.contextmanager
    def inputs(
        self, spec: JobSpec, report: Callable[[Progress], None], on_fault: Callable[[], None] = lambda: None
    ) -> Iterator[Inspection]:
        """Have every file that a job names on this machine for the length of the block, and have them looked at.

        Copies of what the service removes in the meantime, uploads above all, go at its end.

        Args:
            on_fault: called from another thread, when the first file is found damaged or missing.

        Raises:
            BlobFaults: one cannot be had at all; of the others `check` of the inspection tells.
        """
        cache = self._blobs.cache
        files = {digest: path for path in _paths(spec.model_dump()) if (digest := cache.digest_at(path)) is not None}

        def fetched(done: int, of: int) -> None:
            report(Progress(phase="fetch", step=done, of=of))

        with contextlib.ExitStack() as held:
            try:
                held.enter_context(cache.hold(files, fetched))
            except BlobFault as fault:
                raise BlobFaults([fault]) from fault
            with self._store.read() as session:
                known = checksums.known(session, files)
            inspection = Inspection(files, on_fault, known)
            yield held.enter_context(inspection)
        if inspection.mended:
            with self._store.write() as session:
                locks.hold_blobs(session)
                stay = garbage.named(session, set(inspection.mended))
                checksums.note(session, {digest: inspection.mended[digest] for digest in stay})
        garbage.forget_copies(self._database, self._blobs.cache)

    def spoilt(self, job: Claimed, found: BlobFaults) -> None:
        """Record that files which a job reads are damaged or missing, and ask for them again where that is possible.

        Where only this machine's copies are, they are fetched again by the next attempt.
        """
        faults_here = [fault for each in found.faults if (fault := self._confirmed(each.digest)) is not None]
        if not faults_here:
            self.fail(job, "blob_damaged", f"only here, and fetched again: {found}", final=False)
            return
        with self._store.write() as session:
            locks.lock_blobs(session)
            row = jobs.held(session, job.id, job.fence)
            told = [(fault, faults.note(session, self._blobs.store, fault)) for fault in faults_here]
            if row.cancel_requested:
                publishing.cancelled(session, row)
            else:
                publishing.spoilt(session, row, told)
            over = row.state != "queued"
        if over:
            self._blobs.states.forget(job.id)

    def _confirmed(self, digest: str) -> BlobFault | None:
        """Drop this machine's copy of a blob and look at the blob itself."""
        self._blobs.cache.drop(digest)
        try:
            self._blobs.store.verify(digest)
        except BlobFault as fault:
            return fault
        return None

    def tidy(self) -> None:
        """Remove what jobs left on this machine; the API does so where it has the same folder."""
        with self._store.read() as session:
            working = jobs.folders(session)
        self._blobs.sweep(_ABANDONED_SECONDS, working)
        garbage.forget_copies(self._database, self._blobs.cache)

    def postpone(self, job: Claimed, detail: str) -> None:
        """Put a job back for a while because the blob store is away, which is no fault of the job's."""
        with self._store.write() as session:
            row = jobs.held(session, job.id, job.fence)
            if row.cancel_requested:
                publishing.cancelled(session, row)
            else:
                jobs.postpone(session, row, "unavailable", detail)

    @contextlib.contextmanager
    def checkpointing(self, job: Claimed) -> Iterator[CheckpointSpec]:
        """Have a place where the job's attempts keep their states."""
        seconds = checkpoints.EVERY_SECONDS
        with self._blobs.states.open(job.id, seconds) as folder:
            yield CheckpointSpec(folder=folder, fence=job.fence, every_seconds=seconds, max_bytes=checkpoints.MAX_BYTES)

    def drop_outputs(self, spec: JobSpec) -> None:
        """Remove a job's folder."""
        shutil.rmtree(spec.output_dir, ignore_errors=True)


def _paths(value: Any) -> Iterator[Path]:
    """Yield every path in a job's specification."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _paths(item)


def plain(value: Any) -> Any:
    """Return figures as JSON can hold them: a number that is not finite becomes null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
