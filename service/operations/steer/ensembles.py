"""Ensembles: what a published round keeps of those who predict together, and for how long."""

from collections.abc import Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.ensembles import rule_of
from contract.federation import FederationConfig
from contract.ids import new_id
from contract.wire.ensembles import EnsembleDocument, Member, Scorer
from service.operations.ledger import entries
from service.operations.ledger.clock import now
from service.operations.progress import reading
from service.operations.store.outcome import Outcome
from service.persistence.tables import (
    DiscriminatorRow,
    EnsembleMemberRow,
    EnsembleRow,
    FederationRow,
    ModelRow,
    RoundRow,
)


def keep(session: Session, federation: FederationRow, round_: RoundRow, outcome: Outcome) -> None:
    """Write down a round's ensemble, where its job has made one; rows keep its members' blobs."""
    if not outcome.ensemble:
        return
    clients = _clients(session, round_)
    document = _document(session, federation, reading.config_for(session, round_), outcome.ensemble, clients)
    row = EnsembleRow(
        id=new_id("ensemble"),
        federation_id=federation.id,
        round_id=round_.id,
        document=document.model_dump(mode="json"),
        created_at=now(),
    )
    session.add(row)
    session.flush()
    session.add_all(_member(row, position, each, clients) for position, each in enumerate(document.members))


def _member(row: EnsembleRow, position: int, member: Member, clients: Mapping[str, str]) -> EnsembleMemberRow:
    return EnsembleMemberRow(
        ensemble_id=row.id,
        position=position,
        federation_id=row.federation_id,
        name=member.name,
        client_id=clients.get(member.client or ""),
        digest=member.network.digest,
        size=member.size,
    )


def _document(
    session: Session,
    federation: FederationRow,
    config: FederationConfig,
    members: list[Member],
    clients: Mapping[str, str],
) -> EnsembleDocument:
    weigh, combine = rule_of(config.recipe)
    stage, scorer = config.recipe.discriminators, None
    if config.recipe.reads_scores and stage is not None and any(member.client for member in members):
        current = reading.current_models(session, federation.id)
        span = session.get_one(ModelRow, current[reading.GENERATOR]).metrics["input_range"]
        scorer = Scorer(architecture=stage.plan.architecture, options=stage.plan.options, input_range=tuple(span))
        members = [_with_discriminator(session, member, clients) for member in members]
    return EnsembleDocument(task=config.task, weigh=weigh, combine=combine, members=members, scorer=scorer)


def _with_discriminator(session: Session, member: Member, clients: Mapping[str, str]) -> Member:
    theirs = DiscriminatorRow.client_id == clients.get(member.client or "")
    digest = session.scalars(select(DiscriminatorRow.digest).where(theirs)).first()
    return member.model_copy(update={"discriminator": digest})


def _clients(session: Session, round_: RoundRow) -> dict[str, str]:
    """Return name, or what the update is called -> id of the clients whose updates are fused."""
    fused = (each for each in entries.of_round(session, round_) if each.row.excluded is None)
    return {each.label: each.client.id for each in fused}


def spent(session: Session, federation: FederationRow, kept: list[str] | None) -> list[EnsembleMemberRow]:
    """Return the members that are still here, of rounds that are not kept; None keeps all."""
    if kept is None:
        return []
    mine = select(EnsembleMemberRow).join(EnsembleRow, EnsembleRow.id == EnsembleMemberRow.ensemble_id)
    here = mine.where(EnsembleRow.federation_id == federation.id, EnsembleMemberRow.removed_at.is_(None))
    return list(session.scalars(here.where(EnsembleRow.round_id.not_in(kept))))
