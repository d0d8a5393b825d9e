"""The gate: new models that are worse than the current ones by too much are not published."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.tasks import without_measured
from service.domain import carried
from service.domain import gate as rule
from service.domain.states import ROUND, advance
from service.operations.ledger.clock import now
from service.operations.progress import lifecycle, reading
from service.operations.steer import rollback
from service.persistence.tables import FederationRow, ModelRow, RoundRow

_GLOBAL = ("initial", "global", "imported")


def judge(
    session: Session,
    federation: FederationRow,
    round_: RoundRow,
    metrics: dict[str, Any],
    on_devices: Mapping[str, float],
) -> dict[str, str]:
    """Return the models that are not to be published, with the reason; note in the figures who passed.

    Args:
        metrics: the job's figures.
        on_devices: of the models that the round began with, where devices have measured them for the first time.
    """
    config = reading.config_of(federation)
    gate = config.rounds.gate
    if gate is not None and gate.role is None:
        measured = _beside_replaced(session, round_, on_devices)
        metrics |= {"gate": {"metric": gate.metric, "models": measured}} if measured else {}
    figures = metrics.get("gate", {}).get("models", {})
    if gate is None or not figures:
        return {}
    for name, figure in figures.items() if gate.role is not None else ():
        base = session.get_one(ModelRow, round_.base_models[name])
        base.metrics = base.metrics | {gate.metric: figure["before"]}
    rejected = rule.rejected(gate, figures, config.task.main_metric)
    metrics["gate"] = rule.judged(gate, metrics["gate"], rejected)
    return rejected


def turn_away(
    session: Session, federation: FederationRow, round_: RoundRow, rejected: Mapping[str, str], published: bool
) -> None:
    """Do with a round's rejected models what the plan says; the current ones stay, or older and better ones come back.

    A round that published nothing is skipped: the next one opens from the current models.
    """
    gate = reading.config_of(federation).rounds.gate
    assert gate is not None
    reason = rule.reason(rejected)[:2000]
    round_.metrics = without_measured(round_.metrics)
    if published:
        round_.reason = reason
        federation.detail = f"round {round_.index}: {reason}"
    else:
        round_.state = advance(ROUND, round_.state, "reject", "round")
        round_.closed_at = round_.closed_at or now()
        lifecycle.skipped(session, federation, round_, reason)
    back: dict[str, str] = {}
    if gate.action == "rollback":
        back = {name: best for name in rejected if (best := _turn_back(session, federation, name, gate.metric))}
    elif gate.role is None:
        back = {name: old for name in rejected if (old := _withdraw(session, federation, round_, name))}
    if back:
        round_.metrics = round_.metrics | {"gate": round_.metrics["gate"] | {"rolled_back": back}}
    if gate.action == "pause":
        federation.error, federation.detail = rule.CODE, f"round {round_.index}: {reason}; look at it, then resume"
        if federation.state == "running":
            lifecycle.move(session, federation, "pause")


def _turn_back(session: Session, federation: FederationRow, name: str, metric: str) -> str | None:
    """Make the best model of a prototype that was ever measured current; return its id, or None if it is already.

    Those that retention has removed do not come back.
    """
    mine = select(ModelRow).where(ModelRow.federation_id == federation.id, ModelRow.prototype == name)
    rows = session.scalars(mine.where(ModelRow.role.in_(_GLOBAL), ModelRow.removed_at.is_(None)))
    known = {row.id: row for row in rows if row.metrics.get(metric) is not None}
    current = reading.current_models(session, federation.id)[reading.prototype_key(name)]
    main = reading.config_of(federation).task.main_metric
    id_ = rule.best({id_: row.metrics[metric] for id_, row in known.items()}, current, main)
    if id_ is None:
        return None
    _go_back(session, federation, name, known[id_])
    return id_


def _beside_replaced(
    session: Session, round_: RoundRow, on_devices: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """Return, of models that devices have measured, `before` and `after`: the model that each replaced, and itself."""
    found = {}
    for name, after in on_devices.items():
        old = _replaced(session, round_, name)
        if old is not None and old.metrics.get("devices") is not None:
            found[name] = {"before": float(old.metrics["devices"]), "after": after}
    return found


def _replaced(session: Session, round_: RoundRow, name: str) -> ModelRow | None:
    """Return the model that was current before the one that a round began with; None before the first round."""
    base = session.get_one(ModelRow, round_.base_models[name])
    maker = None if base.round_id is None else session.get_one(RoundRow, base.round_id)
    return None if maker is None else session.get(ModelRow, maker.base_models.get(name))


def _withdraw(session: Session, federation: FederationRow, round_: RoundRow, name: str) -> str | None:
    """Make the model current again that the one with which a round began had replaced; return its id.

    None where retention has removed it: then the one that devices found worse stays.
    """
    old = _replaced(session, round_, name)
    if old is None or old.removed_at is not None:
        return None
    _go_back(session, federation, name, old)
    return old.id


def _go_back(session: Session, federation: FederationRow, name: str, model: ModelRow) -> None:
    """Make an older model of a prototype current, and let go of the state that newer ones have left."""
    rollback.make_current(session, federation, {name: model.id})
    made = rollback.made_in(session, federation)
    rollback.drop_state(session, federation, carried.turned_back(made, name, model.round_index or 0))
