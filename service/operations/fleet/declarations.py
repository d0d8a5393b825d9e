"""A device declares how many samples it has now, and operators see that it did."""

from sqlalchemy.orm import Session

from contract.wire import devices as wire
from service.domain.federation import check_not_over
from service.domain.principal import Principal
from service.operations.fleet import clients
from service.operations.fleet.samples import check_declared, enrolled_with
from service.operations.ledger import audit
from service.operations.ledger.clock import now
from service.operations.progress import reading
from service.persistence.tables import ClientRow


def declare(session: Session, caller: Principal, request: wire.Declaration) -> ClientRow:
    """Note how many samples a device has now, for operators to see; the same number again changes nothing.

    Counts per class that were told for another number go, if no new ones are told.

    Raises:
        DomainError: invalid-field; invalid-transition, when the federation is over; unauthorized, when the operator was
            quicker and revoked it: what was deleted of a client does not come back.
    """
    federation = reading.locked(session, caller.federation_id or "")
    check_not_over(federation.state)
    row = clients.still_enrolled(session, caller.id)
    check_declared(reading.config_of(federation), request)
    before = row.num_samples
    if before == request.num_samples and request.label_counts in (None, row.label_counts):
        return row
    row.label_counts = request.label_counts
    if before != request.num_samples:
        row.enrolled_samples = enrolled_with(row)
        row.num_samples, row.declared_at = request.num_samples, now()
    audit.record(
        session, "client.declare", row.id, federation=federation.id, num_samples=row.num_samples, previous=before
    )
    return row


def declared(row: ClientRow) -> wire.Declared:
    """Return what a client has declared."""
    return wire.Declared(client_id=row.id, num_samples=row.num_samples, enrolled_samples=enrolled_with(row))
