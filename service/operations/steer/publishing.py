"""How a job ends: its result is published, it has failed or was cancelled; and how it is tried again."""

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy.orm import Session

from contract.jobs import fails_alone, is_aside
from contract.wire.federations import TERMINAL_STATES
from service.domain.errors import DomainError, invalid_field
from service.infra.blobs import BlobFault
from service.operations.ledger import after_commit, audit, locks, row_events
from service.operations.progress import jobs, lifecycle, reading, sharing
from service.operations.steer import exclusions, resend, rollback
from service.operations.steer.job_kinds import ENDINGS
from service.operations.store import provenance
from service.operations.store.faults import Use, explain
from service.operations.store.outcome import Outcome
from service.persistence.tables import EnsembleMemberRow, FederationRow, JobRow, PredictionRow


def publish(session: Session, job_id: str, fence: int, outcome: Outcome) -> None:
    """Make a job's result visible, all of it or nothing. What retention no longer keeps goes afterwards.

    Raises:
        LostLease: the caller no longer holds the job; nothing changes.
    """
    locks.hold_blobs(session)
    job = jobs.held(session, job_id, fence)
    federation = reading.locked(session, job.federation_id)
    made = {digest for digest, _ in outcome.files.values()} | outcome.member_digests
    if job.cancel_requested:  # the wish came first: nothing of the result is kept
        after_commit.release_blobs(session, made)
        cancelled(session, job)
        return
    job.peak_memory_bytes = outcome.peak_memory_bytes
    job.resumed_from = outcome.resumed_from
    job.device = outcome.device or job.device
    jobs.end(job, "finish")
    if federation.state in TERMINAL_STATES and not is_aside(job.kind):
        after_commit.release_blobs(session, made)
        return
    if job.kind != "labels":  # which makes nothing that stays
        outcome = replace(outcome, provenance_id=provenance.record(session, federation, job, outcome))
    ENDINGS[job.kind].publish(session, federation, job, outcome)
    session.flush()
    if not fails_alone(job.kind):
        lifecycle.proceed(session, federation)
        session.flush()


def give_up(session: Session, job: JobRow, error: str, detail: str) -> None:
    """Record that a job has failed for good: its round fails, its federation pauses or, before the first round, fails.

    The current models stay as they are. `retry` of the job takes everything up again.
    """
    federation = reading.locked(session, job.federation_id)
    job.error, job.detail = error, detail[:2000]
    if job.state == "running":
        jobs.end(job, "fail")
    if fails_alone(job.kind):
        ENDINGS[job.kind].fail(session, federation, job, f"{error}: {detail}")
        return
    if federation.state in TERMINAL_STATES:
        return
    federation.error, federation.detail = error, detail[:2000]
    ENDINGS[job.kind].fail(session, federation, job, f"{error}: {detail}")


def spoilt(session: Session, job: JobRow, faults: Sequence[tuple[BlobFault, Sequence[Use]]]) -> None:
    """End a job whose inputs are damaged or missing.

    Whoever sent them is asked again, where the federation can still wait; else it has failed and says whose they are. A
    job whose inputs nobody needs any more is told anew what it reads.
    """
    federation = reading.locked(session, job.federation_id)
    sharing.lose(session, {fault.digest for fault, _ in faults})
    if fails_alone(job.kind):
        fault, uses = faults[0]
        give_up(session, job, f"blob_{fault.state}", explain(fault, list(uses)))
        return
    ours = [(fault, [use for use in uses if _is_of(session, use, federation)]) for fault, uses in faults]
    needed = [(fault, uses) for fault, uses in ours if uses]
    if not needed:
        fault = faults[0][0]
        if not jobs.release(session, job, f"blob_{fault.state}", str(fault)):
            give_up(session, job, f"blob_{fault.state}", f"{fault} (after {job.attempt} attempts)")
        return
    code = "blob_damaged" if any(fault.state == "damaged" for fault, _ in needed) else "blob_missing"
    lost = [use for _, uses in needed for use in uses]
    titles = ", ".join(f"the file of {use.title} is {fault.state}" for fault, uses in needed for use in uses)
    if resend.ask_again(session, federation, lost, f"{titles}; asked for again"):
        job.error, job.detail = code, f"{titles}; asked for again"[:2000]
        jobs.end(job, "fail")
        lifecycle.proceed(session, federation)
        return
    remedies = "; ".join(dict.fromkeys(use.remedy for use in lost))
    give_up(session, job, code, f"{titles}: {remedies}")
    resend.score_again(session, federation, lost)


def _is_of(session: Session, use: Use, federation: FederationRow) -> bool:
    """Whether something belongs to a federation, or to nobody, as imported models and data sets do.

    Ensembles and predictions are of no use to a job that makes models, whatever they have in common with its inputs.
    """
    if isinstance(use.row, EnsembleMemberRow | PredictionRow):
        return False
    return row_events.federation_of(session, use.row) in (None, federation.id)


def request_cancel(session: Session, job: JobRow) -> None:
    """Do an operator's wish: end a queued job at once; ask the worker of a running one, which looks every second.

    Asking twice is asking once.
    """
    reading.locked(session, job.federation_id)
    job = jobs.fresh(session, job)
    audit.record(session, "job.cancel", job.id, federation=job.federation_id, kind=job.kind)
    if job.state == "running":
        job.cancel_requested = True
    else:
        cancelled(session, job)


def cancelled(session: Session, job: JobRow) -> None:
    """End a job that an operator does not want, in its worker's name. What it was for waits for a retry."""
    reading.locked(session, job.federation_id)
    jobs.end(job, "cancel")
    give_up(session, job, "cancelled", "cancelled by an operator; retry the job to go on")


def revive(session: Session, job: JobRow, exclude: Sequence[str] = (), force: bool = False) -> None:
    """Retry a failed job and put its round and federation back to where they were.

    Args:
        exclude: names or ids of clients whose updates are left out from now on.
        force: also when fewer than `min_updates` are left.

    Raises:
        DomainError: invalid-transition, when its federation is over or went on without it; invalid-field and
            too-few-updates, for what is to be left out.
    """
    locks.hold_blobs(session)  # a kind's `retry` may name blobs again; the lock comes before the federation's
    federation = reading.locked(session, job.federation_id)
    job = jobs.fresh(session, job)
    if federation.state in ("cancelled", "finished") and not is_aside(job.kind):
        raise DomainError("invalid-transition", f"its federation is {federation.state}", state=federation.state)
    rounds = {round_.id: round_ for round_ in reading.open_rounds(session, federation)}
    round_ = None if job.round_id is None else rounds.get(job.round_id)
    if job.round_id is not None and round_ is None:
        newest = max(each.index for each in rounds.values())
        raise DomainError("invalid-transition", f"the federation went on to round {newest}", state=job.state)
    if exclude and round_ is None:
        raise invalid_field("exclude", f"a job of kind {job.kind!r} fuses no updates")
    jobs.requeue(session, job)
    audit.record(session, "job.retry", job.id, federation=federation.id, kind=job.kind, without=len(exclude))
    if round_ is not None:
        rollback.check_same_bases(session, federation, round_)
        rollback.take_back(session, federation, round_, exclusions.exclude(session, round_, exclude, force))
    ENDINGS[job.kind].retry(session, federation, job)
    if not fails_alone(job.kind):
        federation.error = federation.detail = None
