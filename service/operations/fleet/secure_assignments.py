"""What a device has to do in the phases of a secure round, read from the database alone."""

from typing import Any

from sqlalchemy.orm import Session

from contract.secure.weights import is_weighted
from contract.wire import devices as wire
from contract.wire.secure import SecureKeys, SecureRound
from service.domain.secure import Group
from service.operations.progress import reading, secure
from service.persistence.tables import ClientRow, FederationRow, ParticipantRow, RoundRow, SecureMemberRow

_OTHERS = "waits for what other clients say"


def round_of(federation: FederationRow, round_: RoundRow) -> wire.AssignedRound:
    """Return the round as a device works for it."""
    plan = reading.config_in(federation, round_).rounds
    return wire.AssignedRound(
        id=round_.id,
        index=round_.index,
        total=plan.total,
        deadline_at=round_.deadline_at,
        heartbeat_seconds=plan.heartbeat_seconds,
    )


def session_of(federation: FederationRow, round_: RoundRow, model: str) -> SecureRound:
    """Return the session of secure aggregation that a model's devices are in."""
    config = reading.config_of(federation)
    plan = config.rounds.secure
    assert plan is not None
    return SecureRound.model_validate(
        {
            "session": round_.secure_session,
            "model": model,
            "phase": round_.secure_phase,
            "until": round_.secure_until,
            "weighted": is_weighted(config.recipe.fuse),
            **plan.model_dump(include={"threshold", "min_group", "clip", "bits", "modulus_bits"}),
        }
    )


def of_training(
    session: Session, federation: FederationRow, round_: RoundRow, participant: ParticipantRow
) -> dict[str, Any]:
    """Return what an assignment to train says beside the model, where the round is secure."""
    if round_.secure_phase is None:
        return {}
    group = secure.groups_of(session, federation, round_)[participant.prototype]
    return {"secure": session_of(federation, round_, participant.prototype), "members": group.sharing}


def read(
    session: Session,
    federation: FederationRow,
    round_: RoundRow,
    participant: ParticipantRow,
    client: ClientRow,
    common: dict[str, Any],
) -> wire.Assignment | None:
    """Return what a participant of a secure round has to say now, or why it waits; None when it is to train."""
    if round_.secure_phase is None:  # never: it would be asked for its update in the clear
        return _wait(common, round_, "has no session of secure aggregation")
    row = secure.member_of(session, round_.id, client.id)
    shown = common | {"round": round_of(federation, round_)}
    shown |= {"secure": session_of(federation, round_, participant.prototype)}
    if round_.secure_phase == "keys":
        return wire.SecureKeysAssignment(**shown) if row is None else _wait(common, round_, _OTHERS)
    if row is None or (round_.secure_phase != "shares" and row.sealed is None):
        return _wait(common, round_, "goes on without this client")
    if round_.secure_phase == "training":
        return None
    if round_.secure_phase != "shares" and not row.survives:
        return _wait(common, round_, "goes on without this client")
    group = secure.groups_of(session, federation, round_)[participant.prototype]
    asked = _asked(session, round_, participant.prototype, row, client, group, shown)
    return _wait(common, round_, _OTHERS) if asked is None else asked


def _asked(
    session: Session,
    round_: RoundRow,
    model: str,
    row: SecureMemberRow,
    client: ClientRow,
    group: Group,
    shown: dict[str, Any],
) -> wire.Assignment | None:
    said = secure.rows_of(session, round_)[model]
    if round_.secure_phase == "shares" and row.sealed is None:
        peers = {name: SecureKeys.model_validate(each.keys) for name, (_, each) in said.items()}
        return wire.SecureSharesAssignment(**shown, peers=peers)
    if round_.secure_phase == "confirm" and row.survives and row.signature is None:
        return wire.SecureConfirmAssignment(**shown, survivors=group.survivors)
    if round_.secure_phase == "reveal" and row.survives and row.signature is not None and row.revealed is None:
        signatures = {name: each.signature for name, (_, each) in said.items() if each.signature is not None}
        around = {name: said[name][1].sealed or {} for name in group.graph.adjacent[client.name]}
        sealed = {name: shares[client.name] for name, shares in around.items() if client.name in shares}
        return wire.SecureRevealAssignment(**shown, signatures=signatures, sealed=sealed)
    return None


def _wait(common: dict[str, Any], round_: RoundRow, reason: str) -> wire.Assignment:
    return wire.WaitAssignment(**common, reason=f"round {round_.index} {reason}")
