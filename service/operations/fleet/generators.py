"""The federated generator: in each round every client sends the generator and critic that it trained (FedGO, G3)."""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.ids import new_id
from contract.recipes.parts import GeneratorFederated
from contract.wire.devices import GanReceipt
from service.domain.errors import DomainError
from service.domain.principal import Principal
from service.operations.fleet import clients, updates
from service.operations.fleet.samples import Allowed
from service.operations.ledger import locks
from service.operations.ledger.clock import now
from service.operations.progress import lifecycle, reading
from service.persistence.tables import ClientRow, FederationRow, GanUpdateRow, ModelRow


@dataclass(frozen=True)
class Ticket:
    """What is known before a body is read: the file whose tensors it must have, and how many samples count."""

    federation_id: str
    client_id: str
    template: str
    samples: Allowed
    private: bool


@dataclass(frozen=True)
class Sent:
    """What a file says of itself: the round that it was trained in, and on how many samples."""

    gan_round: int
    num_samples: int


def update_of(session: Session, client_id: str, gan_round: int) -> GanUpdateRow | None:
    """Return what a client sent in a round, if it is here."""
    return session.scalars(
        select(GanUpdateRow).where(GanUpdateRow.client_id == client_id, GanUpdateRow.gan_round == gan_round)
    ).first()


def admit(session: Session, federation_id: str, principal: Principal) -> Ticket:
    """Say whether a device may send a generator at all, before a byte of it is read.

    Raises:
        DomainError: not-found, forbidden, invalid-transition.
    """
    principal.need_federation(federation_id)
    federation = reading.get(session, federation_id)
    config = reading.config_of(federation)
    stage = config.recipe.discriminators
    if stage is None or not isinstance(stage.generator, GeneratorFederated):
        raise DomainError("invalid-transition", "this federation's clients train no generator")
    current = reading.current_models(session, federation.id).get(reading.GAN)
    if current is None:
        detail = f"a federation that is {federation.state} takes no generator"
        raise DomainError("invalid-transition", detail, state=federation.state)
    template = session.get_one(ModelRow, current).digest
    private = config.local.privacy is not None
    allowed = Allowed.of(session.get_one(ClientRow, principal.id), config)
    return Ticket(federation.id, principal.id, template, allowed, private)


def read_metadata(session: Session, metadata: dict[str, str], ticket: Ticket) -> Sent:
    """Check the file's own metadata: sample count, and the model that tells the round that it was trained in.

    Raises:
        DomainError: invalid-field, naming the entry; stale-base-model; round-closed.
    """
    parsed = updates.parse_metadata(metadata)
    if ticket.private:
        updates.check_spent(metadata)
    base = session.get(ModelRow, parsed.base_model)
    if base is None or base.federation_id != ticket.federation_id or base.role != reading.GAN:
        current = reading.current_models(session, ticket.federation_id)[reading.GAN]
        raise updates.stale(current, parsed.base_model)
    assert base.round_index is not None
    if update_of(session, ticket.client_id, base.round_index) is None:
        ticket.samples.check(parsed.num_samples)
        _refuse_if_closed(session.get_one(FederationRow, ticket.federation_id), base.round_index)
    return Sent(base.round_index, parsed.num_samples)


def _refuse_if_closed(federation: FederationRow, gan_round: int) -> None:
    collects = federation.state == "training_generator" and federation.collect_deadline_at is not None
    if not collects or federation.gan_round != gan_round:
        raise DomainError(
            "round-closed",
            f"round {gan_round} of the generator takes no more; fetch the new assignment",
            round=gan_round,
            state=federation.state,
            current_round=federation.gan_round,
        )


def accept(session: Session, ticket: Ticket, sent: Sent, digest: str, size: int) -> tuple[GanUpdateRow, bool]:
    """Make a delivery count; return its row and whether it is new. A round that is full now is closed with it.

    Raises:
        DomainError: round-closed, already-delivered, invalid-field.
    """
    locks.hold_blobs(session)
    federation = reading.locked(session, ticket.federation_id)
    known = update_of(session, ticket.client_id, sent.gan_round)
    if known is not None:
        return updates.replayed(known, digest), False
    _refuse_if_closed(federation, sent.gan_round)
    client = clients.still_enrolled(session, ticket.client_id)
    Allowed(client.num_samples, ticket.samples.most).check(sent.num_samples)  # it may have declared fewer meanwhile
    row = GanUpdateRow(
        id=new_id("gan_update"),
        federation_id=federation.id,
        client_id=ticket.client_id,
        gan_round=sent.gan_round,
        digest=digest,
        size=size,
        num_samples=sent.num_samples,
        received_at=now(),
    )
    session.add(row)
    session.flush()
    lifecycle.proceed(session, federation)
    return row, True


def receipt(row: GanUpdateRow) -> GanReceipt:
    """Return the proof that a client's delivery of a round is stored."""
    return GanReceipt(
        id=row.id,
        client_id=row.client_id,
        gan_round=row.gan_round,
        digest=row.digest,
        size=row.size,
        num_samples=row.num_samples,
        received_at=row.received_at,
    )
