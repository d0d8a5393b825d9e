"""Models, and what is carried to the next round, that a job's result adds to a federation."""

from typing import Any

from sqlalchemy import delete
from sqlalchemy.orm import Session

from contract.ids import new_id
from contract.updates import SEND
from contract.wire.federations import Prototype
from service.operations.ledger.clock import now
from service.operations.progress import reading
from service.operations.store.outcome import Outcome
from service.persistence.tables import CurrentModelRow, FederationRow, ModelRow, RoundRow


def add_model(
    session: Session, federation: FederationRow, key: str, file: tuple[str, int], role: str, **values: Any
) -> ModelRow:
    """Add a model of a role, whose file is given as (digest, size), and make it current under a key."""
    model = ModelRow(
        id=new_id("model"),
        federation_id=federation.id,
        role=role,
        digest=file[0],
        size=file[1],
        created_at=now(),
        **{"parents": [], "metrics": {}, "options": {}, **values},
    )
    session.add(model)
    session.flush()
    session.merge(CurrentModelRow(federation_id=federation.id, key=key, model_id=model.id))
    return model


def add_prototype_model(
    session: Session, federation: FederationRow, prototype: Prototype, file: tuple[str, int], role: str, **values: Any
) -> ModelRow:
    """Add a model of a prototype and make it what devices get next."""
    return add_model(
        session,
        federation,
        reading.prototype_key(prototype.name),
        file,
        role,
        prototype=prototype.name,
        architecture=prototype.architecture,
        options=prototype.options,
        **values,
    )


def figures_of(outcome: Outcome, prototype: str) -> dict[str, Any]:
    """Return what was measured of a prototype's new model: its main figure, all, the gate's, what its network costs."""
    model = outcome.metrics.get("model", {})
    measured, key = model.get("prototypes", {}).get(prototype), "measured" if "measured" in model else "accuracy"
    measures = model.get("measures", {}).get(prototype)
    gate = outcome.metrics.get("gate", {})
    gate = {} if gate.get("metric") == "devices" else gate  # that is of the models before these
    after = gate.get("models", {}).get(prototype, {}).get("after")
    network = outcome.metrics.get("networks", {}).get(prototype)
    metric = outcome.metrics.get("metric")
    found = {
        key: measured,
        "metric": metric if key == "measured" else None,
        "measures": measures,
        gate.get("metric", ""): after,
        "network": network,
    }
    return {name: value for name, value in found.items() if value is not None}


def carry(session: Session, federation: FederationRow, round_: RoundRow | None, outcome: Outcome) -> None:
    """Replace what the recipe hands from round to round; what it no longer names stays as long as retention has it."""
    if outcome.state is None:
        return
    for name, id_ in reading.carried_state(session, federation.id).items():
        old = session.get_one(ModelRow, id_)
        if outcome.state.get(name, ("", 0))[0] == old.digest:
            continue
        session.execute(
            delete(CurrentModelRow).where(
                CurrentModelRow.federation_id == federation.id, CurrentModelRow.key == reading.state_key(name)
            )
        )
    session.flush()
    there = reading.carried_state(session, federation.id)
    made = {
        "round_id": round_.id if round_ else None,
        "round_index": round_.index if round_ else 0,
        "provenance_id": outcome.provenance_id,
    }
    for name, file in outcome.state.items():
        if name not in there:
            add_model(session, federation, reading.state_key(name), file, "state", name=name, **made)


def sent(session: Session, federation: FederationRow) -> dict[str, int]:
    """Return name -> bytes of what devices are sent beside the model from now on; its rows go when others follow."""
    kept = reading.carried_state(session, federation.id)
    return {name: session.get_one(ModelRow, id_).size for name, id_ in kept.items() if name.startswith(SEND)}
