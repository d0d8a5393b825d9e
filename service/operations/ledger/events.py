"""The event feed: appended in the transaction that it tells of, read by a cursor that misses nothing."""

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func, insert, select, text
from sqlalchemy.orm import Session

from contract.wire.events import Event, EventPage
from service.operations.ledger import row_events
from service.operations.ledger.clock import A_DAY, now, patient
from service.persistence.tables import ClientRow, EventRow, RoundRow

KEPT, KEPT_DAYS = 100_000, 90.0
"""The newest events, none older."""
_DETAIL = 2000
_TEXT = 4000


def append(session: Session) -> bool:
    """Write what the transaction has to tell; the last thing before its commit. Return whether there was anything.

    On PostgreSQL a sequence's numbers can become visible out of order: a reader that has seen 6 would never see a 5
    that commits later. So whoever has events takes turns from the number to the commit. The lock is the last one that a
    transaction takes, and the table has no foreign keys (which would lock rows), or two could wait for each other.
    """
    if session.info.get(row_events.NOTES) is None:
        return False
    session.flush()
    items = session.info[row_events.NOTES]
    if not items:
        return False
    moment = now()
    rows = [
        {
            "at": moment,
            "kind": item.kind,
            "federation_id": row_events.federation_of(session, item.row),
            "data": _plain(row_events.describe(session, item)),
        }
        for item in items
    ]
    _insert(session, rows)
    return True


def refused(session: Session, client_id: str, round_id: str | None, problem: str, detail: str) -> None:
    """Tell that a client's update was refused."""
    client, round_ = session.get_one(ClientRow, client_id), session.get(RoundRow, round_id)
    known = round_ is not None and round_.federation_id == client.federation_id
    where = {"round_id": round_.id, "round": round_.index} if round_ is not None and known else {}
    row_events.note(session, "update.refused", client, problem=problem, detail=detail[:_DETAIL], **where)


def _insert(session: Session, rows: list[dict[str, Any]]) -> None:
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(815002)"))
    session.execute(insert(EventRow), rows)  # one after another: the order of the numbers is the order of the list


def _plain(value: Any) -> Any:
    """Return JSON that every database and every reader takes: no NaN, no NUL, no endless text."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str):
        return value[:_TEXT].replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return value


@dataclass(frozen=True)
class Batch:
    """Events after a position, and the position that they lead to."""

    events: list[Event]
    position: int


def _wire(row: EventRow) -> Event:
    return Event(sequence=row.sequence, at=row.at, kind=row.kind, federation_id=row.federation_id, data=row.data)


def head(session: Session) -> int:
    """Return the newest number, 0 before the first."""
    return session.scalar(select(func.max(EventRow.sequence))) or 0


def read(session: Session, after: int, limit: int, federation_id: str | None = None) -> Batch:
    """Return up to `limit` events after a position.

    The newest number is read first: everything up to it is visible to the second look, so a short page leads there.
    """
    newest = head(session)
    query = select(EventRow).where(EventRow.sequence > after)
    if federation_id is not None:
        query = query.where(EventRow.federation_id == federation_id)
    found = [_wire(row) for row in session.scalars(query.order_by(EventRow.sequence).limit(limit))]
    last = found[-1].sequence if found else after
    return Batch(found, last if len(found) == limit else max(last, newest))


def before_newest(session: Session, count: int, federation_id: str | None = None) -> int:
    """Return the position from which the newest `count` events follow."""
    newest = head(session)
    if count == 0:
        return newest
    query = select(EventRow.sequence)
    if federation_id is not None:
        query = query.where(EventRow.federation_id == federation_id)
    numbers = list(session.scalars(query.order_by(EventRow.sequence.desc()).limit(count)))
    return numbers[-1] - 1 if numbers else newest


def page(session: Session, after: int, limit: int, federation_id: str | None) -> EventPage:
    """Return a page for a program that polls."""
    batch = read(session, after, limit, federation_id)
    return EventPage(items=batch.events, next=batch.position, missed=missed(session, after))


def missed(session: Session, after: int) -> bool:
    """Whether retention has dropped events after this position."""
    oldest = session.scalar(select(func.min(EventRow.sequence)))
    return oldest is not None and 0 < after < oldest - 1


def forget(session: Session, most: int = KEPT, days: float = KEPT_DAYS) -> None:
    """Drop events that are too old, and the oldest ones of too many; the newest one stays and keeps the count.

    Too old is what is older than the first one that is not: an event that a wrong clock put long ago takes no other
    ones with it.
    """
    newest, since = head(session), patient(now(), A_DAY) - timedelta(days=days)
    kept = session.scalar(select(func.min(EventRow.sequence)).where(EventRow.at >= since))
    first = max(newest - most + 1, newest if kept is None else kept)
    session.execute(delete(EventRow).where(EventRow.sequence < first, EventRow.sequence < newest))
