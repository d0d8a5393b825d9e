"""What a device says to the service: one typed method per endpoint."""

from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from client_sdk.between import explain, is_foreign
from client_sdk.connection import Connection, Options
from client_sdk.downloads import download
from client_sdk.errors import UnexpectedAnswer
from client_sdk.transport import RequestOptions, Transport, segment
from client_sdk.uploads import Delivery, DeliveryOptions
from contract.bodies import stored
from contract.faults import faults_of
from contract.wire.catalogue import Health, OwnToken, Readiness, TokenRotated
from contract.wire.devices import (
    Assignment,
    Declaration,
    Declared,
    DiscriminatorReceipt,
    Enrolled,
    Enrolment,
    FederationCard,
    GanReceipt,
    Heartbeat,
    HeartbeatReceipt,
    UpdateReceipt,
)
from contract.wire.federations import ModelRef
from contract.wire.rounds import Model
from contract.wire.secure import SecureReceipt

Answer = TypeVar("Answer")
Kind = Literal["update", "gan", "discriminator"]
Receipt = UpdateReceipt | GanReceipt | DiscriminatorReceipt
RECEIPTS: dict[Kind, type[Receipt]] = {
    "update": UpdateReceipt,
    "gan": GanReceipt,
    "discriminator": DiscriminatorReceipt,
}
_ASSIGNMENT: TypeAdapter[Assignment] = TypeAdapter(Assignment)


class BaseClient:
    """Speaks with one service; a context manager.

    Args:
        service: its address, or a `Connection`.
        token: bearer token to begin with.
        options: see `client_sdk.Connection`.
    """

    def __init__(self, service: str | Connection, token: str | None = None, **options: Unpack[Options]):
        self._transport = Transport(Connection.to(service, token, **options))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        """The service's base address."""
        return str(self._transport.base)

    @property
    def connection(self) -> Connection:
        """How the service is reached; its token is the one to begin with."""
        return self._transport.connection

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def health(self) -> Health:
        """GET /healthz: is the process up?"""
        return self._get("/healthz", Health)

    def readiness(self) -> Readiness:
        """GET /readyz: can it work? An unready service answers 503 with the same body, which is returned too."""
        response = self._transport.request("GET", "/readyz", retry=False, accept=frozenset({503}))
        return _parse(response, TypeAdapter(Readiness))

    def model(self, model_id: str) -> Model:
        """GET /v1/models/{id}: what a model is and where it came from."""
        return self._get(f"/v1/models/{segment(model_id)}", Model)

    def download(self, model: str | Model | ModelRef, target: str | Path) -> Path:
        """GET /v1/models/{id}/weights into `target`: resumed where it broke off, checked against its digest.

        Args:
            model: an id, for the whole network, or the reference from an assignment or a list, for the file that it
                names: of a network with `trains` or `keeps` the tensors that rounds move.
            target: the safetensors file to write; one that is right already is not fetched again.
        """
        url = f"/v1/models/{segment(model)}/weights" if isinstance(model, str) else model.url
        digest = None if isinstance(model, str) else model.digest
        download(self._transport, url, Path(target), digest=digest)
        return Path(target)

    def download_network(self, network: str, target: str | Path, *, digest: str | None = None) -> Path:
        """GET /v1/networks/{id}/document into `target`, checked against its digest.

        Args:
            network: an id, a name, or an architecture such as ``net:sha256-…``.
            target: the file to write; one that is right already is not fetched again.
            digest: of the document, where it is known.
        """
        download(self._transport, f"/v1/networks/{segment(network)}/document", Path(target), digest=digest)
        return Path(target)

    def download_first_weights(self, network: str, target: str | Path) -> Path:
        """GET /v1/networks/{id}/weights into `target`: what a registered network begins with."""
        download(self._transport, f"/v1/networks/{segment(network)}/weights", Path(target))
        return Path(target)

    def own_token(self) -> OwnToken:
        """GET /v1/token: what the token in use is, and when it ends."""
        return self._get("/v1/token", OwnToken)

    def rotate_token(self) -> TokenRotated:
        """POST /v1/token/rotate: a token in place of the one in use, which works until the new one is first used.

        Store the new one before `use_token`; whoever crashes before that asks again and gets the same one.
        """
        return self._post("/v1/token/rotate", TokenRotated)

    def use_token(self, token: str | None) -> None:
        """Use this token from here on."""
        self._transport.token = token

    def _get(self, path: str, answer: type[Answer], **options: Unpack[RequestOptions]) -> Answer:
        return self._call("GET", path, answer, **options)

    def _post(self, path: str, answer: type[Answer], **options: Unpack[RequestOptions]) -> Answer:
        return self._call("POST", path, answer, **options)

    def _deliver(self, path: str, file: str | Path, answer: type[Answer], **options: Unpack[DeliveryOptions]) -> Answer:
        delivery = Delivery(self._transport, "PUT", path, Path(file), **options)
        return _parse(delivery.send(), TypeAdapter(answer))

    def _upload(self, path: str, file: str | Path, answer: type[Answer], **params: str | None) -> Answer:
        """POST a file, of which something is made."""
        delivery = Delivery(self._transport, "POST", path, Path(file), params=params, direct=False)
        return _parse(delivery.send(), TypeAdapter(answer))

    def _call(
        self, method: str, path: str, answer: type[Answer], *, retry: bool = True, **options: Unpack[RequestOptions]
    ) -> Answer:
        return _parse(self._transport.request(method, path, retry=retry, **options), TypeAdapter(answer))


def _parse(response: httpx.Response, adapter: TypeAdapter[Answer]) -> Answer:
    try:
        return stored(adapter, response.content)
    except ValidationError as error:
        if is_foreign(response):
            raise UnexpectedAnswer(explain(response)) from error
        where, message = faults_of(error)[0]
        raise UnexpectedAnswer(
            f"{response.request.method} {response.request.url.path}: {where or 'body'}: {message}; "
            "install the version of potstill that the service runs"
        ) from error


