"""What is stored of moments is put right after the clock went back or ahead: one table of them, and two rules.

Nothing that this service grants lies further ahead than it can have been granted for (`Granted`), and nothing that
happened lies ahead at all (`Happened`). After a step that this process saw, what it granted moves with the clock, so
that it lasts as long as it was to last. Ends of tokens are dates that somebody was told; they do not move.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from service.domain import rounds as rules
from service.operations.access import sessions
from service.operations.ledger import clock
from service.operations.progress import jobs, reading
from service.operations.store import reservations, uploads, workers
from service.persistence.tables import (
    ClientRow,
    FederationRow,
    IdempotencyRow,
    JobRow,
    ParticipantRow,
    RoundRow,
    SessionRow,
    TokenRow,
    UploadRow,
    WorkerRow,
)

Column = InstrumentedAttribute[Any]
_LONGEST_PAUSE = timedelta(seconds=max(jobs.RETRY_SECONDS * 32, jobs.POSTPONED_SECONDS))
_LONGEST_COLLECTION = timedelta(days=30)
_LONGEST_DEVICE_TOKEN = timedelta(days=3650)
_LONGEST_TOKEN = timedelta(days=10 * 366)


@dataclass(frozen=True)
class Granted:
    """A moment that lies ahead: until when something is held, waited for or good.

    Attributes:
        column: where it is stored.
        where: of which rows it is read.
        longest: how far ahead it can be; of a row, where rows differ.
        moves: whether it moves with the clock.
        often: whether to look every time, not only after a step and every ten minutes.
    """

    column: Column
    where: ColumnElement[bool]
    longest: timedelta | Callable[[Session, Any], timedelta]
    moves: bool = True
    often: bool = False


@dataclass(frozen=True)
class Happened:
    """A moment in the past; put at the present, or `before` it, where it lies ahead."""

    column: Column
    before: timedelta = timedelta(0)
    often: bool = False


Stamp = Granted | Happened


def _deadline(session: Session, row: RoundRow) -> timedelta:
    federation = session.get_one(FederationRow, row.federation_id)
    return timedelta(seconds=reading.config_of(federation).rounds.deadline_seconds)


def _phase(session: Session, row: RoundRow) -> timedelta:
    plan = reading.config_of(session.get_one(FederationRow, row.federation_id)).rounds.secure
    return timedelta(seconds=0 if plan is None else plan.phase_seconds)


def _silence(session: Session, row: ParticipantRow) -> timedelta:
    round_ = session.get_one(RoundRow, row.round_id)
    return rules.silent_after(reading.config_of(session.get_one(FederationRow, round_.federation_id)).rounds)


def _collection(session: Session, row: FederationRow) -> timedelta:
    plan = reading.config_of(row).recipe.discriminators
    if plan is None:
        return _LONGEST_COLLECTION
    return timedelta(seconds=max(plan.deadline_seconds, getattr(plan.generator, "deadline_seconds", 0)))


def _life(session: Session, row: TokenRow) -> timedelta:
    return _LONGEST_TOKEN if row.lifetime_seconds is None else timedelta(seconds=row.lifetime_seconds)


def granted(lease: timedelta) -> list[Granted]:
    """Return all that is granted; `lease` is a job's."""
    running, queued = JobRow.state == "running", JobRow.state == "queued"
    collecting = RoundRow.state == "collecting"
    open_, live = UploadRow.target.is_(None), ClientRow.revoked_at.is_(None)
    return [
        Granted(JobRow.lease_until, running, lease, often=True),
        Granted(JobRow.not_before, queued, _LONGEST_PAUSE, often=True),
        Granted(JobRow.queued_at, queued, _LONGEST_PAUSE, often=True),
        Granted(UploadRow.lease_until, UploadRow.holder.is_not(None), uploads.LEASE, often=True),
        Granted(UploadRow.expires_at, open_, reservations.EXPIRY),
        Granted(UploadRow.expires_at, ~open_, uploads.KEPT),
        Granted(RoundRow.deadline_at, collecting, _deadline),
        Granted(RoundRow.secure_until, collecting & RoundRow.secure_until.is_not(None), _phase),
        Granted(ParticipantRow.silent_at, ParticipantRow.lost_at.is_(None), _silence),
        Granted(FederationRow.collect_deadline_at, FederationRow.collect_deadline_at.is_not(None), _collection),
        Granted(FederationRow.join_expires_at, FederationRow.finished_at.is_(None), _LONGEST_TOKEN, moves=False),
        Granted(TokenRow.expires_at, TokenRow.revoked_at.is_(None), _life, moves=False),
        Granted(TokenRow.next_expires_at, TokenRow.revoked_at.is_(None), _life, moves=False),
        Granted(SessionRow.expires_at, SessionRow.expires_at.is_not(None), sessions.LONGEST),
        Granted(ClientRow.expires_at, live, _LONGEST_DEVICE_TOKEN, moves=False),
        Granted(ClientRow.next_expires_at, live, _LONGEST_DEVICE_TOKEN, moves=False),
    ]


