"""What an operator does with a federation: start, pause, resume, cancel it, close a round by hand."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.jobs import is_aside
from service.domain.errors import DomainError
from service.domain.states import ROUND, advance
from service.operations.ledger import audit
from service.operations.ledger.clock import now
from service.operations.progress import jobs, lifecycle, participants, reading, secure
from service.operations.steer import rollback
from service.persistence.tables import (
    FederationRow,
    JobRow,
    RoundRow,
)


def start(session: Session, federation_id: str) -> FederationRow:
    """Begin: the first models are made, then rounds open as soon as enough clients are there."""
    row = reading.get_locked(session, federation_id)
    lifecycle.move(session, row, "start")
    row.started_at = now()
    audit.record(session, "federation.start", row.id, federation=row.id)
    jobs.enqueue(session, "initialize", row)
    return row


def pause(session: Session, federation_id: str) -> FederationRow:
    """Hold: a round that is being fused is still published, but no round closes or opens. Deadlines go on."""
    row = reading.get_locked(session, federation_id)
    lifecycle.move(session, row, "pause")
    audit.record(session, "federation.pause", row.id, federation=row.id)
    return row


def resume(session: Session, federation_id: str) -> FederationRow:
    """Go on. After a failed round this gives the round up and opens the next one from the same models.

    Where groups ran ahead of the failed round, their round goes on, and the main model's clients start it from the
    main model that there is.
    """
    row = reading.get_locked(session, federation_id)
    lifecycle.move(session, row, "resume")
    audit.record(session, "federation.resume", row.id, federation=row.id)
    row.error = row.detail = None
    row.skipped_rounds = 0
    for round_ in reading.open_rounds(session, row):
        if round_.state == "failed":
            lifecycle.let_go(session, round_)
    lifecycle.proceed(session, row)
    return row


def cancel(session: Session, federation_id: str) -> FederationRow:
    """End a federation for good; its models stay."""
    row = reading.get_locked(session, federation_id)
    lifecycle.move(session, row, "cancel")
    audit.record(session, "federation.cancel", row.id, federation=row.id)
    row.finished_at = now()
    for job in session.scalars(
        select(JobRow).where(JobRow.federation_id == row.id, JobRow.state.in_(("queued", "running")))
    ):
        if not is_aside(job.kind):
            jobs.withdraw(session, job)
    lifecycle.let_go_of_gan(session, row, row.gan_round)
    for round_ in reading.open_rounds(session, row):
        lifecycle.let_go(session, round_)
        if round_.state in ("collecting", "aggregating"):
            round_.state = advance(ROUND, round_.state, "fail", "round")
            round_.reason, round_.closed_at = "cancelled: the federation was cancelled", round_.closed_at or now()
    return row


def close_round(session: Session, round_id: str, force: bool) -> RoundRow:
    """Fuse a round now with what has arrived; with `force` also one that failed because that was too little.

    Raises:
        DomainError: too-few-updates, unless forced; invalid-transition, also while it waits for a model, and where a
            secure round does not take updates now.
    """
    round_ = reading.get_round(session, round_id)
    federation = reading.locked(session, round_.federation_id)
    session.refresh(round_)
    view = participants.round_view(session, round_)
    if view.waits:
        raise DomainError(
            "invalid-transition",
            f"round {round_.index} still waits for the main model of the round before; close it when that is published",
            state=round_.state,
        )
    if round_.state == "collecting" and round_.secure_phase is not None:
        secure.close_by_hand(session, federation, round_)
        audit.record(session, "round.close", round_.id, federation=federation.id, index=round_.index, force=force)
        return round_
    open_ = round_.state == "collecting" or _short(session, federation, round_)
    if open_ and (view.answered == 0 or (view.answered < view.min_updates and not force)):
        remedy = "wait for one" if view.answered == 0 else "add ?force=true to fuse them all the same"
        raise DomainError(
            "too-few-updates",
            f"{view.answered} of {view.min_updates} updates are here; {remedy}",
            answered=view.answered,
            min_updates=view.min_updates,
        )
    if round_.state == "failed" and open_:
        rollback.check_same_bases(session, federation, round_)
        lifecycle.move(session, federation, "resume")
        federation.error = federation.detail = None
    lifecycle.close(session, federation, round_, "retry" if round_.state == "failed" and open_ else "")
    audit.record(session, "round.close", round_.id, federation=federation.id, index=round_.index, force=force)
    return round_


def _short(session: Session, federation: FederationRow, round_: RoundRow) -> bool:
    """Whether a round failed at its deadline with too few updates, and its federation still waits because of it.

    A job of its own is older than its end: of one that was fused, and then collected again.
    """
    if round_.state != "failed" or federation.state != "paused" or federation.round_index != round_.index:
        return False
    fused = select(JobRow.id).where(JobRow.round_id == round_.id, JobRow.created_at >= round_.closed_at)
    return session.scalars(fused.limit(1)).first() is None
