"""Rounds that do not wait: which model a device begins from, which buffer takes its update, and how old that is.

A buffer is a round that asks nobody. It opens when the one before closes, and while that is fused devices go on from
the model before; so a round's base models are what its works began from, and an update may count in a later one.
"""

from collections import Counter
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from contract.wire.plans import Buffering
from service.domain import buffered as rules
from service.domain.buffered import Work
from service.domain.errors import DomainError
from service.domain.rounds import RoundView
from service.operations.ledger.clock import now, patient
from service.operations.ledger.entries import between
from service.operations.ledger.upserts import inserting
from service.operations.progress import reading
from service.persistence.tables import ClientRow, FederationRow, ParticipantRow, RoundRow, UpdateRow


def plan_of(session: Session, round_: RoundRow) -> Buffering:
    """Return how a buffered round goes."""
    found = reading.config_for(session, round_).rounds.buffering
    assert found is not None
    return found


# ------------------------------------------------------------------------------------------------------------- devices
def source_of(session: Session, newest: RoundRow) -> RoundRow | None:
    """Return the round whose base models devices begin from now; None where there is none that collects."""
    if newest.state != "collecting":
        return None
    return newest if newest.waits_for is None else session.get_one(RoundRow, newest.waits_for)


def given(session: Session, round_: RoundRow, client_id: str) -> int:
    """Return how many of a buffer's updates are a client's."""
    mine = select(func.count()).where(UpdateRow.round_id == round_.id, UpdateRow.client_id == client_id)
    return session.scalar(mine) or 0


def turn_of(session: Session, source: RoundRow, client_id: str) -> int:
    """Return how many updates a client has given that began from a round's model."""
    mine = select(func.count()).where(UpdateRow.begun_in == source.id, UpdateRow.client_id == client_id)
    return session.scalar(mine) or 0


def target_of(session: Session, work: Work, model: str) -> RoundRow:
    """Return the buffer that takes a piece of work's update now.

    Raises:
        DomainError: round-closed, where none is open; stale-base-model, where its model is too old.
    """
    begun = session.get_one(RoundRow, work.round_id)
    federation = session.get_one(FederationRow, begun.federation_id)
    newest = reading.newest_round(session, federation)
    assert newest is not None
    current = {"current_round": newest.index, "current_round_id": newest.id}
    if federation.state not in ("running", "paused") or newest.state != "collecting" or not newest.buffered:
        why = f"the federation is {federation.state}, and round {newest.index} {newest.state}"
        raise DomainError("round-closed", f"no buffer is open: {why}", round=begun.index, state=begun.state, **current)
    versions, turned_back = between(session, begun, newest)
    age, oldest = rules.staleness(model, versions), plan_of(session, newest).max_staleness
    if turned_back or age > oldest:
        why = f"was replaced {age} times since, and at most {oldest} count"
        why = "was turned back since" if turned_back else why
        raise DomainError(
            "stale-base-model",
            f"the model that the update began from {why}; fetch the newest and train from it",
            staleness=age,
            max_staleness=oldest,
            **current,
        )
    return newest


def until(session: Session, begun: RoundRow) -> datetime:
    """Return when an update that begins now is too old for certain: each buffer is open for its deadline at most."""
    plan = reading.config_for(session, begun).rounds
    assert plan.buffering is not None
    return now() + timedelta(seconds=plan.deadline_seconds * (plan.buffering.max_staleness + 1))


def take_part(session: Session, target: RoundRow, begun: ParticipantRow) -> None:
    """Note a client among those of the buffer that takes its update."""
    _note(session, target.id, begun.client_id, begun.prototype, begun.asked_at, begun.fetched_at)


def _note(
    session: Session, round_id: str, client_id: str, prototype: str, asked: datetime | None, fetched: datetime | None
) -> None:
    """Note a client among those of a round, unless it is: another request of its may have done so at this moment."""
    values = {"round_id": round_id, "client_id": client_id, "prototype": prototype}
    made = inserting(session, ParticipantRow).values(**values, asked_at=asked, fetched_at=fetched)
    session.execute(made.on_conflict_do_nothing())


