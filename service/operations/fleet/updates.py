"""Updates: what a device may send, and the transaction that makes it count."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from contract import traces
from contract.faults import faults_of
from contract.ids import new_id
from contract.layout import manifest
from contract.local import LocalPlan
from contract.secure.fixed import FixedPoint, residues
from contract.tensors import Header, TensorFile
from contract.updates import SEND, check_predictions
from contract.wire.devices import MetricsText, UpdateMetadata, UpdateMetrics, UpdateReceipt
from service.domain import rounds as rules
from service.domain.buffered import Work
from service.domain.errors import DomainError, invalid_field, not_found
from service.domain.principal import Principal
from service.operations.fleet import clients
from service.operations.fleet.samples import Allowed
from service.operations.ledger import locks
from service.operations.ledger.clock import now, patient
from service.operations.progress import buffered, lifecycle, participants, reading, secure
from service.persistence.tables import (
    ClientRow,
    FederationRow,
    GanUpdateRow,
    ModelRow,
    ParticipantRow,
    RoundRow,
    UpdateRow,
)

Delivered = TypeVar("Delivered", UpdateRow, GanUpdateRow)
_ANSWERED = "answered"
_METRICS: TypeAdapter[UpdateMetrics] = TypeAdapter(MetricsText)
_SPELT = {
    "num_samples": "; in the file's __metadata__ it is a whole number in digits",
    "base_model": "; in the file's __metadata__ it is the id of the round's model",
    "metrics": "; in the file's __metadata__ it is a JSON object as text",
    "control_reset": "; in the file's __metadata__ it is 'true' or 'false'",
}


_OF_WORK = select(UpdateRow).where(
    UpdateRow.begun_in == bindparam("round"),
    UpdateRow.client_id == bindparam("client"),
    UpdateRow.turn == bindparam("turn"),
)


@dataclass(frozen=True)
class Ticket:
    """What is known before a body is read: what it must look like. `round_id` and `turn` say which work it is."""

    round_id: str
    client_id: str
    base_model: str
    base_digest: str
    samples: Allowed
    local: LocalPlan
    num_classes: int
    beside_digest: str | None = None
    fixed: FixedPoint | None = None
    session: str | None = None
    known: bool = False
    current: dict[str, Any] = field(default_factory=dict)
    turn: int = 0

    def manifest(self, base: Header, beside: Header | None) -> Header:
        """Return what the file must hold, given the headers of the round's model and of what came beside it.

        A masked update holds whole numbers, of which each is as good as the other.
        """
        if self.fixed is not None:
            return residues(base, self.fixed)
        return manifest(self.local, base, self.num_classes, beside)


def update_of(session: Session, round_id: str, client_id: str, turn: int = 0) -> UpdateRow | None:
    """Return the client's update that began from a round's model, if it is here."""
    answered = reading.remembered(session, (_ANSWERED, round_id))
    if answered is not None and client_id not in answered:
        return None
    return session.scalars(_OF_WORK, {"round": round_id, "client": client_id, "turn": turn}).first()


def remember(session: Session, round_id: str, client_ids: Collection[str]) -> None:
    """Ask once which of several clients have sent an update of a round; see `reading.at_once`."""
    query = select(UpdateRow.client_id).where(UpdateRow.begun_in == round_id, UpdateRow.client_id.in_(client_ids))
    reading.remember(session, (_ANSWERED, round_id), set(session.scalars(query)))


def _note_answered(session: Session, row: UpdateRow) -> None:
    """See that what was remembered of who has sent holds on."""
    answered = reading.remembered(session, (_ANSWERED, row.begun_in))
    if answered is not None:
        answered.add(row.client_id)


def _current(session: Session, federation_id: str) -> dict[str, Any]:
    """Return what every refusal of an update tells of the round that goes on now."""
    newest = reading.newest_round(session, session.get_one(FederationRow, federation_id))
    return {"current_round": newest.index if newest else None, "current_round_id": newest.id if newest else None}


def refuse_closed(session: Session, round_: RoundRow, why: str) -> DomainError:
    """Return the refusal of what comes too late, with the round that goes on now."""
    return DomainError(
        "round-closed",
        f"{why}; fetch the new assignment and train from its model",
        round=round_.index,
        state=round_.state,
        **_current(session, round_.federation_id),
    )


def admit(session: Session, round_id: str, principal: Principal) -> Ticket:
    """Say whether a device may send an update now, before a byte of it is read.

    Args:
        round_id: of the round, or of a further work from its model (`service.domain.buffered.Work`).

    Raises:
        DomainError: not-found, forbidden, not-selected, round-closed; stale-base-model and already-delivered, where
            rounds do not wait.
    """
    work = Work.read(round_id)
    round_id, round_ = work.round_id, session.get(RoundRow, work.round_id)
    if round_ is None:
        raise not_found("round", round_id)
    principal.need_federation(round_.federation_id)
    client = session.get_one(ClientRow, principal.id)
    participant = session.get(ParticipantRow, (round_id, client.id))
    if participant is None:
        raise DomainError(
            "not-selected",
            f"this client was not asked in round {round_.index}; wait for an assignment",
            **_current(session, round_.federation_id),
        )
    known = update_of(session, round_id, client.id, work.turn)
    if known is None:
        try:
            refuse_if_closed(session, round_, participant, work)
        except DomainError:
            known = update_of(session, round_id, client.id, work.turn)  # it may have come meanwhile, and closed it
            if known is None:
                raise
    if participant.prototype not in round_.base_models:
        raise refuse_closed(session, round_, f"round {round_.index} has no model {participant.prototype!r} yet")
    base = session.get_one(ModelRow, round_.base_models[participant.prototype])
    config = reading.config_for(session, round_)
    return Ticket(
        round_id,
        client.id,
        base.id,
        base.digest,
        Allowed.of(client, config),
        config.local,
        config.task.num_classes,
        _beside_digest(session, round_.federation_id, config.local.objective.shaped_by),
        None if config.rounds.secure is None else config.rounds.secure.fixed,
        round_.secure_session,
        known is not None,
        _current(session, round_.federation_id),
        work.turn,
    )


def _beside_digest(session: Session, federation_id: str, shaped_by: str | None) -> str | None:
    """Return the digest of the file that came beside the model and that the update's tensors are shaped by."""
    model = None if shaped_by is None else reading.carried_state(session, federation_id).get(SEND + shaped_by)
    return None if model is None else session.get_one(ModelRow, model).digest


