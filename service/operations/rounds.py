"""Rounds as they are shown, and closed by hand."""

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.wire import rounds as wire
from service.domain.errors import DomainError, not_found
from service.operations import lifecycle
from service.operations.paging import page
from service.persistence.tables import ClientRow, FederationRow, JobRow, ParticipantRow, RoundRow, UpdateRow


def get(session: Session, round_id: str) -> RoundRow:
    """Return a round, or refuse with not-found."""
    row = session.get(RoundRow, round_id)
    if row is None:
        raise not_found("round", round_id)
    return row


def close(session: Session, round_id: str, force: bool, max_attempts: int) -> RoundRow:
    """Fuse a round now with what has arrived.

    Raises:
        DomainError: too-few-updates, unless forced; invalid-transition.
    """
    round_ = get(session, round_id)
    federation = lifecycle.locked(session, round_.federation_id)
    session.refresh(round_)
    view = lifecycle.round_view(session, round_)
    if round_.state == "collecting" and (view.answered == 0 or (view.answered < view.min_updates and not force)):
        remedy = "wait for one" if view.answered == 0 else "add ?force=true to fuse them all the same"
        raise DomainError(
            "too-few-updates",
            f"{view.answered} of {view.min_updates} updates are here; {remedy}",
            answered=view.answered,
            min_updates=view.min_updates,
        )
    lifecycle.close(session, federation, round_, max_attempts)
    return round_


def _values(session: Session, row: RoundRow) -> dict[str, Any]:
    view = lifecycle.round_view(session, row)
    job = session.scalars(select(JobRow.id).where(JobRow.round_id == row.id).order_by(JobRow.id.desc())).first()
    return {
        "id": row.id,
        "federation_id": row.federation_id,
        "index": row.index,
        "state": row.state,
        "asked": view.asked,
        "answered": view.answered,
        "needed": row.needed,
        "min_updates": row.min_updates,
        "opened_at": row.opened_at,
        "deadline_at": row.deadline_at,
        "closed_at": row.closed_at,
        "published_at": row.published_at,
        "reason": row.reason,
        "job_id": job,
        "base_models": row.base_models,
        "models": row.models,
        "metrics": row.metrics,
    }


def describe(session: Session, row: RoundRow) -> wire.RoundDetail:
    """Return a round with its participants."""
    asked = session.execute(
        select(ClientRow, ParticipantRow, UpdateRow)
        .join(ParticipantRow, ParticipantRow.client_id == ClientRow.id)
        .outerjoin(UpdateRow, (UpdateRow.client_id == ClientRow.id) & (UpdateRow.round_id == row.id))
        .where(ParticipantRow.round_id == row.id)
        .order_by(ClientRow.name)
    )
    weights = row.metrics.get("weights", {})
    teachers = row.metrics.get("teacher_weights", {})
    participants = [
        wire.Participant(
            client_id=client.id,
            name=client.name,
            prototype=participant.prototype,
            answered_at=update.received_at if update else None,
            num_samples=update.num_samples if update else None,
            weight=weights.get(client.name),
            teacher_weight=teachers.get(client.name),
            metrics=update.metrics if update else None,
        )
        for client, participant, update in asked
    ]
    return wire.RoundDetail.model_validate(_values(session, row) | {"participants": participants})


def listing(
    session: Session, federation: FederationRow, limit: int, after: str | None
) -> tuple[list[wire.Round], str | None]:
    """Return a page of a federation's rounds."""
    query = select(RoundRow).where(RoundRow.federation_id == federation.id)
    rows, following = page(session, query, RoundRow.id, limit, after)
    return [wire.Round.model_validate(_values(session, row)) for row in rows], following