def note_fetched(session: Session, work: Work, client_id: str) -> None:
    """Note a client among those of the round that it begins from; what it did before is no longer awaited.

    A device does one thing at a time.
    """
    moment, client = now(), session.get_one(ClientRow, client_id)
    _note(session, work.round_id, client_id, client.prototype, moment, moment)
    if work.turn:
        row = session.get_one(ParticipantRow, (work.round_id, client_id))
        row.fetched_at = row.asked_at = moment
    mine = ParticipantRow.client_id == client_id, ParticipantRow.round_id != work.round_id
    for other in _awaited(session, session.get_one(RoundRow, work.round_id), *mine):
        other.silent_at = other.lost_at = None


def _awaited(session: Session, round_: RoundRow, *which: ColumnElement[bool]) -> list[ParticipantRow]:
    """Return works of a federation's buffers that are awaited: of devices that beat and have not answered."""
    query = (
        select(ParticipantRow)
        .join(RoundRow, RoundRow.id == ParticipantRow.round_id)
        .where(RoundRow.federation_id == round_.federation_id, RoundRow.buffered, ParticipantRow.silent_at.is_not(None))
    )
    return list(session.scalars(query.where(*which)))


def mark_lost(session: Session, round_: RoundRow) -> None:
    """Count those as lost whose heartbeats have stopped for long, whichever model they began from; twice is once."""
    moment = now()
    for row in _awaited(session, round_, ParticipantRow.silent_at <= patient(moment), ParticipantRow.lost_at.is_(None)):
        row.lost_at = moment


# ------------------------------------------------------------------------------------------------------------- closing
def view_of(session: Session, federation: FederationRow, round_: RoundRow) -> RoundView:
    """Return what the rules look at: of a buffer, what everybody together can still give stands for who was asked."""
    rows = session.execute(
        select(ClientRow.id, ClientRow.revoked_at.is_(None), func.count())
        .join(UpdateRow, UpdateRow.client_id == ClientRow.id)
        .where(UpdateRow.round_id == round_.id)
        .group_by(ClientRow.id, ClientRow.revoked_at)
    ).all()
    answered = sum(count for _, _, count in rows)
    here = Counter({client: count for client, live, count in rows if live})
    more, lost = 0, 0
    if round_.state == "collecting":
        per_client = plan_of(session, round_).per_client
        more = max(0, per_client * reading.eligible_count(session, federation) - here.total())
        silent = {row.client_id for row in _awaited(session, round_, ParticipantRow.lost_at.is_not(None))}
        gone = set(
            session.scalars(select(ClientRow.id).where(ClientRow.id.in_(silent), ClientRow.revoked_at.is_(None)))
        )
        lost = min(more, sum(per_client - here[client] for client in gone))
    return RoundView(
        asked=answered + more,
        answered=answered,
        needed=round_.needed,
        min_updates=round_.min_updates,
        deadline_at=round_.deadline_at,
        lost=lost,
        extensions=round_.extensions,
        waits=round_.waits_for is not None,
    )


def begun_models(session: Session, federation: FederationRow, needed: list[str]) -> set[str]:
    """Return the models that works began from whose updates may still come, or are here and not yet fused.

    Args:
        needed: ids of the rounds whose updates are to be fused.
    """
    newest = reading.newest_round(session, federation)
    if newest is None or not newest.buffered:
        return set()
    here = set(session.scalars(select(UpdateRow.base_model).where(UpdateRow.round_id.in_(needed))))
    oldest, replaced = plan_of(session, newest).max_staleness, Counter[str]()
    query = select(RoundRow).where(RoundRow.federation_id == federation.id).order_by(RoundRow.index.desc())
    for round_ in session.scalars(query):
        replaced.update(list(round_.models))
        if round_.state == "aggregating":
            replaced.update(list(round_.base_models))
        fresh = {id_ for name, id_ in round_.base_models.items() if replaced[name] <= oldest}
        if round_.base_models and not fresh:
            break
        here |= fresh
    return here