def refuse_if_closed(session: Session, round_: RoundRow, participant: ParticipantRow, work: Work) -> None:
    """Refuse what comes when the round takes no more from a participant.

    Raises:
        DomainError: round-closed, with the current round; of rounds that do not wait, see `_buffer_of`.
    """
    if round_.buffered:
        _buffer_of(session, work, participant)
        return
    if work.turn:
        raise not_found("round", str(work))
    if round_.state != "collecting":
        raise refuse_closed(session, round_, f"round {round_.index} is {round_.state}")
    federation = session.get_one(FederationRow, round_.federation_id)
    if is_late(federation, round_, participant):
        raise refuse_closed(session, round_, f"the deadline of round {round_.index} has passed")
    if federation.state not in ("running", "paused"):
        raise refuse_closed(session, round_, "the federation takes no updates")
    if round_.secure_phase is not None and not takes_masked(session, round_, participant.client_id):
        raise refuse_closed(session, round_, f"round {round_.index} takes masked updates of those whose masks it knows")


def _buffer_of(session: Session, work: Work, participant: ParticipantRow) -> RoundRow:
    """Return the round that takes a work's update now, where rounds do not wait.

    Raises:
        DomainError: not-found, for a work that nobody was told to do; stale-base-model; round-closed;
            already-delivered, when the buffer has as many of this client as it takes.
    """
    begun = session.get_one(RoundRow, work.round_id)
    if work.turn > buffered.turn_of(session, begun, participant.client_id):
        raise not_found("work", str(work))
    target = buffered.target_of(session, work, participant.prototype)
    most = buffered.plan_of(session, target).per_client
    if buffered.given(session, target, participant.client_id) >= most:
        detail = (
            f"{most} of this client's updates are in round {target.index}, and it takes no more of one client; wait"
        )
        raise DomainError("already-delivered", f"{detail} for the next model", **_current(session, begun.federation_id))
    return target


def takes_masked(session: Session, round_: RoundRow, client_id: str) -> bool:
    """Whether a secure round takes a client's update now: it has shared what unmasks the sum without it."""
    row = secure.member_of(session, round_.id, client_id)
    return round_.secure_phase == "training" and row is not None and row.sealed is not None


def is_late(federation: FederationRow, round_: RoundRow, participant: ParticipantRow | None) -> bool:
    """Whether the deadline has passed for a participant; it counts from when all models of the round are there."""
    if round_.waits_for is not None:
        return False
    return patient(now()) >= (round_.deadline_at if participant is None else closes_at(federation, round_, participant))


def closes_at(federation: FederationRow, round_: RoundRow, participant: ParticipantRow) -> datetime:
    """Return when a round closes for a participant: the grace is for those that have said that they train."""
    if participant.heard_at is None:
        return round_.deadline_at
    return rules.closes_at(round_.deadline_at, reading.config_in(federation, round_).rounds)


def read_metadata(metadata: dict[str, str], ticket: Ticket) -> UpdateMetadata:
    """Check the file's own metadata: base model, session and, of what is not here yet, the sample count.

    Raises:
        DomainError: invalid-field, naming the entry; stale-base-model.
    """
    parsed = parse_metadata(metadata)
    if parsed.base_model != ticket.base_model:
        raise stale(ticket.base_model, parsed.base_model, **ticket.current)
    if parsed.session != ticket.session:
        raise invalid_field("session", f"this round's is {ticket.session!r}; mask for the session of the assignment")
    if not ticket.known:  # what has counted is answered again, whatever was declared since
        ticket.samples.check(parsed.num_samples)
    return parsed


