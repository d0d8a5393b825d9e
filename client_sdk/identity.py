"""How a device gets its identity: remembered, given, or by enrolling once."""

import hashlib
import re
import secrets
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import index
from typing import TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError

from client_sdk.bodies import made_of
from client_sdk.client import Client
from client_sdk.errors import (
    ApiError,
    FederationEnded,
    InvalidTransition,
    JoinTokenSpent,
    MethodNotAllowed,
    NameTaken,
    NotFound,
    StateError,
    TransportError,
    Unauthorized,
    UsageError,
)
from client_sdk.state import Identity, StateFolder
from contract.faults import faults_of
from contract.wire.common import Name
from contract.wire.devices import Declaration, Enrolment, FederationCard
from contract.wire.federations import TERMINAL_STATES, Capability

Refusal = TypeVar("Refusal", bound=ApiError)
_AT_MOST_EVERY = timedelta(minutes=1)  # so often a token is replaced, whatever the clocks say


def default_name() -> str:
    """Return the machine's name with a random suffix, such as ``ward-pc-3f9c``."""
    host = re.sub(r"[^\w-]+", "-", socket.gethostname().split(".")[0]).strip("-")[:60] or "device"
    return f"{host}-{secrets.token_hex(2)}"


@dataclass(frozen=True)
class Application:
    """How a device asks to take part.

    Attributes:
        federation: id of the federation.
        num_samples: size of its data set.
        join_token: the federation's; needed the first time only.
        name: unique in the federation; None for the one that is remembered, or one made from the host's.
        label_counts: samples per class [C], where they may be told.
        classes: names of the classes in the order of the labels; told where the federation names its own.
        prototype, capabilities: what it wants to train, or what it has.

    Raises:
        UsageError: the federation is no id, or the counts do not sum to the samples.
    """

    federation: str
    num_samples: int
    join_token: str | None = None
    name: str | None = None
    label_counts: Sequence[int] | None = None
    classes: Sequence[str] | None = None
    prototype: str | None = None
    capabilities: Mapping[str, Capability] | None = None

    def __post_init__(self) -> None:
        if not self.federation.startswith("fed_"):
            raise UsageError(
                f"federation: expected an id such as fed_01…, got {self.federation!r}; the operator knows it"
            )
        counts = self.label_counts
        if counts is not None and (min(counts, default=-1) < 0 or sum(counts) != self.num_samples):
            raise UsageError(
                f"label_counts: expected one count per class that sum to the {self.num_samples} samples, such as "
                "numpy.bincount(y, minlength=C)"
            )

    def enrolment(self, identity: Identity) -> Enrolment:
        """Return what is told to the service; the same again for the same identity.

        Raises:
            UsageError: it is not what an enrolment may have.
        """
        return made_of(
            Enrolment,
            name=identity.name,
            num_samples=index(self.num_samples),  # also of numpy's numbers
            label_counts=None if self.label_counts is None else [index(count) for count in self.label_counts],
            classes=identity.classes,
            prototype=self.prototype,
            capabilities=dict(self.capabilities or {}),
        )


def establish(
    client: Client,
    folder: StateFolder,
    application: Application,
    check: Callable[[FederationCard], None] = lambda card: None,
) -> Identity:
    """Return who this device is and let `client` use its token.

    A remembered identity goes first, then the token of the client's connection; else the device enrols with the join
    token. Name and idempotency key are kept before the request is sent, so that a crash in between does not cost the
    name.

    Args:
        check: refuses what data or network do not fit, by the federation's card, before anybody enrols.

    Raises:
        StateError: the folder belongs to another client or federation.
        UsageError: neither remembered nor given a token.
        NameTaken, Unauthorized, FederationEnded: the service refused.
    """
    given = client.connection.token
    identity = _with_token(_remembered(client, folder, application), folder, client.url, given)
    if identity.token is None:
        identity = _enrol(client, folder, identity, application, check)
    client.use_token(identity.token)
    if identity.token_renew_at is None and given is not None:
        with suppress(ApiError):  # whatever it is, the first assignment says it better
            identity = _with_renewal(identity, client.own_token().expires_at)
            folder.remember(identity)
    return identity


def _remembered(client: Client, folder: StateFolder, application: Application) -> Identity:
    """Return who this folder's device is, or a new one that has not enrolled."""
    if application.name is not None:
        _check_name(application.name)
    known = folder.identity()
    if known is not None:
        _check_same(known, folder, client, application)
        return known
    name = application.name or default_name()
    return Identity(url=client.url, federation=application.federation, name=name, key=uuid.uuid4().hex)


def _with_token(identity: Identity, folder: StateFolder, url: str, token: str | None) -> Identity:
    """Return the identity with a token that was passed; one that was passed before has had its successors."""
    given = None if token is None else hashlib.sha256(token.encode()).hexdigest()
    if given is None or given == identity.given:
        return identity
    identity = identity.model_copy(update={"token": token, "url": url, "given": given, "token_renew_at": None})
    folder.remember(identity)
    return identity


def _with_renewal(identity: Identity, expires_at: datetime | None) -> Identity:
    """Return the identity with the moment at which its token is to be replaced: after two thirds of its life."""
    if expires_at is None:
        return identity.model_copy(update={"token_renew_at": None, "token_given_at": None})
    now = datetime.now(UTC)
    renew_at = now + max(2 * (expires_at - now) / 3, _AT_MOST_EVERY)
    return identity.model_copy(update={"token_renew_at": renew_at, "token_given_at": now})


