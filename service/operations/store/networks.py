"""Networks that are documents: registered once by their digest, and named by whatever needs them."""

import re
from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.bodies import stored
from contract.federation import FederationConfig
from contract.ids import new_id
from contract.networks.document import PREFIX, Document, Tensor, canonical, digest_of, name_of
from contract.networks.facts import Facts, facts_of
from contract.networks.manifest import manifest
from contract.tensors import Header, TensorError, compare
from contract.wire import networks as wire
from contract.wire.catalogue import ArchitectureInfo
from service.domain.errors import DomainError, invalid_field, not_found
from service.domain.principal import Principal
from service.operations.ledger import after_commit, audit, locks
from service.operations.ledger.clock import now
from service.operations.ledger.limits import check_room
from service.operations.ledger.paging import page
from service.operations.store import models
from service.persistence.tables import FederationRow, ModelRow, NetworkRow

MAX_NETWORKS = 1000
_ARCHITECTURE = re.compile(re.escape(PREFIX) + "sha256-[0-9a-f]{64}")
HeaderOf = Callable[[str], Header]


def register(
    session: Session, name: str, document: Document, initial_model: str | None, header_of: HeaderOf
) -> tuple[NetworkRow, bool]:
    """Add a network, or return the one of that name if it is the same; and whether it is new.

    Args:
        session: open to write.
        name: how people call it.
        document: checked.
        initial_model: id of the model with its first weights.
        header_of: a blob's digest -> its header.

    Raises:
        DomainError: invalid-field: the weights are another network's; name-taken, by another one, or this one has
            another name already; limit-reached, when there are `MAX_NETWORKS`.
    """
    locks.hold_blobs(session)
    text = canonical(document)
    digest = digest_of(text)
    if initial_model is not None:
        check_weights("initial_model", session, document.tensors, initial_model, header_of)
    taken = select(NetworkRow).where((NetworkRow.name == name) | (NetworkRow.digest == digest))
    for row in session.scalars(taken):
        if (row.name, row.digest) != (name, digest):
            what = "with other nodes" if row.digest != digest else "and is this one"
            raise DomainError("name-taken", f"a network {row.name!r} exists {what}; take its name", field="name")
        if initial_model not in (None, row.weights):
            what = f"{row.name!r} has the first weights {row.weights}; name others as a prototype's initial_model"
            raise DomainError("name-taken", what, field="initial_model")
        return row, False
    check_room(session, select(NetworkRow.id), MAX_NETWORKS, "networks", "delete one")
    row = NetworkRow(
        id=new_id("network"),
        name=name,
        digest=digest,
        size=len(text),
        facts=facts_of(document).model_dump(mode="json"),
        tensors=[each.model_dump(mode="json") for each in document.tensors],
        weights=initial_model,
        created_at=now(),
    )
    session.add(row)
    session.flush()
    audit.record(session, "network.create", row.id, name=name, digest=digest, initial_model=initial_model)
    return row, True


def check_weights(
    field: str, session: Session, tensors: Iterable[Tensor], model_id: str, header_of: HeaderOf
) -> ModelRow:
    """Refuse a model that has not a network's tensors.

    Raises:
        DomainError: invalid-field; not-found, removed.
    """
    row = models.get(session, model_id)
    models.still_there(row)
    try:
        compare(header_of(row.digest), manifest(tensors))
    except TensorError as error:
        raise invalid_field(field, f"{row.id} has not the network's tensors: {error.detail}") from None
    return row


def tensors_of(row: NetworkRow) -> list[Tensor]:
    """Return the tensors of a network's state."""
    return [stored(Tensor, each) for each in row.tensors]


def facts(row: NetworkRow) -> Facts:
    """Return what a network is, in short."""
    return stored(Facts, row.facts)


def find(session: Session, named: str) -> NetworkRow | None:
    """Return a network by its id, its name or its architecture, with ``net:`` or without."""
    if "\0" in named:  # PostgreSQL refuses to look for one
        return None
    word = named.removeprefix(PREFIX)
    by = (NetworkRow.id == word) | (NetworkRow.name == word) | (NetworkRow.digest == word)
    return session.scalars(select(NetworkRow).where(by).order_by(NetworkRow.id)).first()