def stale(expected: str, actual: str, **current: Any) -> DomainError:
    """Return the refusal of what was trained from another model than it should have been."""
    return DomainError(
        "stale-base-model",
        "the update was trained from another model than the round's; fetch the assignment and train again",
        expected=expected,
        actual=actual[:64],
        **current,
    )


def parse_metadata(metadata: dict[str, str]) -> UpdateMetadata:
    """Return a file's own metadata.

    Raises:
        DomainError: invalid-field, naming the entry.
    """
    try:
        return UpdateMetadata.read(metadata)
    except ValidationError as error:
        field, message = faults_of(error)[0]
        raise invalid_field(field, message + _SPELT.get(field, "")) from None


def check_spent(metadata: dict[str, str]) -> None:
    """Refuse what was trained before the rounds without saying what that costs: an SDK that knows of no noise there.

    Raises:
        DomainError: invalid-field.
    """
    try:
        metrics = _METRICS.validate_python(metadata.get("metrics", "{}"))
    except ValidationError as error:
        field, message = faults_of(error)[0]
        raise invalid_field(f"metrics.{field}".rstrip("."), message + _SPELT["metrics"]) from None
    if metrics.epsilon is None:
        raise invalid_field(
            "metrics.epsilon",
            "devices of this federation train with differential privacy, and this file does not say what was spent; "
            "update potstill on the device, or put it into the file's __metadata__ under metrics",
        )


def check_values(ticket: Ticket, path: Path) -> None:
    """Look at a file's values where finite is not enough: predictions must be probabilities (DS-FL).

    Raises:
        TensorError: code 'values', naming the row.
    """
    if not ticket.local.objective.sends_weights:
        with TensorFile(path) as file:
            check_predictions(file)


def replayed(row: Delivered, digest: str, **current: Any) -> Delivered:
    """Return the delivery that is here, if the same bytes came again.

    Raises:
        DomainError: already-delivered, for other bytes.
    """
    if row.digest != digest:
        raise DomainError(
            "already-delivered",
            "this client's update of the round is here already; the first one counts",
            expected=row.digest,
            actual=digest,
            **current,
        )
    return row


def accept(
    session: Session, ticket: Ticket, metadata: UpdateMetadata, digest: str, size: int
) -> tuple[UpdateRow, bool]:
    """Make an update count; return its row and whether it is new. A round that is full now is closed with it.

    Raises:
        DomainError: round-closed, already-delivered, invalid-field.
    """
    locks.hold_blobs(session)
    federation_id = session.get_one(RoundRow, ticket.round_id).federation_id  # locked first, as everywhere
    federation = reading.locked(session, federation_id)
    round_ = reading.fresh(session, RoundRow, ticket.round_id)
    work = Work(ticket.round_id, ticket.turn)
    known = update_of(session, ticket.round_id, ticket.client_id, ticket.turn)
    if known is not None:
        return replayed(known, digest, **ticket.current), False
    participant = session.get_one(ParticipantRow, (ticket.round_id, ticket.client_id))
    base = str(round_.base_models.get(participant.prototype, ""))
    if base != ticket.base_model or round_.secure_session != ticket.session:  # restarted while the body came
        raise stale(base, ticket.base_model, **_current(session, round_.federation_id))
    refuse_if_closed(session, round_, participant, work)
    client = clients.still_enrolled(session, ticket.client_id)
    Allowed(client.num_samples, ticket.samples.most).check(metadata.num_samples)  # it may have declared fewer meanwhile
    target = _buffer_of(session, work, participant) if round_.buffered else round_
    row = UpdateRow(
        id=new_id("update"),
        round_id=target.id,
        begun_in=ticket.round_id,
        turn=ticket.turn,
        client_id=ticket.client_id,
        base_model=ticket.base_model,
        digest=digest,
        size=size,
        num_samples=metadata.num_samples,
        control_reset=metadata.control_reset,
        metrics=metadata.metrics.model_dump(exclude_none=True) if metadata.metrics else None,
        received_at=now(),
        traceparent=traces.current(),
    )
    session.add(row)
    session.flush()
    _note_answered(session, row)
    if target.id != round_.id:
        buffered.take_part(session, target, participant)
    participants.answered(session, round_.id, row.client_id)
    lifecycle.answered(session, federation, target)
    return row, True


def receipt(session: Session, row: UpdateRow) -> UpdateReceipt:
    """Return the proof that an update is stored."""
    return UpdateReceipt(
        id=row.id,
        round_id=row.round_id,
        round=session.get_one(RoundRow, row.round_id).index,
        client_id=row.client_id,
        digest=row.digest,
        size=row.size,
        num_samples=row.num_samples,
        received_at=row.received_at,
    )
