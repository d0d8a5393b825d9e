"""Blobs that are damaged or missing: what they are to people, and what is written down and done about it."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.infra.blobs import BlobFault, BlobStore
from service.operations.ledger import audit, locks, row_events
from service.operations.ledger.garbage import Named
from service.persistence.tables import (
    ClientRow,
    DatasetRow,
    DiscriminatorRow,
    EnsembleMemberRow,
    EnsembleRow,
    GanUpdateRow,
    ModelRow,
    NetworkRow,
    PredictionInputRow,
    PredictionRow,
    RoundRow,
    UpdateRow,
)

log = logging.getLogger("service.faults")
_PUT_BACK = "put its file back from a backup"


@dataclass(frozen=True)
class Use:
    """One thing that a blob is.

    Attributes:
        what: update, generator update, discriminator, scores, model, data set, network, member, prediction, input.
        row: of the database.
        title: what it is to people.
        remedy: what an operator can do.
        members: what a problem and an event tell of it.
    """

    what: str
    row: Named
    title: str
    remedy: str
    members: dict[str, Any] = field(default_factory=dict)


def uses(session: Session, digest: str) -> list[Use]:
    """Return all that a blob is and that is still needed."""
    stored = [*_deliveries(session, digest), *_discriminators(session, digest), *_stored(session, digest)]
    return [*stored, *_members(session, digest), *_predictions(session, digest)]


def _deliveries(session: Session, digest: str) -> Iterator[Use]:
    remedy = "retry without it, or let the device send the same file again"
    for row, client, round_ in session.execute(
        select(UpdateRow, ClientRow, RoundRow)
        .join(ClientRow, ClientRow.id == UpdateRow.client_id)
        .join(RoundRow, RoundRow.id == UpdateRow.round_id)
        .where(UpdateRow.digest == digest, UpdateRow.removed_at.is_(None))
        .order_by(RoundRow.index, ClientRow.name)
    ):
        members = {"client": client.name, "round": round_.index}
        yield Use("update", row, f"the update of {client.name!r} in round {round_.index}", remedy, members)
    for sent, client in session.execute(
        select(GanUpdateRow, ClientRow)
        .join(ClientRow, ClientRow.id == GanUpdateRow.client_id)
        .where(GanUpdateRow.digest == digest, GanUpdateRow.removed_at.is_(None))
        .order_by(ClientRow.name)
    ):
        title = f"the generator of {client.name!r} in its round {sent.gan_round}"
        yield Use("generator update", sent, title, "the device is asked to send it again", {"client": client.name})


def _discriminators(session: Session, digest: str) -> Iterator[Use]:
    query = (
        select(DiscriminatorRow, ClientRow)
        .join(ClientRow, ClientRow.id == DiscriminatorRow.client_id)
        .where(DiscriminatorRow.removed_at.is_(None))
        .where((DiscriminatorRow.digest == digest) | (DiscriminatorRow.scores_digest == digest))
        .order_by(ClientRow.name)
    )
    for row, client in session.execute(query):
        members = {"client": client.name}
        if row.digest == digest:
            title = f"the discriminator of {client.name!r}"
            yield Use("discriminator", row, title, "the device is asked to send it again", members)
        else:
            title, remedy = f"the scores of {client.name!r}", "retry without it; it is scored again meanwhile"
            yield Use("scores", row, title, remedy, members)


def _stored(session: Session, digest: str) -> Iterator[Use]:
    models = select(ModelRow).where(ModelRow.digest == digest, ModelRow.removed_at.is_(None)).order_by(ModelRow.id)
    for row in session.scalars(models):
        called = f"{row.role} {row.prototype or row.name or ''}".strip()
        where = f" of round {row.round_index}" if row.round_index else ""
        remedy = f"{_PUT_BACK}, import a copy of it (POST /v1/models), or roll back to another model"
        members = {"model": row.id, **({} if row.federation_id is None else {"federation": row.federation_id})}
        yield Use("model", row, f"model {row.id} ({called}{where})", remedy, members)
    for data in session.scalars(select(DatasetRow).where(DatasetRow.digest == digest).order_by(DatasetRow.name)):
        remedy = f"{_PUT_BACK}, or add the same file again: potstill dataset add {data.name} FILE"
        yield Use("data set", data, f"data set {data.name!r}", remedy, {"dataset": data.name})
    for network in session.scalars(select(NetworkRow).where(NetworkRow.digest == digest)):
        remedy = f"{_PUT_BACK}, or register the same document again: potstill network register {network.name} FILE"
        yield Use("network", network, f"network {network.name!r}", remedy, {"network": network.name})


def _members(session: Session, digest: str) -> Iterator[Use]:
    for row, round_ in session.execute(
        select(EnsembleMemberRow, RoundRow)
        .join(EnsembleRow, EnsembleRow.id == EnsembleMemberRow.ensemble_id)
        .join(RoundRow, RoundRow.id == EnsembleRow.round_id)
        .where(EnsembleMemberRow.digest == digest, EnsembleMemberRow.removed_at.is_(None))
        .order_by(RoundRow.id, EnsembleMemberRow.position)
    ):
        members = {"round": round_.index, "federation": row.federation_id}
        yield Use("member", row, f"{row.name!r} of the ensemble of round {round_.index}", _PUT_BACK, members)


def _predictions(session: Session, digest: str) -> Iterator[Use]:
    made = select(PredictionRow).where(PredictionRow.digest == digest, PredictionRow.removed_at.is_(None))
    for row in session.scalars(made.order_by(PredictionRow.id)):
        yield Use("prediction", row, f"prediction {row.id}", "ask for it again", {"federation": row.federation_id})
    read = select(PredictionRow).join(PredictionInputRow, PredictionInputRow.prediction_id == PredictionRow.id)
    for row in session.scalars(read.where(PredictionInputRow.digest == digest).order_by(PredictionRow.id)):
        members = {"federation": row.federation_id}
        yield Use("input", row, f"an input of prediction {row.id}", "ask for the prediction again", members)


def explain(fault: BlobFault, found: list[Use]) -> str:
    """Return one sentence on what is the matter and what can be done."""
    if not found:
        return f"the file {fault.digest} is {fault.state}, and nothing needs it any more"
    titles = " and ".join(use.title for use in found)
    return f"the file of {titles} is {fault.state} ({fault.digest}); {found[0].remedy}"


def members(found: list[Use]) -> dict[str, Any]:
    """Return what a problem tells of a fault, the first of its kind where a blob is several things."""
    told: dict[str, Any] = {}
    for use in found:
        told = use.members | told
    return told


def note(session: Session, blobs: BlobStore, fault: BlobFault) -> list[Use]:
    """Set a damaged blob aside and tell of the fault in events and audit log; return what the blob is.

    A blob that nothing names is set aside without a word. To be called within a transaction, before its other locks.
    """
    locks.lock_blobs(session)
    found = uses(session, fault.digest)
    aside = fault.state == "damaged" and blobs.set_aside(fault)
    log.error("%s%s", explain(fault, found), "; it was set aside" if aside else "")
    for use in found:
        more = {"what": use.what, "digest": fault.digest, "detail": use.title}
        row_events.note(session, f"blob.{fault.state}", use.row, **more)
    if aside:
        whose = {"what": ", ".join(use.title for use in found) or "unnamed"}
        federation = next((row_events.federation_of(session, use.row) for use in found), None)
        audit.record(session, "blob.quarantine", fault.digest, federation=federation, **whose)
    return found


def note_restored(session: Session, row: Named, digest: str | None) -> None:
    """Tell that a missing file is back: the same bytes came again."""
    row_events.note(session, "blob.restored", row, digest=digest)
