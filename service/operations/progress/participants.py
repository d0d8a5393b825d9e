"""Participants of a round: what they say while they train, and who has gone silent."""

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from sqlalchemy import Select, bindparam, case, func, select
from sqlalchemy.orm import Session, aliased

from contract.federation import FederationConfig
from contract.groups import original
from contract.wire.devices import Heartbeat
from service.domain import rounds as rules
from service.domain import selection
from service.domain.buffered import Work
from service.operations.ledger.clock import is_due, now, patient
from service.operations.progress import buffered, reading
from service.persistence.tables import ClientRow, FederationRow, ParticipantRow, RoundRow, SecureMemberRow, UpdateRow

_HELD = "potstill.held"


def is_unfetched(session: Session, round_id: str, client_id: str, beats: bool) -> bool:
    """Whether a participant was not yet told to train, or is awaited anew: it was lost, or will beat from now on.

    Args:
        round_id: as it was told: of a round, or of a further work from its model.
    """
    work = Work.read(round_id)
    row = session.get(ParticipantRow, (work.round_id, client_id))
    if row is None:  # where rounds do not wait, whoever is told to train takes part
        return session.get_one(RoundRow, work.round_id).buffered
    return row.fetched_at is None or (beats and _awaited_anew(row))


def _awaited_anew(row: ParticipantRow) -> bool:
    return row.silent_at is None or row.lost_at is not None


def note_fetched(session: Session, round_id: str, client_id: str, beats: bool) -> None:
    """Record that a client was told to train; the first time counts.

    One that sends heartbeats (`beats`) is to send the first one within the silence that makes a device lost: it may
    have died before.
    """
    work, moment = Work.read(round_id), now()
    round_ = session.get_one(RoundRow, work.round_id)
    federation = session.get_one(FederationRow, round_.federation_id)
    if round_.buffered:
        buffered.note_fetched(session, work, client_id)
    row = _locked(session, round_.id, client_id)
    row.fetched_at = row.fetched_at or moment
    if beats and _awaited_anew(row):
        row.silent_at, row.lost_at = moment + rules.silent_after(reading.config_of(federation).rounds), None


def is_worth_writing(row: ParticipantRow, config: FederationConfig) -> bool:
    """Whether a heartbeat says more than the one before: devices that send too many cost no writes."""
    gap = timedelta(seconds=config.rounds.heartbeat_seconds / 2)
    return row.lost_at is not None or is_due(row.heard_at, gap, now())


def hear(session: Session, row: ParticipantRow, beat: Heartbeat, config: FederationConfig) -> None:
    """Record that a client trains, and how far it is; one that was lost is back, unless it beats and does not move."""
    moment, told = now(), beat.model_dump(exclude_none=True)
    row.fetched_at = row.fetched_at or moment
    row.heard_at = moment
    if row.moved_at is None or _moves(row.progress, told):
        row.moved_at = moment
    row.progress = told
    row.silent_at = moment + rules.silent_after(config.rounds)
    stuck = rules.stuck_after(beat)
    if stuck is not None:
        row.silent_at = min(row.silent_at, row.moved_at + stuck)
    if row.silent_at > moment:
        row.lost_at = None


def _moves(before: dict[str, Any] | None, told: dict[str, Any]) -> bool:
    """Whether a heartbeat tells of another place than the one before."""
    return any((before or {}).get(name) != told.get(name) for name in ("epoch", "step", "passes"))


def answered(session: Session, round_id: str, client_id: str) -> None:
    """Stop listening for a client whose update is here."""
    row = _locked(session, round_id, client_id)
    row.silent_at = row.lost_at = None


def hold(session: Session, those: Collection[tuple[str, str]]) -> None:
    """Lock several participants, (round, client), for this transaction, whose rows are kept (`reading.keep_rows`).

    In one order: no two transactions wait crosswise.
    """
    clients_of: dict[str, set[str]] = {}
    for round_id, client_id in those:
        clients_of.setdefault(round_id, set()).add(client_id)
    held: set[tuple[str, str]] = session.info.setdefault(_HELD, set())
    for round_id, client_ids in sorted(clients_of.items()):
        mine = ParticipantRow.round_id == round_id, ParticipantRow.client_id.in_(client_ids)
        query = select(ParticipantRow).where(*mine).order_by(ParticipantRow.client_id).with_for_update()
        held |= {(round_id, row.client_id) for row in session.scalars(query)}


def _locked(session: Session, round_id: str, client_id: str) -> ParticipantRow:
    """Return a participant as it is now, locked for this transaction."""
    key = (round_id, client_id)
    if key in session.info.get(_HELD, ()):
        return session.get_one(ParticipantRow, key)
    return session.get_one(ParticipantRow, key, populate_existing=True, with_for_update=True)


def mark_lost(session: Session, round_: RoundRow) -> None:
    """Count those as lost whose heartbeats have stopped for long; twice is once."""
    if round_.buffered:
        buffered.mark_lost(session, round_)
        return
    moment = now()
    silent = select(ParticipantRow).where(
        ParticipantRow.round_id == round_.id,
        ParticipantRow.silent_at <= patient(moment),
        ParticipantRow.lost_at.is_(None),
    )
    for row in session.scalars(silent):  # row by row, so that each becomes an event
        row.lost_at = moment


