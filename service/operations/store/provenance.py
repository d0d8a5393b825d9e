"""What a model was made from: one document for each publication, written in its transaction and never changed.

It holds the job's description with a digest for every file, which is all that is needed to make the same bytes again,
and beside each digest what it is in this service's books.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.ids import new_id
from contract.wire import provenance as wire
from service.domain.errors import not_found
from service.operations.ledger import entries, garbage
from service.operations.ledger.clock import now
from service.operations.store.outcome import Outcome
from service.persistence.tables import (
    ClientRow,
    DatasetRow,
    DiscriminatorRow,
    FederationRow,
    GanUpdateRow,
    JobRow,
    ModelRow,
    NetworkRow,
    ProvenanceRow,
    RoundRow,
    UpdateRow,
)

VERSION = 1
_DIGEST = re.compile(r"sha256-[0-9a-f]{64}")
Place = tuple[str | int, ...]
Books = dict[str, dict[str, Any]]


def record(
    session: Session, federation: FederationRow, job: JobRow, outcome: Outcome, part: str | None = None
) -> str | None:
    """Write down where a result comes from; return the document's id, or None where the worker told nothing.

    Args:
        part: `groups` for what a round's job hands over before it ends; None for its whole result.
    """
    if outcome.origin is None:
        return None
    spec = outcome.origin["spec"]
    document = {
        "version": VERSION,
        "kind": job.kind,
        "part": part,
        "federation": {"id": federation.id, "name": federation.name},
        "round": _round(session, job),
        "job": {"id": job.id, "attempt": job.attempt},
        "spec": spec,
        "inputs": _inputs(session, federation, job, spec, outcome.metrics.get("weights", {})),
        "outputs": {"models": _digests(outcome.files), "state": outcome.state and _digests(outcome.state)},
        "seeds": {"federation": federation.seed, "derived": outcome.origin["seeds"]},
        "code": outcome.origin["code"],
        "environment": outcome.origin["environment"],
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    row = ProvenanceRow(
        id=new_id("provenance"),
        federation_id=federation.id,
        round_id=job.round_id,
        job_id=job.id,
        digest=digest_of(text),
        document=text,
        created_at=now(),
    )
    session.add(row)
    session.flush()
    return row.id


def digest_of(document: str) -> str:
    """Return a document's digest."""
    return f"sha256-{hashlib.sha256(document.encode()).hexdigest()}"


def _digests(files: dict[str, tuple[str, int]]) -> dict[str, str]:
    return {name: digest for name, (digest, _) in files.items()}


def _round(session: Session, job: JobRow) -> dict[str, Any] | None:
    if job.round_id is None:
        return None
    return {"id": job.round_id, "index": session.get_one(RoundRow, job.round_id).index}


