"""Documents of provenance by what people call them."""

import json
from collections.abc import Iterator

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.domain.errors import not_found
from service.domain.states import LIVE
from service.operations.progress import jobs, reading
from service.operations.store import models, provenance
from service.persistence.tables import DatasetRow, FederationRow, JobRow, ModelRow, ProvenanceRow, RoundRow


def find(session: Session, reference: str) -> ProvenanceRow:
    """Return the document of a round, model or job by its id, or of a round as `federation:index`.

    Raises:
        DomainError: not-found.
    """
    if reference.startswith("mdl_"):
        return provenance.of_model(session, models.get(session, reference))
    if reference.startswith("job_"):
        return provenance.of_job(session, jobs.get(session, reference))
    name, sign, index = reference.rpartition(":")
    if not sign or not index.isascii() or not index.isdigit():
        return provenance.of_round(session, reading.get_round(session, reference))
    federation = _federation(session, name)
    round_ = session.scalars(
        select(RoundRow).where(RoundRow.federation_id == federation.id, RoundRow.index == int(index))
    ).first()
    if round_ is None:
        raise not_found("round", reference)
    return provenance.of_round(session, round_)


def of_federation(session: Session, name_or_id: str) -> list[ProvenanceRow]:
    """Return all documents of a federation in the order they were made.

    Raises:
        DomainError: not-found.
    """
    federation = _federation(session, name_or_id)
    rows = select(ProvenanceRow).where(ProvenanceRow.federation_id == federation.id).order_by(ProvenanceRow.id)
    return list(session.scalars(rows))


def _federation(session: Session, name_or_id: str) -> FederationRow:
    row = (
        session.get(FederationRow, name_or_id)
        or session.scalars(select(FederationRow).where(FederationRow.name == name_or_id)).first()
    )
    if row is None:
        raise not_found("federation", name_or_id)
    return row


def title(session: Session, row: ProvenanceRow) -> str:
    """Return what a document is of, in words."""
    federation = session.get_one(FederationRow, row.federation_id).name
    if row.round_id is not None:
        part = json.loads(row.document).get("part")
        return f"{federation} round {session.get_one(RoundRow, row.round_id).index}" + (f" ({part})" if part else "")
    return f"{federation} {session.get_one(JobRow, row.job_id).kind} {row.job_id}"


def damaged(session: Session) -> tuple[int, list[str]]:
    """Return how many documents there are, and the ids of those whose text does not match its digest."""
    count, wrong = 0, []
    for id_, digest, text in session.execute(select(ProvenanceRow.id, ProvenanceRow.digest, ProvenanceRow.document)):
        count += 1
        if provenance.digest_of(text) != digest:
            wrong.append(id_)
    return count, wrong


def dangling(session: Session) -> Iterator[tuple[str, str, str]]:
    """Yield (where, what, id) of what open rounds and live federations name and that is not there."""
    models, sets = set(session.scalars(select(ModelRow.id))), set(session.scalars(select(DatasetRow.id)))
    for row in session.scalars(select(RoundRow).where(RoundRow.state.in_(("collecting", "aggregating", "failed")))):
        for id_ in sorted({*row.base_models.values(), *row.models.values()} - models):
            yield f"round {row.id}", "model", id_
    for federation in session.scalars(select(FederationRow).where(FederationRow.state.in_(LIVE))):
        for id_ in sorted({id_ for id_ in federation.config["datasets"].values() if id_ is not None} - sets):
            yield f"federation {federation.name}", "data set", id_
