"""Rounds that leave the service with all that they were made from, the clients' updates included."""

import json
from dataclasses import dataclass

from sqlalchemy.orm import Session

from contract.bundles import inputs_and_outputs
from service.domain.errors import DomainError
from service.infra.blobs import BlobFault, BlobStore
from service.operations.ledger import audit
from service.operations.progress import reading
from service.operations.store import provenance


@dataclass(frozen=True)
class Bundle:
    """What belongs to a round's bundle; `digest` is that of the document."""

    federation_id: str
    document: str
    digest: str


def of_round(session: Session, round_id: str) -> Bundle:
    """Return what belongs to a round's bundle.

    Raises:
        DomainError: not-found: no such round, or it has published nothing.
    """
    row = provenance.of_round(session, reading.get_round(session, round_id))
    return Bundle(row.federation_id, row.document, row.digest)


def sizes(blobs: BlobStore, bundle: Bundle) -> dict[str, int]:
    """Return digest -> bytes of the bundle's blobs. What was made may be gone; the replay makes it again.

    Raises:
        DomainError: removed: an input is gone, so that nothing could be made from the others.
        BlobFault: one is damaged.
    """
    inputs, outputs = inputs_and_outputs(json.loads(bundle.document))
    here: dict[str, int] = {}
    for digest in inputs | outputs:
        try:
            blobs.verify(digest)
            here[digest] = blobs.size(digest)
        except BlobFault as fault:
            if fault.state == "damaged":
                raise
    gone = inputs - here.keys()
    if gone:
        raise DomainError(
            "removed",
            f"{len(gone)} of {len(inputs)} inputs were removed by the federation's retention; keep updates for some "
            "rounds: PUT /v1/federations/{id}/retention",
        )
    return here


def record(session: Session, round_id: str, bundle: Bundle) -> None:
    """Say in the audit log that a round with its clients' updates was given out."""
    audit.record(session, "round.export", round_id, federation=bundle.federation_id, provenance=bundle.digest)
