"""What clients and federations leave behind is deleted on an operator's word; an audit line says that it was."""

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from contract.wire import erasure as wire
from contract.wire.federations import TERMINAL_STATES
from service.domain import carried
from service.domain.errors import DomainError, not_found
from service.operations.fleet import clients
from service.operations.ledger import after_commit, audit, garbage
from service.operations.progress import lifecycle, reading, sharing
from service.operations.steer import retention, rollback
from service.operations.store import predictions
from service.persistence.tables import (
    Base,
    ClientRow,
    CurrentModelRow,
    DiscriminatorRow,
    EnsembleMemberRow,
    EnsembleRow,
    FederationRow,
    GanUpdateRow,
    JobRow,
    LabelShardRow,
    ModelRow,
    ParticipantRow,
    PredictionInputRow,
    PredictionRow,
    ProvenanceRow,
    RoundRow,
    SecureMemberRow,
    TrafficRow,
    UpdateRow,
)


def forget_client(session: Session, federation_id: str, client_id: str) -> wire.Forgotten:
    """Revoke a client and delete what it sent: what is not fused yet does not count any more.

    Models that its updates are part of stay, and are named; documents of provenance keep its name.

    Raises:
        DomainError: not-found; in-use, while a job may be reading what it sent.
    """
    row = session.get(ClientRow, client_id)
    if row is None or row.federation_id != federation_id:
        raise not_found("client", client_id)
    federation = reading.locked(session, federation_id)
    _refuse_while_working(session, federation)
    updates, unfused = _updates(session, federation, client_id)
    generators = list(session.scalars(select(GanUpdateRow).where(GanUpdateRow.client_id == client_id)))
    discriminators = list(session.scalars(select(DiscriminatorRow).where(DiscriminatorRow.client_id == client_id)))
    sent: list[garbage.Removable] = [*updates, *generators, *discriminators]
    here = [each for each in sent if each.removed_at is None]
    theirs = EnsembleMemberRow.client_id == client_id, EnsembleMemberRow.removed_at.is_(None)
    members = list(session.scalars(select(EnsembleMemberRow).where(*theirs)))
    kept = _kept(session, federation, row.name)
    deleted = wire.Deleted(
        updates=sum(isinstance(each, UpdateRow) for each in here),
        generators=sum(isinstance(each, GanUpdateRow) for each in here),
        discriminators=sum(isinstance(each, DiscriminatorRow) for each in here),
        members=len(members),
        kept=len(kept),
        bytes=sum({each.digest: each.size for each in (*here, *members, *kept)}.values()),
    )
    garbage.let_go(session, [*here, *members, *kept])
    sharing.let_go_of_all(session, federation_id)  # the client's model spoke, too; the others are asked again
    predictions.take_away(session, {each.digest for each in (*sent, *members) if each.digest is not None})
    for unsent in (*unfused, *(each for each in generators if each.gan_round == federation.gan_round)):
        session.delete(unsent)
    row.label_counts, row.capabilities = None, {}
    session.flush()
    direct, later = _including(session, federation, updates, unfused)
    lifecycle.give_up_sums(session, federation, {each.round_id for each in unfused if each.excluded is None})
    clients.revoke(session, federation_id, client_id)
    audit.record(session, "client.forget", client_id, federation=federation_id, name=row.name, models=len(direct))
    return wire.Forgotten(client_id=client_id, deleted=deleted, models=direct, descendants=later)


def _refuse_while_working(session: Session, federation: FederationRow) -> None:
    """Refuse while a worker may be reading what is to be deleted.

    Raises:
        DomainError: in-use.
    """
    job = session.scalars(
        select(JobRow).where(JobRow.federation_id == federation.id, JobRow.state == "running").limit(1)
    ).first()
    if job is not None:
        raise DomainError("in-use", f"job {job.id} ({job.kind}) may be reading it; ask again when it has ended")


def _kept(session: Session, federation: FederationRow, client: str) -> list[ModelRow]:
    """Return what rounds have kept that tells of a client, that of earlier ones too; no round reads it any more."""
    mine = ModelRow.federation_id == federation.id, ModelRow.role == "state", ModelRow.removed_at.is_(None)
    rows = list(session.scalars(select(ModelRow).where(*mine)))
    names = carried.of_client({row.name for row in rows if row.name is not None}, client)
    rollback.drop_state(session, federation, names)
    return [row for row in rows if row.name in names]


def _updates(session: Session, federation: FederationRow, client_id: str) -> tuple[list[UpdateRow], list[UpdateRow]]:
    """Return all updates of a client, and those of them that are still to be fused."""
    updates = list(session.scalars(select(UpdateRow).where(UpdateRow.client_id == client_id)))
    waiting = set(
        session.scalars(
            select(RoundRow.id).where(RoundRow.federation_id == federation.id, retention.is_needed(federation))
        )
    )
    return updates, [each for each in updates if each.round_id in waiting]


