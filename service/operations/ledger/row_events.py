"""What a change of rows means as an event. One hook on the session sees every change, so that no operation forgets.

Changes that pass the session by (an UPDATE or DELETE statement) are noted by hand with `note`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import event, func, inspect, select
from sqlalchemy.orm import Session, UOWTransaction

from service.persistence.tables import (
    Base,
    ClientRow,
    CurrentModelRow,
    DatasetRow,
    DiscriminatorRow,
    EnsembleMemberRow,
    FederationRow,
    GanUpdateRow,
    JobRow,
    ModelRow,
    NetworkRow,
    ParticipantRow,
    PredictionRow,
    RoundRow,
    UpdateRow,
    WorkerRow,
)

NOTES = "potstill.notes"
_MADE = "potstill.made"
Data = dict[str, Any]
_FEDERATION = {
    ("created", "preparing"): "started",
    ("paused", "running"): "resumed",
    ("failed", "preparing"): "revived",
    ("failed", "training_generator"): "revived",
    ("failed", "scoring"): "revived",
}
_ROUND = {
    "collecting": "reopened",
    "aggregating": "closed",
    "published": "published",
    "skipped": "skipped",
    "failed": "failed",
}


@dataclass(frozen=True)
class Note:
    """Something to tell at the end of the transaction; `row` gives the details as they are then."""

    kind: str
    row: Base
    more: Data


def watch(session: Session) -> None:
    """Have every change of this session's rows noted."""
    session.info[NOTES] = []
    event.listen(session, "before_flush", _before_flush)


def note(session: Session, kind: str, row: Base, **more: Any) -> None:
    """Note a change that passed the session by; `more` is told beside the row's own details."""
    session.info.setdefault(NOTES, []).append(Note(kind, row, more))


def _before_flush(session: Session, context: UOWTransaction, instances: object) -> None:
    order = list(_ON_NEW)
    new = [(row, True) for row in session.new]
    old = [(row, False) for row in session.dirty]
    for row, fresh in sorted(new + old, key=lambda pair: order.index(type(pair[0])) if type(pair[0]) in order else 99):
        found = _ON_NEW if fresh else _ON_CHANGE
        for kind, more in found.get(type(row), _nothing)(session, row):
            note(session, kind, row, **more)
    for row in session.deleted:
        if isinstance(row, DatasetRow | NetworkRow):
            note(session, "dataset.deleted" if isinstance(row, DatasetRow) else "network.deleted", row)


def _nothing(session: Session, row: Any) -> Iterator[tuple[str, Data]]:
    yield from ()


def _once(kind: str, **more: Any) -> Callable[[Session, Any], Iterator[tuple[str, Data]]]:
    def tell(session: Session, row: Any) -> Iterator[tuple[str, Data]]:
        yield kind, more

    return tell


def _change(row: Base, attribute: str) -> tuple[Any, Any] | None:
    """Return (before, after) if the attribute changed and was known before."""
    history = inspect(row).attrs[attribute].history
    if not history.added or not history.deleted or history.added[0] == history.deleted[0]:
        return None
    return history.deleted[0], history.added[0]


def _set(row: Base, attribute: str) -> bool:
    """Whether an empty attribute got a value."""
    change = _change(row, attribute)
    return change is not None and change[0] is None and change[1] is not None


def _federation(session: Session, row: FederationRow) -> Iterator[tuple[str, Data]]:
    change = _change(row, "state")
    if change is not None:
        before, after = change
        ended = after if after in ("paused", "finished", "cancelled", "failed") else "stage"
        yield f"federation.{_FEDERATION.get((before, after), ended)}", {"state": after}
    if _change(row, "config"):
        yield "federation.plan", {}
    if _change(row, "join_nonce"):
        yield "federation.join_token", {}


def _client(session: Session, row: ClientRow) -> Iterator[tuple[str, Data]]:
    if _set(row, "revoked_at"):
        yield "client.revoked", {}
    samples = _change(row, "num_samples")
    if samples is not None:
        yield "client.declared", {"previous": samples[0]}


def _discriminator(session: Session, row: DiscriminatorRow) -> Iterator[tuple[str, Data]]:
    if _set(row, "rejected"):
        yield "client.rejected", {"what": "discriminator", "detail": row.rejected}


