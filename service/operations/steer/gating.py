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


def judge(session: Session, federation: FederationRow, round_: RoundRow, metrics: dict[str, Any]) -> dict[str, str]:
    """Return the models that are not to be published, with the reason; note in the figures who passed."""
    config = reading.config_of(federation)
    gate = config.rounds.gate
    figures = metrics.get("gate", {}).get("models", {})
    if gate is None or not figures:
        return {}
    for name, figure in figures.items():
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
    if gate.action == "rollback":
        back = {name: best for name in rejected if (best := _turn_back(session, federation, name, gate.metric))}
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
    rollback.make_current(session, federation, {name: id_})
    made = rollback.made_in(session, federation)
    rollback.drop_state(session, federation, carried.turned_back(made, name, known[id_].round_index or 0))
    return id_
