"""An operator changes a federation's plan while it runs: the rounds that come have the new one."""

from typing import Any

from sqlalchemy import update
from sqlalchemy.orm import Session

from contract.wire.changes import PlanChange
from service.domain import federation as rules
from service.domain import plans
from service.domain.mixture import check_mixture
from service.operations.ledger import after_commit, audit
from service.operations.progress import lifecycle, reading
from service.operations.steer import own_networks
from service.persistence.tables import FederationRow, RoundRow


def _flat(tree: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Return dotted path -> value: what a line of the log holds."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= _flat(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
    return found


def change(session: Session, federation_id: str, wanted: PlanChange) -> FederationRow:
    """Change the plan from the next round on; rounds that have opened keep theirs, and it is noted with them.

    The same change again changes nothing.

    Raises:
        DomainError: not-found; invalid-transition, when it is over; invalid-field, naming what cannot be.
    """
    row = reading.get_locked(session, federation_id)
    rules.check_not_over(row.state)
    config = reading.config_of(row)
    with own_networks.called_by_name(session):
        made = plans.changed(config, wanted, row.round_index)
        check_mixture(made, {role for role, id_ in config.datasets if id_ is not None})
    if made == config:
        return row
    before = plans.plan_of(config).model_dump(mode="json")
    opened = update(RoundRow).where(RoundRow.federation_id == row.id, RoundRow.plan.is_(None))
    session.execute(opened.values(plan=before))
    row.config = made.model_dump(mode="json")
    told = {path: "default" if value is None else value for path, value in _flat(wanted.told()).items()}
    audit.record(session, "federation.plan", row.id, federation=row.id, after_round=row.round_index, **told)
    after_commit.touch(session, row)
    session.flush()
    session.expire_all()
    lifecycle.proceed(session, row)
    return row