def places(tree: Any, path: Place = ()) -> Iterator[tuple[Place, str]]:
    """Yield where a description names a blob, and its digest."""
    if isinstance(tree, str) and _DIGEST.fullmatch(tree):
        yield path, tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from places(value, (*path, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from places(value, (*path, index))


def _inputs(
    session: Session, federation: FederationRow, job: JobRow, spec: dict[str, Any], weights: dict[str, Any]
) -> list[dict[str, Any]]:
    found = list(places(spec))
    sent = _sent(session, federation, job)
    books = _models(session, federation, {digest for place, digest in found if place[0] != "updates"})
    rest = {digest for place, digest in found if place[0] != "updates" and digest not in books}
    if rest:
        books |= _discriminators(session, federation, rest) | _datasets(session, rest) | _networks(session, rest)
    inputs = []
    for place, digest in found:
        known = books.get(digest, {})
        if place[0] == "updates" and place[-1] == "weights":
            client = spec["updates"][place[1]]["client"]
            known = sent.get(client, {}) | {"weight": weights.get(client)}
        inputs.append({"place": list(place), "digest": digest, **known})
    return inputs


def _sent(session: Session, federation: FederationRow, job: JobRow) -> Books:
    """Return client name, or what its update is called -> what it sent to the job's round, of its kind."""
    sent: Iterable[tuple[str, ClientRow, UpdateRow | GanUpdateRow]]
    if job.round_id is not None:
        listed = entries.of_round(session, session.get_one(RoundRow, job.round_id))
        sent = ((each.label, each.client, each.row) for each in listed)
    else:
        query = select(ClientRow, GanUpdateRow).join(GanUpdateRow, GanUpdateRow.client_id == ClientRow.id)
        query = query.where(GanUpdateRow.federation_id == federation.id, GanUpdateRow.gan_round == federation.gan_round)
        sent = ((client.name, client, row) for client, row in session.execute(query))
    return {
        called: {
            "kind": "update",
            "id": row.id,
            "client_id": client.id,
            "client": client.name,
            "num_samples": row.num_samples,
            "size": row.size,
        }
        for called, client, row in sent
    }


def _models(session: Session, federation: FederationRow, digests: set[str]) -> Books:
    """Return digest -> the newest model of these bytes, of this federation or imported."""
    rows = session.scalars(
        select(ModelRow)
        .where(
            ModelRow.digest.in_(digests),
            (ModelRow.federation_id == federation.id) | ModelRow.federation_id.is_(None),
        )
        .order_by(ModelRow.id)
    )
    return {
        row.digest: {
            "kind": "model",
            "id": row.id,
            "role": row.role,
            "round": row.round_index,
            "prototype": row.prototype,
            "size": row.size,
            "provenance_id": row.provenance_id,
        }
        for row in rows
    }


def _datasets(session: Session, digests: set[str]) -> Books:
    rows = session.scalars(select(DatasetRow).where(DatasetRow.digest.in_(digests)))
    return {row.digest: {"kind": "dataset", "id": row.id, "name": row.name, "size": row.size} for row in rows}


def _networks(session: Session, digests: set[str]) -> Books:
    rows = session.scalars(select(NetworkRow).where(NetworkRow.digest.in_(digests)))
    return {row.digest: {"kind": "network", "id": row.id, "name": row.name, "size": row.size} for row in rows}


def _discriminators(session: Session, federation: FederationRow, digests: set[str]) -> Books:
    rows = session.execute(
        select(DiscriminatorRow, ClientRow.name)
        .join(ClientRow, ClientRow.id == DiscriminatorRow.client_id)
        .where(
            DiscriminatorRow.federation_id == federation.id,
            DiscriminatorRow.digest.in_(digests) | DiscriminatorRow.scores_digest.in_(digests),
        )
    )
    found: Books = {}
    for row, client in rows:
        known = {"id": row.id, "client_id": row.client_id, "client": client}
        found[row.digest] = {"kind": "discriminator", "size": row.size, **known}
        if row.scores_digest is not None:
            found[row.scores_digest] = {"kind": "scores", "provenance_id": row.provenance_id, **known}
    return found


# ------------------------------------------------------------------------------------------------------------ reading
def of_model(session: Session, model: ModelRow) -> ProvenanceRow:
    """Return the document of a model.

    Raises:
        DomainError: not-found: it was imported, or made before documents were written.
    """
    if model.provenance_id is None:
        raise not_found("provenance of model", model.id)
    return session.get_one(ProvenanceRow, model.provenance_id)


def of_job(session: Session, job: JobRow) -> ProvenanceRow:
    """Return the newest document of a job.

    Raises:
        DomainError: not-found: it is not done, or was done before documents were written.
    """
    query = select(ProvenanceRow).where(ProvenanceRow.job_id == job.id).order_by(ProvenanceRow.id.desc()).limit(1)
    row = session.scalars(query).first()
    if row is None:
        raise not_found("provenance of job", job.id)
    return row


def of_round(session: Session, round_: RoundRow) -> ProvenanceRow:
    """Return the newest document of a round.

    Raises:
        DomainError: not-found: it is not published, or was published before documents were written.
    """
    query = select(ProvenanceRow).where(ProvenanceRow.round_id == round_.id).order_by(ProvenanceRow.id.desc()).limit(1)
    row = session.scalars(query).first()
    if row is None:
        raise not_found("provenance of round", round_.id)
    return row


def describe(session: Session, row: ProvenanceRow) -> wire.Provenance:
    """Return a document as it is shown; what retention has removed is marked, and is no error."""
    document = json.loads(row.document)
    outputs = [*document["outputs"]["models"].values(), *(document["outputs"]["state"] or {}).values()]
    digests = {each["digest"] for each in document["inputs"]} | set(outputs)
    here = garbage.named(session, digests)
    return wire.Provenance(
        id=row.id,
        digest=row.digest,
        document=document,
        removed=sorted(digests - here),
        replayable=all(each["digest"] in here for each in document["inputs"]),
        created_at=row.created_at,
    )
