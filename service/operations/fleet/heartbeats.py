"""Heartbeats: a device says while it trains that it is alive and how far."""

from sqlalchemy.orm import Session

from contract.wire.devices import Heartbeat, HeartbeatReceipt
from service.domain.buffered import Work
from service.domain.errors import DomainError, not_found
from service.domain.principal import Principal
from service.operations.fleet import clients, updates
from service.operations.progress import buffered, participants, reading
from service.persistence.tables import FederationRow, ParticipantRow, RoundRow, UpdateRow


def admit(session: Session, round_id: str, principal: Principal) -> bool:
    """Say whether a heartbeat is worth a write; most come in time to tell nothing new.

    Raises:
        DomainError: not-found, forbidden, not-selected, round-closed.
    """
    work = Work.read(round_id)
    round_, participant = _places(session, work.round_id, principal)
    if _answer(session, work, participant.client_id) is not None:
        return False
    updates.refuse_if_closed(session, round_, participant, work)
    config = reading.config_for(session, round_)
    return participants.is_worth_writing(participant, config)


def _places(session: Session, round_id: str, principal: Principal) -> tuple[RoundRow, ParticipantRow]:
    round_ = session.get(RoundRow, round_id)
    if round_ is None:
        raise not_found("round", round_id)
    principal.need_federation(round_.federation_id)
    participant = session.get(ParticipantRow, (round_id, principal.id))
    if participant is None:
        raise DomainError("not-selected", f"this client was not asked in round {round_.index}; wait for an assignment")
    return round_, participant


def _answer(session: Session, work: Work, client_id: str) -> UpdateRow | None:
    return updates.update_of(session, work.round_id, client_id, work.turn)


def record(session: Session, round_id: str, client_id: str, beat: Heartbeat) -> None:
    """Write a heartbeat down, unless the client has answered or the round has closed meanwhile."""
    work = Work.read(round_id)
    round_ = session.get_one(RoundRow, work.round_id)
    reading.locked(session, round_.federation_id)
    session.refresh(round_)
    clients.still_enrolled(session, client_id)
    participant = session.get_one(ParticipantRow, (round_.id, client_id), populate_existing=True)
    if (round_.state == "collecting" or round_.buffered) and _answer(session, work, client_id) is None:
        participants.hear(session, participant, beat, reading.config_for(session, round_))
        clients.see(session, client_id)


def receipt(session: Session, round_id: str, client_id: str) -> HeartbeatReceipt:
    """Return the round as a device that trains for it needs to know it."""
    work = Work.read(round_id)
    round_ = session.get_one(RoundRow, work.round_id)
    participant = session.get_one(ParticipantRow, (round_.id, client_id))
    federation = session.get_one(FederationRow, round_.federation_id)
    return HeartbeatReceipt(
        round_id=str(work),
        round=round_.index,
        state=round_.state,
        answered=_answer(session, work, client_id) is not None,
        deadline_at=buffered.until(session, round_) if round_.buffered else round_.deadline_at,
        closes_at=updates.closes_at(federation, round_, participant),
        heartbeat_seconds=reading.config_for(session, round_).rounds.heartbeat_seconds,
    )
