"""The audit log: who did what, written in the transaction of the change that it reports, and never changed.

An operation calls `record`; the unit of work writes what was recorded as its last statement, so that the one lock that
orders the chain is held for a moment only and always taken last.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import delete, func, or_, select, text
from sqlalchemy.orm import Session

from contract.audit import FIRST, row_hash
from contract.wire import audit as wire
from service.domain.errors import invalid_field
from service.domain.principal import Principal
from service.infra.refusals import Refusal
from service.operations.ledger.clock import A_DAY, now, patient
from service.persistence.engine import Database
from service.persistence.tables import AuditRow

_NOTES, _ACTOR = "potstill.audit", "potstill.actor"
_LONGEST = 255


@dataclass
class Acting:
    """On whose behalf this request works. Filled in as it becomes known; the request's threads see the same one."""

    address: str = ""
    request_id: str = ""
    principal: Principal | None = None


COMMAND_LINE = Acting(address="local")
ACTING: ContextVar[Acting] = ContextVar("potstill_acting")


def acting() -> Acting:
    """Return on whose behalf this request works; outside of a request, one that nobody sees again."""
    return ACTING.get(Acting())


def act_as(session: Session, who: Acting) -> None:
    """Say who acts in a transaction that no request opened."""
    session.info[_ACTOR] = who


@contextmanager
def by_command(database: Database) -> Iterator[Session]:
    """One transaction of a command on the machine itself, with the rights of whoever may write the database."""
    with database.write() as session:
        act_as(session, COMMAND_LINE)
        yield session
        write(session)


def record(
    session: Session, action: str, target: str, federation: str | None = None, outcome: str = "done", **detail: Any
) -> None:
    """Note an action; the row is written with the change itself, or not at all.

    Args:
        action: what was done, `<thing>.<verb>`.
        target: id of the thing.
        detail: what else is worth knowing; never a secret.
    """
    given: Acting = session.info.get(_ACTOR) or acting()
    who = given.principal
    role = "command-line" if given is COMMAND_LINE else "system"
    session.info.setdefault(_NOTES, []).append(
        {
            "at": _stamp(now()),
            "actor_id": who.id if who else role,
            "actor_name": who.name if who else role,
            "role": who.role if who else role,
            "address": given.address[:_LONGEST],
            "action": action,
            "target": target[:_LONGEST],
            "federation_id": federation,
            "request_id": given.request_id,
            "outcome": outcome,
            "detail": {key: _plain(value) for key, value in detail.items() if value is not None},
        }
    )


def record_refusals(session: Session, refusals: list[Refusal]) -> None:
    """Note refused requests, summed up by who, where and why."""
    for refusal in refusals:
        act_as(session, Acting(address=refusal.address))
        detail: dict[str, Any] = {
            "reason": refusal.reason,
            "count": refusal.count,
            "first": refusal.first,
            "last": refusal.last,
        }
        record(session, "access.refused", refusal.actor, outcome="refused", **detail)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return _stamp(value)
    return value if isinstance(value, bool | int) else str(value)[:_LONGEST]


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write(session: Session) -> None:
    """Write what was noted, in order behind the newest row; the last thing that a transaction does."""
    notes: list[dict[str, Any]] = session.info.pop(_NOTES, [])
    if not notes:
        return
    session.flush()
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(815002)"))
    newest = session.execute(select(AuditRow.seq, AuditRow.hash).order_by(AuditRow.seq.desc()).limit(1)).first()
    seq, previous = (newest.seq, newest.hash) if newest else (0, FIRST)
    for note in notes:
        seq += 1
        hashed = row_hash(previous, {**note, "seq": seq})
        at = datetime.fromisoformat(note["at"])
        session.add(AuditRow(**{**note, "at": at}, seq=seq, previous_hash=previous, hash=hashed))
        previous = hashed
    session.flush()


def listing(session: Session, filters: wire.AuditFilter) -> wire.AuditPage:
    """Return a page of the log, the newest row first (`oldest_first` turns it round).

    Raises:
        DomainError: invalid-field, for a cursor that is none.
    """
    query = select(AuditRow)
    if filters.actor is not None:
        query = query.where(or_(AuditRow.actor_id == filters.actor, AuditRow.actor_name == filters.actor))
    if filters.action is not None:
        whole = not filters.action.endswith(".")
        query = query.where(
            AuditRow.action == filters.action if whole else AuditRow.action.startswith(filters.action, autoescape=True)
        )
    for column, value in (
        (AuditRow.target, filters.target),
        (AuditRow.federation_id, filters.federation),
        (AuditRow.outcome, filters.outcome),
        (AuditRow.request_id, filters.request),
    ):
        if value is not None:
            query = query.where(column == value)
    if filters.since is not None:
        query = query.where(AuditRow.at >= filters.since)
    if filters.until is not None:
        query = query.where(AuditRow.at < filters.until)
    limit, after = filters.limit, filters.after
    if after is not None:
        if not after.isdecimal() or len(after) > 18:
            raise invalid_field("after", "pass the `next` of the page before")
        query = query.where(AuditRow.seq > int(after) if filters.oldest_first else AuditRow.seq < int(after))
    order = AuditRow.seq if filters.oldest_first else AuditRow.seq.desc()
    rows = list(session.scalars(query.order_by(order).limit(limit + 1)))
    items = [wire.AuditEntry.model_validate(row, from_attributes=True) for row in rows[:limit]]
    return wire.AuditPage(items=items, next=str(items[-1].seq) if len(rows) > limit else None)


def forget(session: Session, days: int) -> int:
    """Remove rows older than so many days (30 at least: the database refuses more); the newest always stays.

    None goes before one that is younger, or a clock that was wrong for a while would leave a gap in the chain.
    """
    newest, since = select(func.max(AuditRow.seq)).scalar_subquery(), patient(now(), A_DAY)
    kept = session.scalar(select(func.min(AuditRow.seq)).where(AuditRow.at >= since - timedelta(days=max(days, 31))))
    old = delete(AuditRow).where(AuditRow.seq < (newest if kept is None else kept), AuditRow.seq < newest)
    return int(getattr(session.execute(old.execution_options(synchronize_session=False)), "rowcount", 0))


def head(session: Session) -> tuple[int, str] | None:
    """Return number and hash of the newest row: noted elsewhere, they show later that nothing before was changed."""
    newest = session.execute(select(AuditRow.seq, AuditRow.hash).order_by(AuditRow.seq.desc()).limit(1)).first()
    return None if newest is None else (newest.seq, newest.hash)