def lost_without_substitute(session: Session, round_: RoundRow) -> list[ParticipantRow]:
    """Return the participants that are lost and whose place nobody has taken, in the order in which they were lost."""
    of_round = select(ParticipantRow).where(ParticipantRow.round_id == round_.id)
    taken = set(session.scalars(of_round.with_only_columns(ParticipantRow.replaces)))
    rows = session.scalars(of_round.where(ParticipantRow.lost_at.is_not(None)))
    lost = [row for row in rows if row.client_id not in taken]
    return sorted(lost, key=lambda row: (row.lost_at, row.client_id))


def substitute(
    session: Session,
    federation: FederationRow,
    round_: RoundRow,
    lost: list[ParticipantRow],
    eligible: list[ClientRow],
    config: FederationConfig,
) -> int:
    """Ask the next clients of the round's ranking in the places of lost ones; return how many were found.

    Who comes next follows from the seed and the names alone. It trains what the lost one was to train: the same
    prototype, and in a grouped federation the same group's copy.
    """
    asked = set(session.scalars(select(ParticipantRow.client_id).where(ParticipantRow.round_id == round_.id)))
    clients = {client.name: client for client in eligible}
    sizes = {name: client.num_samples for name, client in clients.items()}
    ranked = selection.ranking(federation.seed, round_.index, sizes, config.recipe.selection)
    spare, found = [clients[name] for name in ranked if clients[name].id not in asked], 0
    for row in lost:
        place = next((client for client in spare if client.prototype == original(row.prototype)), None)
        if place is None:
            continue
        spare.remove(place)
        found += 1
        session.add(
            ParticipantRow(
                round_id=round_.id,
                client_id=place.id,
                prototype=row.prototype,
                asked_at=now(),
                replaces=row.client_id,
            )
        )
    session.flush()
    return found


def _counting() -> Select[Any]:
    """Return the query of who was asked, has answered, is lost, trains, of all participants of rounds that wait.

    There an update begins from its own round's model. To say so lets databases look each one up by the key of
    (`begun_in`, `client_id`); by `round_id` SQLite reads all of the round's updates for each participant.
    """
    delivery = aliased(UpdateRow)
    here, gone = delivery.id.is_not(None), ParticipantRow.lost_at.is_not(None)
    heard = ParticipantRow.heard_at.is_not(None)
    counts: list[Any] = [
        func.count(),
        func.count(delivery.id),
        func.count(case((~here & gone, 1))),
        func.count(case((~here & ~gone & heard, 1))),
    ]
    return (
        select(*counts)
        .select_from(ParticipantRow)
        .join(ClientRow, ClientRow.id == ParticipantRow.client_id)
        .outerjoin(
            delivery,
            (delivery.begun_in == ParticipantRow.round_id)
            & (delivery.client_id == ParticipantRow.client_id)
            & (delivery.round_id == ParticipantRow.round_id),
        )
        .where(ClientRow.revoked_at.is_(None) | here)
    )


def _view(*, sharing: bool) -> Select[Any]:
    """Return the query of `round_view`; it is put together once, which takes longer than to run it."""
    round_id: Any = bindparam("round")
    query = _counting().where(ParticipantRow.round_id == round_id)
    if not sharing:
        return query
    shared = select(SecureMemberRow.client_id).where(
        SecureMemberRow.round_id == round_id, SecureMemberRow.sealed.is_not(None)
    )
    return query.where(ParticipantRow.client_id.in_(shared))


_VIEW, _VIEW_SHARING = _view(sharing=False), _view(sharing=True)


def counted(session: Session, round_ids: Collection[str]) -> dict[str, tuple[int, int, int]]:
    """Return round id -> how many were asked, have answered, are lost, of rounds that wait; see `round_view`.

    A round that has no participants is not in it.
    """
    of_rounds = _counting().add_columns(ParticipantRow.round_id).group_by(ParticipantRow.round_id)
    rows = session.execute(of_rounds.where(ParticipantRow.round_id.in_(round_ids)))
    return {id_: (asked, answered, lost) for asked, answered, lost, _, id_ in rows}


def round_view(session: Session, round_: RoundRow, *, sharing: bool = False) -> rules.RoundView:
    """Return what the rules look at, counted by the database: it is asked with every update.

    A revoked client that has not answered is no longer waited for; with `sharing`, nor is one that did not share its
    secrets in a secure round.
    """
    if round_.buffered:
        return buffered.view_of(session, session.get_one(FederationRow, round_.federation_id), round_)
    query = _VIEW_SHARING if sharing else _VIEW
    asked, answered, lost, training = session.execute(query, {"round": round_.id}).one()
    return rules.RoundView(
        asked=asked,
        answered=answered,
        needed=round_.needed,
        min_updates=round_.min_updates,
        deadline_at=round_.deadline_at,
        lost=lost,
        training=training,
        extensions=round_.extensions,
        waits=round_.waits_for is not None,
    )