def renew(client: Client, folder: StateFolder) -> bool:
    """Replace a token that is near its end; return whether it was. The new one is stored before it is used, and the one
    before works until then, so that a crash at any point costs nothing.
    """
    known = folder.identity()
    if known is None or known.token_renew_at is None:
        return False
    now = datetime.now(UTC)
    went_back = known.token_given_at is not None and now < known.token_given_at - _AT_MOST_EVERY
    if now < known.token_renew_at and not went_back:  # where the clock went back nobody knows how old the token is
        return False
    try:
        fresh = client.rotate_token()
    except Unauthorized:
        raise
    except (ApiError, TransportError):  # the token still works, and the next turn asks again
        return False
    folder.remember(_with_renewal(known.model_copy(update={"token": fresh.token}), fresh.expires_at))
    client.use_token(fresh.token)
    return True


def declare(
    client: Client,
    folder: StateFolder,
    num_samples: int,
    label_counts: Sequence[int] | None = None,
    *,
    anew: bool = False,
) -> None:
    """Say how many samples this device has where they are more than the service knows of, or `anew`.

    A service that asks for no declarations, and a federation that is over, are told nothing.

    Raises:
        Invalid: more than the federation takes of one client, or the counts per class are missing.
    """
    known = folder.identity()
    if known is None or (known.declared is not None and num_samples <= known.declared and not anew):
        return
    counts = None if label_counts is None else [index(count) for count in label_counts]
    try:
        client.declare(Declaration(num_samples=index(num_samples), label_counts=counts))
    except (NotFound, MethodNotAllowed, InvalidTransition):
        return
    except Unauthorized as error:
        raise refused(error, folder) from error
    folder.remember(known.model_copy(update={"declared": num_samples}))


def refused(error: Unauthorized, folder: StateFolder) -> Unauthorized:
    """Return the error for a remembered token that no longer works, saying what to do."""
    return _reworded(
        error,
        f"the device's token, remembered in {folder.path}, was refused: it was revoked, or the service is another "
        "one now. To join anew, delete that folder or pass another name or state_dir, and a join_token",
    )


def _check_name(name: str) -> None:
    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError as error:
        raise UsageError(f"name: {name!r}: {faults_of(error)[0].message}") from error


def _origin(url: str) -> tuple[str, str, int | None]:
    parsed = httpx.URL(url)
    return parsed.scheme, parsed.host, parsed.port


def _check_same(known: Identity, folder: StateFolder, client: Client, application: Application) -> None:
    """Refuse a folder of another device, and a service to which the remembered token must not be sent."""
    federation, name = application.federation, application.name
    if client.connection.token is None and _origin(known.url) != _origin(client.url):
        raise StateError(
            f"state_dir: {folder.path} holds a token of the service at {known.url}; it is not sent to {client.url}. If "
            "the service has moved, pass the device's token once; else use another folder"
        )
    if known.federation != federation:
        raise StateError(
            f"state_dir: {folder.path} belongs to federation {known.federation}, not {federation}; use another one"
        )
    if name is not None and known.name != name:
        raise StateError(f"state_dir: {folder.path} belongs to client {known.name!r}, not {name!r}; use another one")


def _enrol(
    client: Client,
    folder: StateFolder,
    identity: Identity,
    application: Application,
    check: Callable[[FederationCard], None],
) -> Identity:
    """Enrol; the identity is on the disk before the question and after the answer."""
    join_token = application.join_token
    if join_token is None:
        raise UsageError(
            f"join_token: this device is not enrolled yet (nothing remembered in {folder.path}); pass the "
            "federation's join_token, or the device's own token"
        )
    with suppress(JoinTokenSpent):  # an enrolment whose answer was lost is answered again all the same
        card = client.card(identity.federation, join_token=join_token)
        check(card)  # or the round would wait for a device that cannot train
        told = None if application.classes is None or card.task.classes is None else list(application.classes)
        identity = identity.model_copy(update={"classes": told})
    folder.remember(identity)
    try:
        enrolled = client.enrol(
            identity.federation, application.enrolment(identity), join_token=join_token, key=identity.key
        )
    except InvalidTransition as error:
        state = str(error.members.get("state", ""))
        if state in TERMINAL_STATES:
            raise FederationEnded(f"federation {identity.federation} is {state}: {error.detail}", state) from error
        raise
    except NameTaken as error:
        raise _reworded(
            error,
            f"another device is called {identity.name!r}; pass another name. If that device is this one and its state "
            "folder was lost, the operator can revoke it; then the name is free again",
        ) from error
    identity = identity.model_copy(update={"client_id": enrolled.client_id, "token": enrolled.token})
    identity = identity.model_copy(update={"declared": index(application.num_samples)})
    identity = _with_renewal(identity, enrolled.token_expires_at)
    folder.remember(identity)
    return identity


def _reworded(error: Refusal, detail: str) -> Refusal:
    """Return the same refusal with a detail that says what to do."""
    return type(error)(
        error.status,
        detail,
        kind=error.kind,
        title=error.title,
        members=error.members,
        request_id=error.request_id,
    )
