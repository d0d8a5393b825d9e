"""Clients: enrolment, revocation, when they were last seen."""

from datetime import timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from contract import architectures
from contract.ids import new_id
from contract.wire import devices as wire
from service.config import Settings
from service.domain.assigning import assign
from service.domain.errors import DomainError, invalid_field, not_found
from service.domain.federation import check_not_over
from service.domain.principal import Principal
from service.infra import tokens
from service.operations.access import joining
from service.operations.access.tokens import Keys, after, secret_of, state_of
from service.operations.fleet import samples
from service.operations.ledger import after_commit, audit
from service.operations.ledger.clock import is_due, now
from service.operations.ledger.limits import check_room
from service.operations.ledger.paging import page
from service.operations.progress import lifecycle, reading
from service.operations.store import models, uploads
from service.persistence.tables import ClientRow, DiscriminatorRow, FederationRow, GanUpdateRow, ModelRow, UpdateRow

SEEN_EVERY = timedelta(seconds=10)


def token_of(keys: Keys, row: ClientRow) -> str:
    """Return a device's token."""
    return secret_of(keys, row)


def enrol(session: Session, settings: Settings, caller: Principal, request: wire.Enrolment) -> ClientRow:
    """Add a device to a federation. The federation is locked, so no join token lets in more than it may.

    Raises:
        DomainError: name-taken; invalid-field; join-token-spent; limit-reached; unauthorized when the join token was
            replaced meanwhile; invalid-transition when the federation is over.
    """
    key, federation_id = settings.key, caller.federation_id or ""
    federation = reading.locked(session, federation_id)
    check_not_over(federation.state)
    joining.check(federation, caller)
    config = reading.config_of(federation)
    prototype = assign(config.prototypes, request.capabilities, request.prototype)
    _check_classes(config.task.classes, request.classes)
    samples.check_declared(config, request)
    taken = select(ClientRow.id).where(
        ClientRow.federation_id == federation_id, ClientRow.name == request.name, ClientRow.revoked_at.is_(None)
    )
    if session.scalars(taken).first() is not None:
        raise DomainError(
            "name-taken",
            f"a client {request.name!r} is enrolled; use the token it got then, another name, or have the operator "
            "revoke that client",
            field="name",
        )
    check_room(
        session,
        select(ClientRow.id).where(ClientRow.federation_id == federation_id, ClientRow.revoked_at.is_(None)),
        settings.max_clients,
        "clients in this federation",
        "revoke one",
        "POTSTILL_MAX_CLIENTS",
        alone=True,
    )
    id_, nonce = new_id("client"), tokens.fresh_nonce()
    row = ClientRow(
        id=id_,
        federation_id=federation_id,
        name=request.name,
        prototype=prototype,
        nonce=nonce,
        token_hash=tokens.hash_token(key, tokens.derive(key, "device", id_, nonce)),
        expires_at=after(settings.device_token_days * 86_400),
        num_samples=request.num_samples,
        label_counts=request.label_counts,
        capabilities=request.capabilities,
        enrolled_at=now(),
        last_seen_at=now(),
    )
    session.add(row)
    federation.join_uses += 1
    session.flush()
    audit.record(session, "client.enrol", row.id, federation=federation_id, name=row.name)
    lifecycle.proceed(session, federation)
    return row


def reissue(session: Session, settings: Settings, federation_id: str, client_id: str) -> tuple[ClientRow, str]:
    """Give an enrolled device a fresh token in place of the one it had, which stops working at once.

    Raises:
        DomainError: not-found; invalid-transition, when it was revoked.
    """
    row = session.get(ClientRow, client_id)
    if row is None or row.federation_id != federation_id:
        raise not_found("client", client_id)
    federation = reading.locked(session, federation_id)
    session.refresh(row, with_for_update=True)
    if row.revoked_at is not None:
        raise DomainError("invalid-transition", "the client was revoked; let it enrol anew", state="revoked")
    row.nonce = tokens.fresh_nonce()
    token = tokens.derive(settings.key, "device", row.id, row.nonce)
    row.token_hash = tokens.hash_token(settings.key, token)
    row.expires_at = after(settings.device_token_days * 86_400)
    row.next_nonce = row.next_hash = row.next_expires_at = None
    after_commit.touch(session, federation)  # whoever polls with the old one is to notice
    audit.record(session, "client.reissue", row.id, federation=federation_id, name=row.name)
    return row, token


def _check_classes(expected: list[str] | None, declared: list[str] | None) -> None:
    """Refuse a device whose labels mean something else: averaging would go on happily, and learn nonsense."""
    if expected is None or declared == expected:
        return
    if declared is None:
        detail = "this federation names its classes; declare yours, in the order of your labels"
    else:
        at = next((i for i, pair in enumerate(zip(expected, declared, strict=False)) if pair[0] != pair[1]), None)
        where = (
            f"{len(declared)}, not {len(expected)}" if at is None else f"{at} is {declared[at]!r}, not {expected[at]!r}"
        )
        detail = f"your classes are others than the federation's ({where}); renumber your labels to its order"
    raise invalid_field("classes", detail, expected=expected, actual=declared)


