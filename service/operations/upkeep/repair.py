"""What can be mended by itself about a blob that is damaged or missing; what cannot is told with its remedy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.wire.federations import TERMINAL_STATES
from service.infra.blobs import BlobFault
from service.operations.ledger import audit, row_events
from service.operations.ledger.clock import now
from service.operations.ledger.unit import Store
from service.operations.progress import reading
from service.operations.steer import resend
from service.operations.store import faults
from service.operations.store.faults import Use
from service.persistence.tables import (
    CurrentModelRow,
    DatasetRow,
    EnsembleMemberRow,
    FederationRow,
    GanUpdateRow,
    ModelRow,
    NetworkRow,
    PredictionRow,
    RoundRow,
    UpdateRow,
)

Act = Literal["set aside", "ask again", "mark as removed", "remove", "by hand"]


@dataclass(frozen=True)
class Step:
    """One thing to do.

    Attributes:
        act: what; `by hand` is for the operator.
        title: about what.
        remedy: of what is to be done by hand.
    """

    digest: str
    act: Act
    title: str
    remedy: str = ""


def plan(session: Session, fault: BlobFault) -> list[Step]:
    """Return what would be done about a fault; nothing is changed."""
    found = faults.uses(session, fault.digest)
    steps = []
    if fault.state == "damaged":
        titles = ", ".join(use.title for use in found) or "a file that nothing names"
        steps.append(Step(fault.digest, "set aside", titles))
    for use in found:
        act = _act(session, use)
        steps.append(Step(fault.digest, act, use.title, use.remedy if act == "by hand" else ""))
    return steps


def carry_out(store: Store, fault: BlobFault) -> list[Step]:
    """Do what can be done about a fault, as the command line; return what was done, and what is left to do by hand."""
    with store.write() as session:
        audit.act_as(session, audit.COMMAND_LINE)
        steps = plan(session, fault)
        found = faults.note(session, store.blobs, fault)
        acts = {id(use): _act(session, use) for use in found}
        for use in found:
            if acts[id(use)] == "mark as removed" and not isinstance(use.row, DatasetRow | NetworkRow):
                use.row.removed_at = now()
        again = [use for use in found if acts[id(use)] == "ask again"]
        for federation, uses in _by_federation(session, again):
            resend.ask_again(session, federation, uses, f"the file of {uses[0].title} is {fault.state}; asked again")
        audit.record(session, "blob.repair", fault.digest, state=fault.state, steps=len(steps))
        return steps


def _by_federation(session: Session, uses: Sequence[Use]) -> list[tuple[FederationRow, list[Use]]]:
    found: dict[str, list[Use]] = {}
    for use in uses:
        found.setdefault(row_events.federation_of(session, use.row) or "", []).append(use)
    return [(reading.locked(session, id_), mine) for id_, mine in sorted(found.items())]


def _act(session: Session, use: Use) -> Act:
    """Return what is to be done about one thing that a lost blob is."""
    row = use.row
    if isinstance(row, DatasetRow | NetworkRow):
        return "by hand"
    if isinstance(row, ModelRow):
        return "by hand" if _is_needed(session, row) else "mark as removed"
    if isinstance(row, EnsembleMemberRow | PredictionRow):
        return "by hand" if use.what == "input" else "mark as removed"
    federation = session.get_one(FederationRow, row_events.federation_of(session, row))
    if federation.state in TERMINAL_STATES:
        return "mark as removed"
    if isinstance(row, UpdateRow):
        state = session.get_one(RoundRow, row.round_id).state
        if state == "collecting":
            return "ask again"
        return "by hand" if state in ("aggregating", "failed") else "mark as removed"
    if isinstance(row, GanUpdateRow):
        if row.gan_round < federation.gan_round or federation.state != "training_generator":
            return "mark as removed"
        return "ask again" if federation.collect_deadline_at is not None else "by hand"
    return "ask again" if use.what == "discriminator" and federation.state != "scoring" else "by hand"


def _is_needed(session: Session, row: ModelRow) -> bool:
    """Whether a model is what devices get, what an open round started from, or somebody's import."""
    if row.role == "imported":
        return True
    if session.scalars(select(CurrentModelRow.key).where(CurrentModelRow.model_id == row.id).limit(1)).first():
        return True
    open_ = ("collecting", "aggregating", "failed")
    rounds = select(RoundRow).where(RoundRow.federation_id == row.federation_id, RoundRow.state.in_(open_))
    return any(row.id in {*each.base_models.values(), *each.models.values()} for each in session.scalars(rounds))
