"""Federations as they are shown."""

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from contract.bodies import stored
from contract.federation import FederationConfig
from contract.notes import Note
from contract.tasks import TASKS, measured_of
from contract.wire import federations as wire
from contract.wire.federations import Task
from service.domain import rounds as opening
from service.operations.access import joining
from service.operations.ledger.paging import page
from service.operations.progress import reading
from service.operations.store import models, networks, workers
from service.persistence.tables import (
    ClientRow,
    FederationRow,
    ModelRow,
    RoundRow,
)


def _counts(session: Session, ids: list[str]) -> dict[str, int]:
    rows = session.execute(
        select(ClientRow.federation_id, func.count())
        .where(ClientRow.federation_id.in_(ids), ClientRow.revoked_at.is_(None))
        .group_by(ClientRow.federation_id)
    )
    return {row[0]: row[1] for row in rows}


def _summary(row: FederationRow, clients: int) -> dict[str, Any]:
    task = stored(Task, row.config["task"])
    metric = task.main_metric
    shown = {
        "id": row.id,
        "name": row.name,
        "state": row.state,
        "recipe": row.config["recipe"]["name"],
        "round": row.round_index,
        "rounds_total": row.config["rounds"]["total"],
        "clients": clients,
        "accuracy": row.accuracy if metric.key == "accuracy" else None,
        "metric": metric.name,
        "higher_is_better": metric.higher_is_better,
        "measured": row.accuracy,
        "created_at": row.created_at,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
        "error": row.error,
        "detail": row.detail,
    }
    shown["kind"] = task.kind
    return shown


def listing(
    session: Session, limit: int, after: str | None, newest_first: bool = False
) -> tuple[list[wire.FederationSummary], str | None]:
    """Return a page of federations."""
    rows, following = page(session, select(FederationRow), FederationRow.id, limit, after, newest_first)
    counts = _counts(session, [row.id for row in rows])
    return [wire.FederationSummary.model_validate(_summary(row, counts.get(row.id, 0))) for row in rows], following


def describe(session: Session, row: FederationRow) -> wire.Federation:
    """Return a federation in full."""
    config = reading.config_of(row)
    newest = reading.newest_round(session, row)
    current = reading.current_models(session, row.id)
    rounds = session.execute(
        select(RoundRow.index, RoundRow.metrics)
        .where(RoundRow.federation_id == row.id, RoundRow.state == "published")
        .order_by(RoundRow.index)
    )
    figures = [(index, metrics) for index, metrics in rounds]
    refs = {}
    for prototype in config.published:
        id_ = current.get(reading.prototype_key(prototype.name))
        if id_ is not None:
            refs[prototype.name] = models.reference(session.get_one(ModelRow, id_), prototype.parted)
    return wire.Federation.model_validate(
        _summary(row, _counts(session, [row.id]).get(row.id, 0))
        | _parts(session, config)
        | {
            "detail": row.detail and networks.called(session, row.detail),
            "seed": row.seed,
            "retention": row.retention,
            "join": joining.state(row),
            "current_round": newest.id if newest else None,
            "waiting_for": _waiting_for(session, row, newest),
            "gan_round": row.gan_round,
            "discriminators": reading.discriminator_count(session, row.id),
            "models": refs,
            "accuracies": [(i, m["accuracy"]) for i, m in figures if m.get("accuracy") is not None],
            "figures": _figures(config.task, figures[-1][1]) if figures else {},
            "measurements": [(i, value) for i, m in figures if (value := measured_of(m)) is not None],
        }
    )


def _parts(session: Session, config: FederationConfig) -> dict[str, Any]:
    return {
        "task": config.task,
        "prototypes": config.prototypes,
        "server_model": config.server_model,
        "networks": networks.names(session, config),
        "composition": config.recipe,
        "local": config.local,
        "rounds": config.rounds,
        "datasets": config.datasets,
        "queue": config.queue,
        "notes": [_called(session, note) for note in config.notes],
    }


def draft(session: Session, request: wire.FederationCreate, config: FederationConfig) -> wire.FederationDraft:
    """Return what a request would become."""
    asked = {"name": request.name, "seed": request.seed, "retention": request.retention}
    return wire.FederationDraft.model_validate(_parts(session, config) | asked)


def _figures(task: Task, metrics: dict[str, Any]) -> dict[str, dict[str, float]]:
    measures = (metrics.get("model") or {}).get("measures") or {}
    own = [metric.name for metric in TASKS[task.kind].metrics]
    return {model: {name: told[name] for name in own if told.get(name) is not None} for model, told in measures.items()}


def _called(session: Session, note: Note) -> Note:
    return note.model_copy(update={name: networks.called(session, getattr(note, name)) for name in ("note", "why")})


def _waiting_for(session: Session, row: FederationRow, newest: RoundRow | None) -> str | None:
    """Say what keeps a federation from going on, if anything does."""
    lacking = reading.config_of(row).lacking
    if lacking and row.state not in wire.TERMINAL_STATES:
        return lacking
    unserved = workers.unserved(session, row.id)
    if unserved:
        return "; ".join(f"a worker of the queue {queue!r}: none is alive" for queue in unserved)
    if row.state != "running" or (newest is not None and newest.state in ("collecting", "aggregating")):
        return None
    wanted = opening.clients_wanted(reading.config_of(row).rounds, first=newest is None)
    ready = reading.eligible_count(session, row)
    return f"clients: a round opens with {wanted}, and {ready} {'is' if ready == 1 else 'are'} ready"


def versions(session: Session, ids: list[str]) -> dict[str, int]:
    """Return the versions of some federations."""
    rows = session.execute(select(FederationRow.id, FederationRow.version).where(FederationRow.id.in_(ids)))
    return {row[0]: row[1] for row in rows}
