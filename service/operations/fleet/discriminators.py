"""Discriminators: one a client, delivered before the client can be asked in a round (FedGO, stage P3)."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.ids import new_id
from contract.wire.devices import DiscriminatorReceipt
from service.domain.errors import DomainError
from service.domain.principal import Principal
from service.operations.fleet import clients, updates
from service.operations.ledger import locks
from service.operations.ledger.clock import now
from service.operations.progress import lifecycle, reading
from service.persistence.tables import DiscriminatorRow, FederationRow, ModelRow


def discriminator_of(session: Session, client_id: str) -> DiscriminatorRow | None:
    """Return a client's discriminator, if it is here."""
    return session.scalars(select(DiscriminatorRow).where(DiscriminatorRow.client_id == client_id)).first()


def admit(session: Session, federation_id: str, principal: Principal) -> str:
    """Say whether a device may send its discriminator now; return the digest of a file with the tensors it must have.

    Raises:
        DomainError: not-found, forbidden, invalid-transition.
    """
    principal.need_federation(federation_id)
    federation = reading.get(session, federation_id)
    if not reading.config_of(federation).recipe.reads_scores:
        raise DomainError("invalid-transition", "this federation's recipe reads no discriminators")
    check_takes_discriminators(federation)
    template = reading.current_models(session, federation.id)[reading.DISCRIMINATOR]
    return session.get_one(ModelRow, template).digest


def read_metadata(session: Session, federation_id: str, metadata: dict[str, str]) -> None:
    """Check what the file says of itself: with differential privacy, what it cost.

    Raises:
        DomainError: invalid-field.
    """
    if reading.config_of(reading.get(session, federation_id)).local.privacy is not None:
        updates.check_spent(metadata)


def check_takes_discriminators(federation: FederationRow) -> None:
    """Refuse a discriminator at a time when the federation takes none."""
    if federation.state not in ("collecting_discriminators", "scoring", "running", "paused"):
        raise DomainError(
            "invalid-transition", f"a federation that is {federation.state} takes none", state=federation.state
        )


def accept(
    session: Session, federation_id: str, client_id: str, digest: str, size: int
) -> tuple[DiscriminatorRow, bool]:
    """Store a client's discriminator; return its row and whether it is new.

    Raises:
        DomainError: already-delivered, when another one is here.
    """
    locks.hold_blobs(session)
    federation = reading.locked(session, federation_id)
    known = discriminator_of(session, client_id)
    if known is not None:
        if known.digest != digest:
            raise DomainError(
                "already-delivered",
                "this client's discriminator is here already; it is trained once",
                expected=known.digest,
                actual=digest,
            )
        return known, False
    clients.still_enrolled(session, client_id)
    check_takes_discriminators(federation)
    row = DiscriminatorRow(
        id=new_id("discriminator"),
        federation_id=federation_id,
        client_id=client_id,
        digest=digest,
        size=size,
        received_at=now(),
    )
    session.add(row)
    session.flush()
    lifecycle.proceed(session, federation)
    return row, True


def receipt(row: DiscriminatorRow) -> DiscriminatorReceipt:
    """Return the proof that a discriminator is stored."""
    return DiscriminatorReceipt(
        id=row.id, client_id=row.client_id, digest=row.digest, size=row.size, received_at=row.received_at
    )
