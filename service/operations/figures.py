"""The state of the service in figures, for monitoring and the dashboard."""

from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.infra.metrics import State
from service.operations.clock import now
from service.operations.events import head
from service.operations.workers import SILENT
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
    heard = session.scalar(select(func.max(WorkerRow.last_seen_at)))
    alive = select(func.count()).select_from(WorkerRow).where(WorkerRow.last_seen_at > moment - SILENT)
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
        oldest_queued_seconds=oldest_queued(session, moment),
        heartbeat_age_seconds=None if heard is None else max(0.0, (moment - heard).total_seconds()),
        events=head(session),
    )


def oldest_queued(session: Session, moment: datetime) -> float:
    """Return the seconds that the oldest queued job has waited, 0 when none waits."""
    oldest = session.scalar(select(func.min(JobRow.created_at)).where(JobRow.state == "queued"))
    return 0.0 if oldest is None else max(0.0, (moment - oldest).total_seconds())


def _by_state(session: Session, table: type[Any]) -> dict[str, int]:
    """Return state -> count, with zeros: an alert needs a value before the first failure."""
    counted = session.execute(select(table.state, func.count()).group_by(table.state))
    return dict.fromkeys(_STATES[table].split(), 0) | {row[0]: row[1] for row in counted}


def _bytes(session: Session, table: type[Any]) -> int:
    return int(session.scalar(select(func.sum(table.size))) or 0)