def update_url(round_id: str) -> str:
    """Return where a round's updates go."""
    return f"/v1/rounds/{segment(round_id)}/update"


class Client(BaseClient):
    """A device: enrols, asks what to do, downloads models, pushes updates.

    `token` is the device's own token, as `enrol` returned it.
    """

    def service_time(self) -> datetime | None:
        """Return the time by the service's clock, as its last answer told it; None before one has."""
        ahead = self._transport.ahead
        return None if ahead is None else datetime.now(UTC) + ahead

    def card(self, federation: str, *, join_token: str | None = None) -> FederationCard:
        """GET /v1/federations/{id}/card: the task that the data must fit, before anybody enrols."""
        return self._get(f"/v1/federations/{segment(federation)}/card", FederationCard, token=join_token)

    def enrol(self, federation: str, enrolment: Enrolment, *, join_token: str, key: str | None = None) -> Enrolled:
        """POST /v1/federations/{id}/clients: join, once. From here on this client uses the token it got.

        Args:
            federation: id of the federation.
            join_token: the federation's join token, from its operator.
            key: Idempotency-Key, for one that survives a restart.

        Raises:
            NameTaken: another device has the name.
            Unauthorized: the join token is wrong or was rotated.
            JoinTokenSpent: it let in as many devices as it may, or its time is over.
        """
        body = enrolment.model_dump(mode="json", exclude_none=True)
        path = f"/v1/federations/{segment(federation)}/clients"
        enrolled = self._post(path, Enrolled, json=body, token=join_token, key=key)
        self._transport.token = enrolled.token
        return enrolled

    def declare(self, declaration: Declaration) -> Declared:
        """PUT /v1/declaration: how many samples this device has now; its updates may tell of so many at most.

        Raises:
            Invalid: more than the federation takes of one client, or counts per class that do not fit.
        """
        return self._call(
            "PUT", "/v1/declaration", Declared, json=declaration.model_dump(mode="json", exclude_none=True)
        )

    def assignment(self, wait: float = 30.0, *, heartbeats: bool = False) -> Assignment:
        """GET /v1/assignment: what to do now; the service holds the answer back up to `wait` seconds (0 to 60).

        Args:
            wait: seconds.
            heartbeats: this device sends heartbeats as soon as it is told to train, and counts as lost if it does not.
        """
        params: dict[str, Any] = {"wait": int(wait)} | ({"heartbeats": "true"} if heartbeats else {})
        response = self._transport.request(
            "GET", "/v1/assignment", params=params, timeout=self._transport.connection.timeout + wait
        )
        return _parse(response, _ASSIGNMENT)

    def heartbeat(self, round_id: str, beat: Heartbeat, *, timeout: float | None = None) -> HeartbeatReceipt:
        """POST /v1/rounds/{id}/heartbeat: this device trains for the round. One try only: the next one comes soon.

        Raises:
            RoundClosed: the round takes no more from this device.
        """
        body = beat.model_dump(exclude_none=True)
        path = f"/v1/rounds/{segment(round_id)}/heartbeat"
        return self._call("POST", path, HeartbeatReceipt, json=body, retry=False, timeout=timeout)

    def say_secure(self, round_id: str, what: str, said: BaseModel) -> SecureReceipt:
        """PUT /v1/rounds/{id}/secure/{what}: `keys`, `shares`, `confirmation` or `revelation` of a secure round.

        Raises:
            UpdateRefused: the phase is over, or something else was said before.
        """
        path = f"/v1/rounds/{round_id}/secure/{what}"
        return self._call("PUT", path, SecureReceipt, json=said.model_dump(mode="json"))

    def push_update(
        self, round_id: str, file: str | Path, *, url: str | None = None, **options: Unpack[DeliveryOptions]
    ) -> UpdateReceipt:
        """PUT /v1/rounds/{id}/update: the trained weights, a safetensors file with num_samples and base_model.

        Args:
            url: the assignment's `upload_url`, where there is one.
            options: see `client_sdk.uploads.DeliveryOptions`.

        Raises:
            UpdateRefused: too late, not asked, another base model, or something else was delivered.
            Invalid: the file is not what was asked for; the members name the tensor.
        """
        return self._deliver(url or update_url(round_id), file, UpdateReceipt, **options)

    def push_gan(
        self, federation: str, file: str | Path, *, url: str | None = None, **options: Unpack[DeliveryOptions]
    ) -> GanReceipt:
        """PUT /v1/federations/{id}/gan: FedGAN's generator and critic of a round, a safetensors file with num_samples
        and base_model. Arguments as for `push_update`.

        Raises:
            UpdateRefused: too late, or something else was delivered.
        """
        return self._deliver(url or f"/v1/federations/{segment(federation)}/gan", file, GanReceipt, **options)

    def push_discriminator(
        self, federation: str, file: str | Path, *, url: str | None = None, **options: Unpack[DeliveryOptions]
    ) -> DiscriminatorReceipt:
        """PUT /v1/federations/{id}/discriminator: FedGO's discriminator, a safetensors file with num_samples.

        Arguments as for `push_update`.
        """
        path = url or f"/v1/federations/{segment(federation)}/discriminator"
        return self._deliver(path, file, DiscriminatorReceipt, **options)

    def deliver(self, kind: Kind, url: str, file: str | Path, **options: Unpack[DeliveryOptions]) -> Receipt:
        """PUT `url`, an assignment's `upload_url`: what `push_update` and the others do, for any kind of work."""
        return self._deliver(url, file, RECEIPTS[kind], **options)