def get(session: Session, named: str) -> NetworkRow:
    """Return a network, or refuse with not-found."""
    row = find(session, named)
    if row is None:
        raise not_found("network", named)
    return row


def readable(session: Session, named: str, principal: Principal) -> NetworkRow:
    """Return a network that the caller may read: a device those of its own federation only.

    Raises:
        DomainError: not-found.
    """
    row = get(session, named)
    if principal.role == "device":
        federation = session.get(FederationRow, principal.federation_id)
        if federation is None or name_of(row.digest) not in federation.config.get("networks", {}):
            raise not_found("network", named)
    return row


def weights(session: Session, row: NetworkRow) -> ModelRow:
    """Return the model with a network's first weights.

    Raises:
        DomainError: not-found, where it has none; removed.
    """
    if row.weights is None:
        raise not_found("first weights of network", row.name)
    found = models.get(session, row.weights)
    models.still_there(found)
    return found


def delete(session: Session, named: str) -> None:
    """Remove a network that no federation names: their models are read by it, also when they are over.

    Raises:
        DomainError: not-found, in-use.
    """
    locks.lock_blobs(session)
    row = get(session, named)
    name = name_of(row.digest)
    users = [each.name for each in session.scalars(select(FederationRow)) if name in each.config.get("networks", {})]
    if users:
        raise DomainError("in-use", f"models of {', '.join(users[:5])} are read by it; delete these federations first")
    audit.record(session, "network.delete", row.id, name=row.name)
    session.delete(row)
    after_commit.release_blobs(session, {row.digest})


def listing(session: Session, limit: int, after: str | None) -> tuple[list[wire.RegisteredNetwork], str | None]:
    """Return a page of networks."""
    rows, following = page(session, select(NetworkRow), NetworkRow.id, limit, after)
    return [describe(row) for row in rows], following


def as_architectures(session: Session) -> list[ArchitectureInfo]:
    """Return all networks as rows of the catalogue, by name."""
    rows = session.scalars(select(NetworkRow).order_by(NetworkRow.name))
    return [
        ArchitectureInfo(
            name=f"{PREFIX}{row.name}",
            role=facts(row).role,
            summary=f"registered by an operator: {facts(row).parameters:,} parameters, reads "
            f"{facts(row).input.dtype} {facts(row).input.shape}, gives {facts(row).output}",
            server_side=True,
            options={},
        )
        for row in rows
    ]


def describe(row: NetworkRow) -> wire.RegisteredNetwork:
    """Return what is shown of a network."""
    return wire.RegisteredNetwork(
        id=row.id,
        name=row.name,
        architecture=name_of(row.digest),
        digest=row.digest,
        size=row.size,
        facts=facts(row),
        initial_model=row.weights,
        created_at=row.created_at,
        url=f"/v1/networks/{row.id}/document",
    )


# --------------------------------------------------------------------------------------------- networks of a federation
def named_in(tree: Any) -> set[str]:
    """Return the architectures that something names and that are documents."""
    found: set[str] = set()
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if isinstance(value, dict | list):
            found |= named_in(value)
        elif isinstance(value, str) and str(key).endswith("architecture") and value.startswith(PREFIX):
            found.add(value)
    return found


def names(session: Session, config: FederationConfig) -> dict[str, str]:
    """Return how people call the networks of a configuration, by their architecture."""
    digests = [architecture.removeprefix(PREFIX) for architecture in config.networks]
    rows = session.scalars(select(NetworkRow).where(NetworkRow.digest.in_(digests)).order_by(NetworkRow.id))
    return {name_of(row.digest): f"{PREFIX}{row.name}" for row in rows}


def called(session: Session, text: str) -> str:
    """Return a text in which networks have the names that people call them by."""

    def name(found: re.Match[str]) -> str:
        row = find(session, found[0])
        return found[0] if row is None else f"{PREFIX}{row.name}"

    return _ARCHITECTURE.sub(name, text)


def of_config(session: Session, config: FederationConfig) -> dict[str, NetworkRow]:
    """Return the networks of a configuration, by their architecture.

    Raises:
        DomainError: not-found, where one was deleted.
    """
    return {name: get(session, name) for name in config.networks}