def _including(
    session: Session, federation: FederationRow, updates: list[UpdateRow], unfused: list[UpdateRow]
) -> tuple[list[str], list[str]]:
    """Return the models that were made from a client's updates, and those of later rounds, which began from them."""
    fused = {each.round_id for each in updates if each not in unfused and each.excluded is None}
    rounds = session.scalars(select(RoundRow).where(RoundRow.federation_id == federation.id, RoundRow.id.in_(fused)))
    published = [round_ for round_ in rounds if round_.models]
    if not published:
        return [], []
    direct = {id_ for round_ in published for id_ in round_.models.values()}
    first = min(round_.index for round_ in published)
    after = session.scalars(
        select(ModelRow.id)
        .where(ModelRow.federation_id == federation.id, ModelRow.role == "global", ModelRow.round_index > first)
        .order_by(ModelRow.id)
    )
    return sorted(direct), [id_ for id_ in after if id_ not in direct]


# ---------------------------------------------------------------------------------------------------------- federations
_ROWS: tuple[type[Base], ...] = (
    EnsembleMemberRow,
    EnsembleRow,
    PredictionRow,
    CurrentModelRow,
    DiscriminatorRow,
    GanUpdateRow,
    ModelRow,
    ProvenanceRow,
    LabelShardRow,
    JobRow,
    TrafficRow,
)


def delete_federation(session: Session, federation_id: str) -> None:
    """Delete a federation that has ended, with all its rows and blobs: clients, rounds, models, provenance.

    Raises:
        DomainError: not-found; invalid-transition, unless it has ended; in-use, while a job of it still runs or another
            federation is to start from one of its models.
    """
    if session.get(FederationRow, federation_id) is None:
        raise not_found("federation", federation_id)
    federation = reading.locked(session, federation_id)
    if federation.state not in TERMINAL_STATES:
        detail = f"the federation is {federation.state}; cancel it first, or wait until it has finished"
        raise DomainError("invalid-transition", detail, state=federation.state)
    _refuse_while_working(session, federation)
    _refuse_if_wanted(session, federation)
    _release_all(session, federation)
    rounds = select(RoundRow.id).where(RoundRow.federation_id == federation_id)
    for table in (UpdateRow, ParticipantRow, SecureMemberRow):
        session.execute(delete(table).where(table.round_id.in_(rounds)))
    asked = select(PredictionRow.id).where(PredictionRow.federation_id == federation_id)
    session.execute(delete(PredictionInputRow).where(PredictionInputRow.prediction_id.in_(asked)))
    session.execute(update(ModelRow).where(ModelRow.federation_id == federation_id).values(provenance_id=None))
    for row in _ROWS:
        session.execute(delete(row).where(row.__table__.c.federation_id == federation_id))
    session.execute(delete(RoundRow).where(RoundRow.federation_id == federation_id))
    session.execute(delete(ClientRow).where(ClientRow.federation_id == federation_id))
    audit.record(session, "federation.delete", federation_id, federation=federation_id, name=federation.name)
    session.delete(federation)
    session.flush()


def _refuse_if_wanted(session: Session, federation: FederationRow) -> None:
    own = set(session.scalars(select(ModelRow.id).where(ModelRow.federation_id == federation.id)))
    wanted = own & retention.imported(session, without=federation.id)
    if wanted:
        raise DomainError("in-use", f"another federation is to start from {min(wanted)}; delete or cancel that first")


def _release_all(session: Session, federation: FederationRow) -> None:
    """Let go of every blob that a row of the federation names."""
    mine = select(ClientRow.id).where(ClientRow.federation_id == federation.id)
    queries = (
        select(ModelRow.digest).where(ModelRow.federation_id == federation.id),
        select(DiscriminatorRow.digest).where(DiscriminatorRow.federation_id == federation.id),
        select(DiscriminatorRow.scores_digest).where(DiscriminatorRow.federation_id == federation.id),
        select(GanUpdateRow.digest).where(GanUpdateRow.federation_id == federation.id),
        select(UpdateRow.digest).where(UpdateRow.client_id.in_(mine)),
        select(LabelShardRow.digest).where(LabelShardRow.federation_id == federation.id),
        select(EnsembleMemberRow.digest).where(EnsembleMemberRow.federation_id == federation.id),
        select(PredictionRow.digest).where(PredictionRow.federation_id == federation.id),
        select(PredictionInputRow.digest)
        .join(PredictionRow, PredictionRow.id == PredictionInputRow.prediction_id)
        .where(PredictionRow.federation_id == federation.id),
    )
    digests = {digest for query in queries for digest in session.scalars(query) if digest is not None}
    after_commit.release_blobs(session, digests)
