"""A federation's networks that are documents: found by their names, with the weights that they start from."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy.orm import Session

from contract.bodies import stored
from contract.federation import FederationConfig
from contract.networks import shelf
from contract.networks.document import name_of
from contract.wire.federations import FederationCreate
from service.domain.errors import DomainError, invalid_field
from service.operations.ledger import locks
from service.operations.store import networks
from service.operations.store.networks import HeaderOf
from service.persistence.tables import NetworkRow


def resolve(session: Session, request: FederationCreate, header_of: HeaderOf | None) -> FederationCreate:
    """Return a request in which networks have the names that hold their digests, and what is known of them is at hand.

    A prototype that names no model to start from has the one that its network is registered with.

    Args:
        session: open to write.
        request: as it came.
        header_of: a blob's digest -> its header, to hold a first model against the network; None leaves that to the
            first job.

    Raises:
        DomainError: invalid-field: there is no such network, a model is not its own, or it has none to start from.
    """
    tree = request.model_dump(mode="json")
    if not networks.named_in(tree):
        return request
    locks.hold_blobs(session)
    found: dict[str, NetworkRow] = {}
    _name(session, tree, "", found)
    for number, prototype in enumerate(tree["prototypes"]):
        _start(session, f"prototypes.{number}", prototype, found, header_of)
    if tree["server_model"] is not None:
        _start(session, "server_model", tree["server_model"], found, header_of)
    return stored(FederationCreate, tree)


@contextmanager
def called_by_name(session: Session) -> Iterator[None]:
    """Have refusals call networks as people do: a digest says nothing to the one who named a network."""
    try:
        yield
    except DomainError as error:
        raise DomainError(error.kind, networks.called(session, error.detail), **error.members) from error


def noted(config: FederationConfig) -> FederationConfig:
    """Return a configuration that says what is known of its networks."""
    names = networks.named_in(config.model_dump(mode="json"))
    return config.model_copy(update={"networks": {name: shelf.facts(name) for name in sorted(names)}})


def _name(session: Session, tree: Any, path: str, found: dict[str, NetworkRow]) -> None:
    """Give every network the name that holds its digest."""
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        place = f"{path}.{key}".lstrip(".")
        if isinstance(value, dict | list):
            _name(session, value, place, found)
        elif networks.named_in({key: value}):
            row = networks.find(session, value)
            if row is None:
                raise invalid_field(place, f"there is no network {value!r}; register it: potstill network register")
            tree[key] = name_of(row.digest)
            found[tree[key]] = row
            shelf.know(tree[key], networks.facts(row))


def _start(
    session: Session,
    field: str,
    prototype: dict[str, Any],
    found: dict[str, NetworkRow],
    header_of: HeaderOf | None,
) -> None:
    row = found.get(prototype["architecture"])
    if row is None:
        return
    given = prototype["initial_model"]
    if given is None and row.weights is None:
        raise invalid_field(
            f"{field}.initial_model",
            f"the network {row.name!r} was registered without first weights; import some and name them, or register it "
            "with them: potstill network register --weights",
        )
    prototype["initial_model"] = given or row.weights
    if given is not None and header_of is not None:
        try:
            networks.check_weights(f"{field}.initial_model", session, networks.tensors_of(row), given, header_of)
        except DomainError as error:
            raise invalid_field(f"{field}.initial_model", error.detail.partition(": ")[2] or error.detail) from None
