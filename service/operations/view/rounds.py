"""Rounds as they are shown."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from contract.wire import rounds as wire
from service.domain.plans import plan_of
from service.operations.ledger import entries
from service.operations.ledger.entries import Entry
from service.operations.ledger.paging import page
from service.operations.progress import participants, reading
from service.operations.view import ensembles
from service.persistence.tables import (
    ClientRow,
    FederationRow,
    JobRow,
    ParticipantRow,
    RoundRow,
    SecureMemberRow,
    UpdateRow,
)


@dataclass(frozen=True)
class _Counts:
    """What is counted of a round: who was asked, has answered, is lost; bytes of its updates; its newest job."""

    asked: int
    answered: int
    lost: int
    size: int
    job: str | None


def _counts(session: Session, rows: Collection[RoundRow]) -> dict[str, _Counts]:
    """Return round id -> counts: of as many rounds as there are by three queries, and one more for each open buffer."""
    ids = [row.id for row in rows]
    of_jobs = select(JobRow.round_id, func.max(JobRow.id)).where(JobRow.round_id.in_(ids), JobRow.kind != "labels")
    jobs = {id_: job for id_, job, *_ in session.execute(of_jobs.group_by(JobRow.round_id))}
    of_updates = select(UpdateRow.round_id, func.count(), func.sum(UpdateRow.size)).where(UpdateRow.round_id.in_(ids))
    here = {id_: (count, int(size)) for id_, count, size in session.execute(of_updates.group_by(UpdateRow.round_id))}
    asked = participants.counted(session, [row.id for row in rows if not row.buffered])
    found: dict[str, _Counts] = {}
    for row in rows:
        count, size = here.get(row.id, (0, 0))
        people = asked.get(row.id, (0, 0, 0))
        if row.buffered and row.state == "collecting":
            view = participants.round_view(session, row)
            people = view.asked, view.answered, view.lost
        elif row.buffered:  # it waits for nobody any more
            people = count, count, 0
        found[row.id] = _Counts(*people, size, jobs.get(row.id))
    return found


def _values(session: Session, row: RoundRow, counts: _Counts) -> dict[str, Any]:
    return {
        "id": row.id,
        "federation_id": row.federation_id,
        "index": row.index,
        "state": row.state,
        "asked": counts.asked,
        "answered": counts.answered,
        "lost": counts.lost,
        "needed": row.needed,
        "min_updates": row.min_updates,
        "size": counts.size,
        "opened_at": row.opened_at,
        "deadline_at": row.deadline_at,
        "extensions": row.extensions,
        "restarts": row.restarts,
        "closed_at": row.closed_at,
        "groups_published_at": row.groups_published_at,
        "published_at": row.published_at,
        "secure": _secure(session, row, counts.answered),
        "waits_for": row.waits_for,
        "buffered": row.buffered,
        "reason": row.reason,
        "job_id": counts.job,
        "base_models": row.base_models,
        "models": row.models,
        "explained": "explain" in row.metrics.get("seconds", {}),
        "metrics": row.metrics,
    }


def _secure(session: Session, row: RoundRow, masked: int) -> dict[str, Any] | None:
    if row.secure_phase is None:
        return None
    member = SecureMemberRow
    keys, shares, signed, revealed = session.execute(
        select(
            func.count(),
            func.count(member.sealed),
            func.count(member.signature),
            func.count(member.revealed),
        ).where(member.round_id == row.id)
    ).one()
    said = {"keys": keys, "shares": shares, "masked": masked, "signed": signed, "revealed": revealed}
    return {"phase": row.secure_phase, "until": row.secure_until, **said}


def _state(client: ClientRow, row: ParticipantRow, update: UpdateRow | None) -> wire.ParticipantState:
    if update is not None:
        return "excluded" if update.excluded else "answered"
    if client.revoked_at is not None:
        return "revoked"
    if row.lost_at is not None:
        return "lost"
    return "training" if row.heard_at else "fetched" if row.fetched_at else "asked"


def _told(metrics: dict[str, Any] | None, private: bool) -> dict[str, Any] | None:
    """Return what a device told, without what it measured on its data alone where those are private."""
    if metrics is None or not private:
        return metrics
    return {name: value for name, value in metrics.items() if name != "evaluation"}


def _participant(
    row: RoundRow, client: ClientRow, asked: ParticipantRow, entry: Entry | None, private: bool
) -> wire.Participant:
    began, update = asked.asked_at or row.opened_at, None if entry is None else entry.row
    called = client.name if entry is None else entry.label
    distances = row.metrics.get("distances", {}).get(called, {})
    answer: dict[str, Any] = {}
    if update is not None:
        answer = {
            "answered_at": update.received_at,
            "seconds": round(max(0.0, (update.received_at - began).total_seconds()), 3),
            "size": update.size,
            "digest": update.digest,
            "num_samples": update.num_samples,
            "excluded": update.excluded,
            "metrics": _told(update.metrics, private),
        }
    if entry is not None and row.buffered:
        factor = row.metrics.get("staleness", {}).get(called, {}).get("factor")
        answer |= {"label": called, "base_model": entry.base, "staleness": entry.staleness, "factor": factor}
    return wire.Participant(
        client_id=client.id,
        name=client.name,
        prototype=asked.prototype,
        state=_state(client, asked, update),
        asked_at=began,
        fetched_at=asked.fetched_at,
        heard_at=asked.heard_at,
        moved_at=asked.moved_at,
        progress=asked.progress,
        replaces=asked.replaces,
        weight=row.metrics.get("weights", {}).get(called),
        distance=distances.get("relative"),
        norm_ratio=distances.get("norm_ratio"),
        outlier=row.metrics.get("outliers", {}).get(called),
        teacher_weight=row.metrics.get("teacher_weights", {}).get(called),
        **answer,
    )


def _asked(session: Session, row: RoundRow) -> list[tuple[ClientRow, ParticipantRow, Entry | None]]:
    """Return who was asked in a round and what came, in the order of names; several times who gave several updates.

    Of a buffer, those are asked who began from its model; whose update counts elsewhere is shown there.
    """
    given = defaultdict[str, list[Entry]](list)
    for each in entries.of_round(session, row):
        given[each.client.id].append(each)
    elsewhere = set(
        session.scalars(select(UpdateRow.client_id).where(UpdateRow.begun_in == row.id, UpdateRow.round_id != row.id))
    )
    asked = session.execute(
        select(ClientRow, ParticipantRow)
        .join(ParticipantRow, ParticipantRow.client_id == ClientRow.id)
        .where(ParticipantRow.round_id == row.id)
        .order_by(ClientRow.name)
    )
    found: list[tuple[ClientRow, ParticipantRow, Entry | None]] = []
    for client, participant in asked:
        found += [(client, participant, entry) for entry in given[client.id]]
        if not given[client.id] and client.id not in elsewhere:
            found.append((client, participant, None))
    return found


def describe(session: Session, row: RoundRow) -> wire.RoundDetail:
    """Return a round with its participants."""
    config = reading.config_for(session, row)
    private = config.local.privacy is not None
    listed = _asked(session, row)
    participants = [_participant(row, client, participant, entry, private) for client, participant, entry in listed]
    more = {"participants": participants, "plan": plan_of(config), "ensemble": ensembles.reference(session, row)}
    return wire.RoundDetail.model_validate(_values(session, row, _counts(session, [row])[row.id]) | more)


def listing(
    session: Session, federation: FederationRow, limit: int, after: str | None, newest_first: bool = False
) -> tuple[list[wire.Round], str | None]:
    """Return a page of a federation's rounds."""
    query = select(RoundRow).where(RoundRow.federation_id == federation.id)
    rows, following = page(session, query, RoundRow.id, limit, after, newest_first)
    counts = _counts(session, rows)
    return [wire.Round.model_validate(_values(session, row, counts[row.id])) for row in rows], following
