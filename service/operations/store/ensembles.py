"""Ensembles that rounds have kept: found, read, and what of them is still stored."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.bodies import stored
from contract.wire.ensembles import EnsembleDocument
from contract.wire.federations import TERMINAL_STATES
from service.domain.errors import DomainError
from service.operations.ledger import garbage
from service.persistence.tables import EnsembleRow, FederationRow, RoundRow

_KEEP = "set rounds.keep_ensemble for the rounds to come: PATCH /v1/federations/{id}/plan"


def document_of(row: EnsembleRow) -> EnsembleDocument:
    """Return who predicts together, and how."""
    return stored(EnsembleDocument, row.document)


def find(session: Session, round_: RoundRow) -> EnsembleRow | None:
    """Return a round's ensemble, if it kept one."""
    return session.scalars(select(EnsembleRow).where(EnsembleRow.round_id == round_.id)).first()


def of_round(session: Session, round_: RoundRow) -> EnsembleRow:
    """Return a round's ensemble.

    Raises:
        DomainError: not-found, saying why there is none.
    """
    row = find(session, round_)
    if row is None:
        kept_none = f"kept no ensemble{_remedy(session, round_.federation_id)}"
        why = kept_none if round_.state == "published" else f"is {round_.state}"
        raise DomainError("not-found", f"round {round_.index} {why}")
    return row


def newest(session: Session, federation_id: str) -> EnsembleRow:
    """Return the ensemble of the newest round of a federation that kept one.

    Raises:
        DomainError: not-found: none did.
    """
    mine = select(EnsembleRow).join(RoundRow, RoundRow.id == EnsembleRow.round_id)
    newest_first = mine.where(EnsembleRow.federation_id == federation_id).order_by(RoundRow.index.desc())
    row = session.scalars(newest_first.limit(1)).first()
    if row is None:
        remedy = _remedy(session, federation_id)
        raise DomainError("not-found", f"no round of the federation kept an ensemble{remedy}")
    return row


def _remedy(session: Session, federation_id: str) -> str:
    """Return how to come by one; of a federation that is over nothing can be changed."""
    over = session.get_one(FederationRow, federation_id).state in TERMINAL_STATES
    return "" if over else f"; {_KEEP}"


def gone(session: Session, document: EnsembleDocument) -> set[str]:
    """Return the digests that an ensemble needs and that are no longer stored."""
    needed = document.digests()
    return needed - garbage.named(session, needed)