def _round(session: Session, row: RoundRow) -> Iterator[tuple[str, Data]]:
    change = _change(row, "state")
    if change is not None:
        kind = "retried" if change[0] == "failed" else _ROUND.get(change[1], change[1])
        yield f"round.{kind}", {"state": change[1]}
    if _set(row, "groups_published_at"):
        yield "round.groups_published", {}
    if _change(row, "extensions"):
        yield "round.extended", {}
    if _change(row, "restarts"):
        yield "round.restarted", {}
    phase = _change(row, "secure_phase")
    if phase is not None and phase[1] is not None:
        yield "round.phase", {"phase": phase[1]}


def _participant(session: Session, row: ParticipantRow) -> Iterator[tuple[str, Data]]:
    if _set(row, "lost_at"):
        yield "client.lost", {}


def _job(session: Session, row: JobRow) -> Iterator[tuple[str, Data]]:
    change = _change(row, "state")
    if change is not None:
        before, after = change
        kind = (
            "retried" if before in ("failed", "cancelled") else {"queued": "returned", "running": "claimed"}.get(after)
        )
        yield f"job.{kind or after}", {"state": after}
    progress = _change(row, "progress") or (None, row.progress if inspect(row).attrs.progress.history.added else None)
    if progress[1] and progress[1].get("phase") != (progress[0] or {}).get("phase"):
        yield "job.phase", {"phase": progress[1].get("phase")}


def _model(session: Session, row: ModelRow) -> Iterator[tuple[str, Data]]:
    session.info.setdefault(_MADE, set()).add(row.id)
    if row.role != "state":
        yield "model.published", {}


def _current(session: Session, row: CurrentModelRow) -> Iterator[tuple[str, Data]]:
    change = _change(row, "model_id")
    if change is not None and change[1] not in session.info.get(_MADE, ()):
        yield "model.current", {"previous": change[0]}


def _prediction(session: Session, row: PredictionRow) -> Iterator[tuple[str, Data]]:
    if inspect(row).attrs.digest.history.added:
        yield "prediction.made", {}


def _worker(session: Session, row: WorkerRow) -> Iterator[tuple[str, Data]]:
    change = _change(row, "lost_at")
    if change is not None:
        yield ("worker.lost" if change[1] is not None else "worker.seen"), {}


_Teller = Callable[[Session, Any], Iterator[tuple[str, Data]]]
_ON_NEW: dict[type[Any], _Teller] = {  # in this order within one flush
    WorkerRow: _once("worker.seen"),
    DatasetRow: _once("dataset.added"),
    NetworkRow: _once("network.added"),
    FederationRow: _once("federation.created"),
    ClientRow: _once("client.enrolled"),
    DiscriminatorRow: _once("client.delivered", what="discriminator"),
    GanUpdateRow: _once("client.delivered", what="generator"),
    UpdateRow: _once("update.received"),
    JobRow: _once("job.queued"),
    ModelRow: _model,
    CurrentModelRow: _nothing,
    RoundRow: _once("round.opened"),
}
_ON_CHANGE: dict[type[Any], _Teller] = {
    FederationRow: _federation,
    ClientRow: _client,
    DiscriminatorRow: _discriminator,
    RoundRow: _round,
    ParticipantRow: _participant,
    JobRow: _job,
    CurrentModelRow: _current,
    PredictionRow: _prediction,
    WorkerRow: _worker,
}


# ------------------------------------------------------------------------------------------------ details, told last
def federation_of(session: Session, row: Any) -> str | None:
    """Return the federation that a row belongs to, if it belongs to one."""
    if isinstance(row, FederationRow):
        return row.id
    if isinstance(row, UpdateRow | ParticipantRow):
        return session.get_one(RoundRow, row.round_id).federation_id
    return getattr(row, "federation_id", None)


def describe(session: Session, item: Note) -> Data:
    """Return what is told beside the kind."""
    return _DETAILS[type(item.row)](session, item.row) | item.more


def _of_federation(session: Session, row: FederationRow) -> Data:
    return _some(name=row.name, state=row.state, error=row.error, detail=row.detail)


