"""Ensembles as they are shown, and as one file that predicts elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy.orm import Session

from contract.ensembles import bundle_texts, why_mute
from contract.tasks import measured_of
from contract.wire import ensembles as wire
from contract.wire.rounds import EnsembleRef
from service.domain.errors import DomainError
from service.infra.blobs import BlobStore
from service.operations.ledger import audit
from service.operations.progress import reading
from service.operations.store import ensembles
from service.persistence.tables import RoundRow


def describe(session: Session, round_: RoundRow) -> wire.Ensemble:
    """Return a round's ensemble.

    Raises:
        DomainError: not-found, saying why there is none.
    """
    row = ensembles.of_round(session, round_)
    document = ensembles.document_of(row)
    gone = ensembles.gone(session, document)
    why = "retention, or an erasure, has removed some of it" if gone else why_mute(document)
    return wire.Ensemble(
        id=row.id,
        federation_id=row.federation_id,
        round_id=round_.id,
        round=round_.index,
        document=document,
        accuracy=round_.metrics.get("ensemble", {}).get("accuracy"),
        measured=measured_of(round_.metrics.get("ensemble", {})),
        size=sum(member.size for member in document.members),
        removed=sorted(gone),
        predicts=why is None,
        reason=why,
        created_at=row.created_at,
        url=f"/v1/rounds/{round_.id}/ensemble/bundle",
    )


def reference(session: Session, round_: RoundRow) -> EnsembleRef | None:
    """Return what a round's page shows of its ensemble, if it kept one."""
    row = ensembles.find(session, round_)
    if row is None:
        return None
    document = ensembles.document_of(row)
    return EnsembleRef(
        members=len(document.members),
        size=sum(member.size for member in document.members),
        weigh=document.weigh.kind,
        combine=document.combine.kind,
        accuracy=round_.metrics.get("ensemble", {}).get("accuracy"),
        measured=measured_of(round_.metrics.get("ensemble", {})),
        complete=not ensembles.gone(session, document),
        url=f"/v1/rounds/{round_.id}/ensemble",
    )


@dataclass(frozen=True)
class Bundle:
    """What belongs to an ensemble's file: texts by name, and the digests of blobs."""

    federation_id: str
    ensemble_id: str
    texts: Mapping[str, str]
    digests: frozenset[str]


def bundle(session: Session, round_id: str) -> Bundle:
    """Return what belongs to the file of a round's ensemble.

    Raises:
        DomainError: not-found; removed: a member is gone.
    """
    round_ = reading.get_round(session, round_id)
    row = ensembles.of_round(session, round_)
    document = ensembles.document_of(row)
    gone = ensembles.gone(session, document)
    if gone:
        detail = f"{len(gone)} files of it were removed; retention.ensembles says of how many rounds they stay"
        raise DomainError("removed", detail)
    title = f"round {round_.index} of federation {reading.get(session, row.federation_id).name}"
    return Bundle(row.federation_id, row.id, bundle_texts(document, title), frozenset(document.digests()))


def sizes(blobs: BlobStore, found: Bundle) -> dict[str, int]:
    """Return digest -> bytes of a bundle's blobs, each looked at first.

    Raises:
        BlobFault: one is damaged or missing.
    """
    for digest in found.digests:
        blobs.verify(digest)
    return {digest: blobs.size(digest) for digest in found.digests}


def record(session: Session, round_id: str, found: Bundle) -> None:
    """Say in the audit log that an ensemble, and with it clients' models, was given out."""
    audit.record(session, "ensemble.export", round_id, federation=found.federation_id, ensemble=found.ensemble_id)
