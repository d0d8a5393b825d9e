"""The state of the service in figures, for monitoring and the dashboard."""

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.infra.metrics import State
from service.operations.ledger.clock import SLACK, now, recent
from service.operations.ledger.events import head
from service.operations.store.workers import SILENT
from service.persistence.tables import (
    ClientRow,
    DatasetRow,
    DiscriminatorRow,
    FederationRow,
    JobRow,
    ModelRow,
    RoundRow,
    WorkerRow,
)

_STATES = {
    FederationRow: "created preparing running paused finished cancelled failed",
    RoundRow: "collecting aggregating published failed skipped",
    JobRow: "queued running done failed cancelled",
}


def state(session: Session) -> State:
    """Return how many of everything there are."""
    moment = now()
    heard, waited = ages(session)
    alive = select(func.count()).select_from(WorkerRow).where(WorkerRow.last_seen_at.between(*recent(SILENT, moment)))
    enrolled = select(func.count()).select_from(ClientRow).where(ClientRow.revoked_at.is_(None))
    return State(
        federations=_by_state(session, FederationRow),
        rounds=_by_state(session, RoundRow),
        jobs=_by_state(session, JobRow),
        stored_bytes={
            "models": _bytes(session, ModelRow),
            "datasets": _bytes(session, DatasetRow),
            "discriminators": _bytes(session, DiscriminatorRow),
        },
        clients=session.scalar(enrolled) or 0,
        workers=session.scalar(alive) or 0,
        oldest_queued_seconds=waited,
        heartbeat_age_seconds=heard,
        events=head(session),
    )


def ages(session: Session) -> tuple[float | None, float]:
    """Return the seconds since a worker was last heard, and those that the oldest queued job has waited (0: none)."""
    possible = WorkerRow.last_seen_at <= now() + SLACK
    heard = session.scalar(select(func.max(WorkerRow.last_seen_at)).where(possible))
    oldest = session.scalar(select(func.min(JobRow.created_at)).where(JobRow.state == "queued"))
    moment = now()
    return (
        None if heard is None else max(0.0, (moment - heard).total_seconds()),
        0.0 if oldest is None else max(0.0, (moment - oldest).total_seconds()),
    )


def _by_state(session: Session, table: type[Any]) -> dict[str, int]:
    """Return state -> count, with zeros: an alert needs a value before the first failure."""
    counted = session.execute(select(table.state, func.count()).group_by(table.state))
    return dict.fromkeys(_STATES[table].split(), 0) | {row[0]: row[1] for row in counted}


def _bytes(session: Session, table: type[Any]) -> int:
    return int(session.scalar(select(func.sum(table.size))) or 0)
