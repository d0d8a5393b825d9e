"""Several deliveries of one federation in one transaction: what they share is locked and read once, first of all."""

from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.operations.fleet import updates
from service.operations.ledger import locks
from service.operations.progress import participants, reading
from service.persistence.tables import ClientRow


def begin(session: Session, federation_id: str, sent: Collection[tuple[str, str]]) -> None:
    """Begin the transaction: they count in it one after another, each by itself (`ledger.apart`).

    Args:
        sent: of those that are updates, the round of the model that they began from, and the client.
    """
    locks.hold_blobs(session)
    reading.in_turn(session, federation_id)
    session.scalars(select(ClientRow).where(ClientRow.id.in_({client_id for _, client_id in sent}))).all()
    participants.hold(session, sent)
    for round_id in {round_id for round_id, _ in sent}:
        updates.remember(session, round_id, {client_id for of, client_id in sent if of == round_id})