def _of_client(session: Session, row: ClientRow) -> Data:
    return {"client_id": row.id, "client": row.name, "prototype": row.prototype, "num_samples": row.num_samples}


def _of_delivery(session: Session, row: DiscriminatorRow | GanUpdateRow) -> Data:
    return {"client_id": row.client_id, "client": session.get_one(ClientRow, row.client_id).name, "size": row.size}


def _of_update(session: Session, row: UpdateRow) -> Data:
    round_ = session.get_one(RoundRow, row.round_id)
    return _of_delivery(session, row) | {  # type: ignore[arg-type]
        "update_id": row.id,
        "round_id": row.round_id,
        "round": round_.index,
        "num_samples": row.num_samples,
    }


def _of_participant(session: Session, row: ParticipantRow) -> Data:
    client, round_ = session.get_one(ClientRow, row.client_id), session.get_one(RoundRow, row.round_id)
    return _of_client(session, client) | {"round_id": round_.id, "round": round_.index}


def _of_round(session: Session, row: RoundRow) -> Data:
    asked = select(func.count()).select_from(ParticipantRow).where(ParticipantRow.round_id == row.id)
    answered = select(func.count()).select_from(UpdateRow).where(UpdateRow.round_id == row.id)
    return _some(
        round_id=row.id,
        round=row.index,
        state=row.state,
        asked=session.scalar(asked),
        answered=session.scalar(answered),
        min_updates=row.min_updates,
        deadline_at=row.deadline_at.isoformat(),
        reason=row.reason,
        **_measured(row.metrics),
    )


def _of_job(session: Session, row: JobRow) -> Data:
    return _some(
        job_id=row.id,
        job=row.kind,
        state=row.state,
        round_id=row.round_id,
        attempt=row.attempt,
        max_attempts=row.max_attempts,
        worker_id=row.worker_id,
        error=row.error,
        detail=row.detail,
    )


def _of_model(session: Session, row: ModelRow) -> Data:
    return _some(
        model_id=row.id,
        role=row.role,
        prototype=row.prototype,
        round=row.round_index,
        digest=row.digest,
        size=row.size,
        **_measured(row.metrics),
    )


def _of_current(session: Session, row: CurrentModelRow) -> Data:
    return _of_model(session, session.get_one(ModelRow, row.model_id)) | {"key": row.key}


def _of_worker(session: Session, row: WorkerRow) -> Data:
    return {"worker_id": row.id, "host": row.host, "device": row.device}


def _of_dataset(session: Session, row: DatasetRow) -> Data:
    return {"dataset_id": row.id, "name": row.name, "num_samples": row.num_samples, "size": row.size}


def _of_network(session: Session, row: NetworkRow) -> Data:
    return {"network_id": row.id, "name": row.name, "size": row.size}


def _of_prediction(session: Session, row: PredictionRow) -> Data:
    measured = _measured(row.metrics)
    return _some(prediction_id=row.id, job_id=row.job_id, dataset=row.dataset, size=row.size, **measured)


def _measured(figures: Data) -> Data:
    """Return the main figure: `accuracy`, or `measured` and the name of its metric."""
    return {name: figures.get(name) for name in ("accuracy", "measured", "metric")}


def _of_member(session: Session, row: EnsembleMemberRow) -> Data:
    return {"ensemble_id": row.ensemble_id, "name": row.name, "size": row.size}


def _some(**values: Any) -> Data:
    return {name: value for name, value in values.items() if value is not None}


_DETAILS: dict[type[Any], Callable[[Session, Any], Data]] = {
    FederationRow: _of_federation,
    ClientRow: _of_client,
    DiscriminatorRow: _of_delivery,
    GanUpdateRow: _of_delivery,
    UpdateRow: _of_update,
    RoundRow: _of_round,
    ParticipantRow: _of_participant,
    JobRow: _of_job,
    ModelRow: _of_model,
    CurrentModelRow: _of_current,
    WorkerRow: _of_worker,
    DatasetRow: _of_dataset,
    NetworkRow: _of_network,
    EnsembleMemberRow: _of_member,
    PredictionRow: _of_prediction,
}