HAPPENED = [
    Happened(WorkerRow.last_seen_at, before=workers.SILENT, often=True),  # until it is heard again nobody knows
    Happened(JobRow.hinted_at),
    Happened(ParticipantRow.heard_at),
    Happened(ParticipantRow.moved_at),
    Happened(ClientRow.last_seen_at),
    Happened(TokenRow.last_used_at),
    Happened(SessionRow.used_at),
    Happened(IdempotencyRow.created_at),
    Happened(FederationRow.finished_at),
]


def table(lease: timedelta) -> list[Stamp]:
    """Return all stamps that are judged; `lease` is a job's."""
    return [*granted(lease), *HAPPENED]


def is_wrong(session: Session, stamp: Stamp, moment: datetime) -> bool:
    """Whether one that is stored may lie too far ahead; a look that takes no write lock."""
    return session.scalars(_too_far(stamp, moment).limit(1)).first() is not None


def put_right(session: Session, stamp: Stamp, moment: datetime, moved: timedelta = timedelta(0)) -> timedelta:
    """Move what was granted with the clock, then bound it; return how far beyond its bound the furthest lay.

    Args:
        session: one transaction; a stamp a transaction, for rows of different tables are locked in another order.
        stamp: which one.
        moment: the present.
        moved: by how much the clock was moved.
    """
    if moved and isinstance(stamp, Granted) and stamp.moves:
        _move(session, stamp, moved, moment)
    furthest = timedelta(0)
    for row in session.scalars(_too_far(stamp, moment)).all():
        stored, bound = getattr(row, stamp.column.key), _bound(session, stamp, row, moment)
        if stored > bound + clock.SLACK:
            furthest = max(furthest, stored - bound)
            _set(session, row, stamp.column, bound)
    return furthest


def _too_far(stamp: Stamp, moment: datetime) -> Any:
    """Return the query for rows that lie too far ahead; where rows differ, for all that may."""
    if isinstance(stamp, Happened):
        return select(stamp.column.class_).where(stamp.column > moment + clock.SLACK)
    longest = stamp.longest if isinstance(stamp.longest, timedelta) else timedelta(0)
    return select(stamp.column.class_).where(stamp.where, stamp.column > moment + longest + clock.SLACK)


def _bound(session: Session, stamp: Stamp, row: Any, moment: datetime) -> datetime:
    if isinstance(stamp, Happened):
        return moment - stamp.before
    return moment + (stamp.longest if isinstance(stamp.longest, timedelta) else stamp.longest(session, row))


def _move(session: Session, stamp: Granted, by: timedelta, moment: datetime) -> None:
    """Move what was granted by the clock as it was: what cannot be that was granted since."""
    for row in session.scalars(select(stamp.column.class_).where(stamp.where, stamp.column.is_not(None))).all():
        stored, bound = getattr(row, stamp.column.key), _bound(session, stamp, row, moment)
        since = stored <= bound if by < timedelta(0) else stored > bound - by + clock.SLACK
        if not since:
            _set(session, row, stamp.column, min(stored + by, bound))


def _set(session: Session, row: Any, column: Column, value: datetime) -> None:
    """Write one moment, if it is still what was read, and beside the events that watch rows: nothing has happened."""
    stored = type(row).__table__
    where = [key == getattr(row, key.name) for key in stored.primary_key.columns]
    where.append(stored.columns[column.key] == getattr(row, column.key))
    session.execute(update(stored).where(*where).values({column.key: value}))
    session.refresh(row, [column.key])
