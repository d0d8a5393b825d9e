"""Ensembles: what a published round keeps of those who predict together, and for how long."""

from collections.abc import Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.ensembles import rule_of
from contract.federation import FederationConfig
from contract.ids import new_id
from contract.wire.ensembles import EnsembleDocument, Member, Scorer
from service.operations.ledger.clock import now
from service.operations.progress import reading
from service.operations.store.outcome import Outcome
from service.persistence.tables import (
    ClientRow,
    DiscriminatorRow,
    EnsembleMemberRow,
    EnsembleRow,
    FederationRow,
    ModelRow,
    ParticipantRow,
    RoundRow,
)


def keep(session: Session, federation: FederationRow, round_: RoundRow, outcome: Outcome) -> None:
    """Write down a round's ensemble, where its job has made one; rows keep its members' blobs."""
    if not outcome.ensemble:
        return
    config = reading.config_for(session, round_)
    document = _document(session, federation, config, outcome.ensemble)
    row = EnsembleRow(
        id=new_id("ensemble"),
        federation_id=federation.id,
        round_id=round_.id,
        document=document.model_dump(mode="json"),
        created_at=now(),
    )
    session.add(row)
    session.flush()
    clients = _clients(session, round_)
    for position, member in enumerate(document.members):
        client = clients.get(member.client or "")
        session.add(
            EnsembleMemberRow(
                ensemble_id=row.id,
                position=position,
                federation_id=federation.id,
                name=member.name,
                client_id=None if client is None else client.id,
                digest=member.network.digest,
                size=member.size,
            )
        )


def _document(
    session: Session, federation: FederationRow, config: FederationConfig, members: list[Member]
) -> EnsembleDocument:
    weigh, combine = rule_of(config.recipe)
    scorer, discriminators = None, dict[str, str]()
    stage = config.recipe.discriminators
    if config.recipe.reads_scores and stage is not None and any(member.client for member in members):
        current = reading.current_models(session, federation.id)
        span = session.get_one(ModelRow, current[reading.GENERATOR]).metrics["input_range"]
        scorer = Scorer(architecture=stage.plan.architecture, options=stage.plan.options, input_range=tuple(span))
        discriminators = _discriminators(session, federation)
    return EnsembleDocument(
        task=config.task,
        weigh=weigh,
        combine=combine,
        members=[_with_discriminator(member, discriminators) for member in members],
        scorer=scorer,
    )


def _with_discriminator(member: Member, discriminators: Mapping[str, str]) -> Member:
    return member.model_copy(update={"discriminator": discriminators.get(member.client or "")})


def _discriminators(session: Session, federation: FederationRow) -> dict[str, str]:
    rows = session.execute(
        select(ClientRow.name, DiscriminatorRow.digest)
        .join(DiscriminatorRow, DiscriminatorRow.client_id == ClientRow.id)
        .where(DiscriminatorRow.federation_id == federation.id, DiscriminatorRow.scores_digest.is_not(None))
        .order_by(ClientRow.id)
    )
    return dict(rows.tuples())


def _clients(session: Session, round_: RoundRow) -> dict[str, ClientRow]:
    asked = select(ClientRow).join(ParticipantRow, ParticipantRow.client_id == ClientRow.id)
    return {row.name: row for row in session.scalars(asked.where(ParticipantRow.round_id == round_.id))}


def spent(session: Session, federation: FederationRow, kept: list[str] | None) -> list[EnsembleMemberRow]:
    """Return the members that are still here, of rounds that are not kept; None keeps all."""
    if kept is None:
        return []
    mine = select(EnsembleMemberRow).join(EnsembleRow, EnsembleRow.id == EnsembleMemberRow.ensemble_id)
    here = mine.where(EnsembleRow.federation_id == federation.id, EnsembleMemberRow.removed_at.is_(None))
    return list(session.scalars(here.where(EnsembleRow.round_id.not_in(kept))))
