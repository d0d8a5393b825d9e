"""Federations for which time has passed: a deadline, or the patience with a silent device."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.operations.ledger.clock import now, patient
from service.operations.progress import lifecycle, reading
from service.persistence.tables import (
    FederationRow,
    ParticipantRow,
    RoundRow,
)


def due(session: Session) -> list[str]:
    """Return the federations for which a deadline has passed or a device has gone silent, in a fixed order."""
    moment = patient(now())
    rounds = (
        select(FederationRow.id)
        .join(RoundRow, RoundRow.federation_id == FederationRow.id)
        .where(
            FederationRow.state == "running",
            RoundRow.state == "collecting",
            RoundRow.deadline_at <= moment,
            RoundRow.waits_for.is_(None),
        )
    )
    phases = (
        select(FederationRow.id)
        .join(RoundRow, RoundRow.federation_id == FederationRow.id)
        .where(FederationRow.state == "running", RoundRow.state == "collecting", RoundRow.secure_until <= moment)
    )
    silent = (
        select(FederationRow.id)
        .join(RoundRow, RoundRow.federation_id == FederationRow.id)
        .join(ParticipantRow, ParticipantRow.round_id == RoundRow.id)
        .where(
            FederationRow.state == "running",
            (RoundRow.state == "collecting") | RoundRow.buffered,
            ParticipantRow.silent_at <= moment,
            ParticipantRow.lost_at.is_(None),
        )
    )
    stages = select(FederationRow.id).where(
        FederationRow.state.in_(("training_generator", "collecting_discriminators")),
        FederationRow.collect_deadline_at <= moment,
    )
    return sorted({id_ for query in (rounds, phases, silent, stages) for id_ in session.scalars(query)})


def proceed(session: Session, federation_id: str) -> None:
    """Let a federation do what has become due."""
    lifecycle.proceed(session, reading.locked(session, federation_id))