def card(session: Session, federation_id: str, caller: Principal) -> wire.FederationCard:
    """Return what a device must know before it joins."""
    federation = session.get_one(FederationRow, federation_id)
    if caller.role == "join":
        joining.check(federation, caller)
    config = reading.config_of(federation)
    return wire.FederationCard(
        federation_id=federation.id,
        federation_name=federation.name,
        state=federation.state,
        task=config.task,
        prototypes=[config.prototype(each.name) for each in config.prototypes],
        wants_label_counts="label_counts" in config.recipe.needs,
        local=config.local,
    )


def models_of_their_own(session: Session, federation_id: str) -> dict[str, list[str]]:
    """Return prototype -> digests of its model's files, of prototypes that are networks of their users' own."""
    config = reading.config_of(session.get_one(FederationRow, federation_id))
    current, found = reading.current_models(session, federation_id), dict[str, list[str]]()
    for prototype in config.prototypes:
        if architectures.is_server_side(prototype.architecture):
            continue
        id_ = current.get(reading.prototype_key(prototype.name)) or prototype.initial_model
        model = session.get(ModelRow, id_) if id_ is not None else None
        if model is not None and model.removed_at is None:
            base = models.base_of(session, model)
            found[prototype.name] = [model.digest] if base is None else [base, model.digest]
    return found


def reassign(session: Session, federation_id: str, client_id: str, prototype: str) -> ClientRow:
    """Give a client another prototype, whatever its capabilities; it counts from the next round on.

    Raises:
        DomainError: not-found, invalid-field.
    """
    row = session.get(ClientRow, client_id)
    if row is None or row.federation_id != federation_id:
        raise not_found("client", client_id)
    federation = reading.locked(session, federation_id)
    names = [each.name for each in reading.config_of(federation).prototypes]
    if prototype not in names:
        raise invalid_field("prototype", f"this federation has {', '.join(names)}")
    row.prototype = prototype
    audit.record(session, "client.assign", row.id, federation=federation_id, prototype=prototype)
    after_commit.touch(session, federation)
    return row


def revoke(session: Session, federation_id: str, client_id: str) -> None:
    """Take a device's token away; a round no longer waits for it."""
    row = session.get(ClientRow, client_id)
    if row is None or row.federation_id != federation_id:
        raise not_found("client", client_id)
    federation = reading.locked(session, federation_id)
    if row.revoked_at is None:
        row.revoked_at = now()
        audit.record(session, "client.revoke", row.id, federation=federation_id, name=row.name)
    uploads.drop_of(session, client_id)
    after_commit.touch(session, federation)  # it may be waiting for an assignment
    session.flush()
    lifecycle.proceed(session, federation)


def is_unseen(session: Session, client_id: str) -> bool:
    """Whether the moment a client was last seen is worth writing again."""
    row = session.get_one(ClientRow, client_id)
    return is_due(row.last_seen_at, SEEN_EVERY, now())


def still_enrolled(session: Session, client_id: str) -> ClientRow:
    """Return a client that was not revoked while it uploaded or waited.

    Raises:
        DomainError: unauthorized.
    """
    return _not_revoked(reading.fresh(session, ClientRow, client_id))


def enrolled(session: Session, client_id: str) -> ClientRow:
    """Return a client as this session has it.

    Raises:
        DomainError: unauthorized, when it was revoked.
    """
    return _not_revoked(session.get_one(ClientRow, client_id))


def _not_revoked(row: ClientRow) -> ClientRow:
    if row.revoked_at is not None:
        raise DomainError("unauthorized", "this client was revoked; ask the operator")
    return row


def see(session: Session, client_id: str) -> None:
    """Record that a client is there."""
    session.get_one(ClientRow, client_id).last_seen_at = now()


def listing(
    session: Session, federation: FederationRow, limit: int, after: str | None
) -> tuple[list[wire.ClientInfo], str | None]:
    """Return a page of a federation's clients, revoked ones included."""
    query = select(ClientRow).where(ClientRow.federation_id == federation.id)
    rows, following = page(session, query, ClientRow.id, limit, after)
    ids = [row.id for row in rows]
    counted = session.execute(
        select(UpdateRow.client_id, func.count()).where(UpdateRow.client_id.in_(ids)).group_by(UpdateRow.client_id)
    )
    updates = {row[0]: row[1] for row in counted}
    delivered = set(session.scalars(select(DiscriminatorRow.client_id).where(DiscriminatorRow.client_id.in_(ids))))
    generators: dict[str, list[int]] = {}
    for client, gan_round in session.execute(
        select(GanUpdateRow.client_id, GanUpdateRow.gan_round).where(GanUpdateRow.client_id.in_(ids))
    ):
        generators.setdefault(client, []).append(gan_round)
    items = [
        wire.ClientInfo(
            id=row.id,
            name=row.name,
            prototype=row.prototype,
            num_samples=row.num_samples,
            enrolled_samples=samples.enrolled_with(row),
            declared_at=row.declared_at,
            enrolled_at=row.enrolled_at,
            last_seen_at=row.last_seen_at,
            revoked_at=row.revoked_at,
            token_state=state_of(row),
            token_expires_at=row.expires_at,
            has_discriminator=row.id in delivered,
            gan_rounds=sorted(generators.get(row.id, [])),
            updates=updates.get(row.id, 0),
        )
        for row in rows
    ]
    return items, following
