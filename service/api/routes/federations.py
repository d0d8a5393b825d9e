"""Federations and their clients."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Body, Path, Query, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from contract.bodies import QUERY_NUMBER
from contract.wire.changes import PlanChange
from contract.wire.common import Page
from contract.wire.devices import (
    ClientInfo,
    Enrolled,
    Enrolment,
    FederationCard,
    PrototypeChoice,
    Reissued,
    TensorKind,
)
from contract.wire.erasure import Forgotten
from contract.wire.federations import (
    Federation,
    FederationCreate,
    FederationCreated,
    FederationSummary,
    JoinLimits,
    JoinToken,
    Rollback,
)
from contract.wire.report import FederationReport
from contract.wire.retention import Retention
from contract.wire.rounds import Round
from service.api.deps import After, Candidate, IdempotencyKey, Joiner, Limit, NewestFirst, Operator, Services, Viewer
from service.api.problems import documented
from service.api.routing import router_of
from service.api.services import Services as Parts
from service.domain.principal import Principal
from service.operations.access import joining
from service.operations.fleet import clients
from service.operations.ledger.idempotency import once
from service.operations.progress import reading
from service.operations.steer import control, creation, plans, retention, rollback
from service.operations.store import traffic
from service.operations.upkeep import erasure
from service.operations.view import federations, report, rounds

router = router_of("/v1/federations", tag="federations")
FederationId = Annotated[str, Path(max_length=64, examples=["fed_01…"])]
Accuracy = Annotated[float, Field(ge=0, le=1), QUERY_NUMBER]
FederationIdOrName = Annotated[str, Path(max_length=100, examples=["fed_01…", "digits"])]
_DIGITS = {
    "task": {"num_classes": 10, "input": {"shape": [1, 8, 8]}},
    "prototypes": [{"architecture": "cnn-digits"}],
}
NEW: dict[str, Any] = {
    "averages": {"value": {"name": "digits", **_DIGITS, "recipe": {"name": "fedavg"}, "rounds": {"total": 5}}},
    "distillation on data of the server": {
        "value": {
            "name": "digits distilled",
            **_DIGITS,
            "recipe": {"name": "feddf"},
            "rounds": {"total": 20, "clients_per_round": 0.4, "deadline_seconds": 600},
            "datasets": {"unlabeled": "digits-server", "test": "digits-test"},
        }
    },
}
_ROLLBACKS: dict[str, Any] = {
    "to a round": {"value": {"round": 3}},
    "the newest round back": {"value": {"rounds": 1}},
}
_CHANGES: dict[str, Any] = {
    "train less, for longer": {"value": {"local": {"epochs": 2}, "rounds": {"total": 40}}},
    "one prototype": {"value": {"prototypes": {"main": {"batch_size": 16}}}},
}
_AUTH = documented("unauthorized", "forbidden")
_ONE = documented("unauthorized", "forbidden", "not-found")
_CREATE = _AUTH | documented("name-taken", "limit-reached", "idempotency-conflict", "invalid-field")
_STEER = documented("unauthorized", "forbidden", "not-found", "invalid-transition")


@router.post("", status_code=201, responses=_CREATE)
def create_federation(
    body: Annotated[FederationCreate, Body(openapi_examples=NEW)],
    services: Services,
    caller: Operator,
    key: IdempotencyKey = None,
) -> FederationCreated:
    """Create a federation. The answer shows the join token that devices enrol with: keep it."""
    settings = services.settings

    def make() -> dict[str, Any]:
        row = creation.create(session, settings.key, body, services.blobs.store.header)
        return {"id": row.id}

    with services.store.write() as session:
        answer = once(session, caller.id, key, f"federation {body.model_dump_json()}", make)
        row = reading.get(session, answer["id"])
        described = federations.describe(session, row).model_dump()
        return FederationCreated(**described, join_token=joining.secret_of(settings.keys, row))


@router.get("", responses=_AUTH)
def list_federations(
    services: Services, caller: Viewer, limit: Limit = 50, after: After = None, newest_first: NewestFirst = False
) -> Page[FederationSummary]:
    """List federations, the oldest first if not told otherwise."""
    with services.store.read() as session:
        items, following = federations.listing(session, limit, after, newest_first)
        return Page(items=items, next=following)


@router.get("/{federation_id}", responses=_ONE)
def show_federation(federation_id: FederationId, services: Services, caller: Viewer) -> Federation:
    """Show a federation: its state, its parts, its current models, accuracy by round."""
    with services.store.read() as session:
        return federations.describe(session, reading.get(session, federation_id))


@router.get("/{federation_id}/report", responses=_ONE)
def show_report(
    federation_id: FederationId,
    services: Services,
    caller: Viewer,
    target: Annotated[
        list[Accuracy] | None,
        Query(max_length=20, description="test accuracies: what it cost to reach each of them first"),
    ] = None,
) -> FederationReport:
    """Show what a federation has cost: bytes and seconds by round, in all, and to a test accuracy.

    `files` is computed from what was sent and accepted, as papers count; `wire` is what was measured.
    """
    traffic.flush(services.store, services.traffic)
    with services.store.read() as session:
        return report.report(session, reading.get(session, federation_id), target or [])


def _steer(
    services: Parts, caller: Principal, key: str | None, verb: str, federation_id: str, act: Callable[[Any], object]
) -> Federation:
    """Apply a change of state once per idempotency key, and show the federation as it is then."""

    def make() -> dict[str, Any]:
        act(session)
        return {"id": federation_id}

    with services.store.write() as session:
        once(session, caller.id, key, f"{verb} {federation_id}", make)
        return federations.describe(session, reading.get(session, federation_id))


@router.post("/{federation_id}/start", responses=_STEER)
def start_federation(
    federation_id: FederationId, services: Services, caller: Operator, key: IdempotencyKey = None
) -> Federation:
    """Start: the first models are made, then rounds open as soon as enough clients are enrolled."""
    return _steer(
        services,
        caller,
        key,
        "start",
        federation_id,
        lambda session: control.start(session, federation_id),
    )


@router.post("/{federation_id}/pause", responses=_STEER)
def pause_federation(
    federation_id: FederationId, services: Services, caller: Operator, key: IdempotencyKey = None
) -> Federation:
    """Pause: no round opens or closes until it is resumed."""
    return _steer(services, caller, key, "pause", federation_id, lambda session: control.pause(session, federation_id))


@router.post("/{federation_id}/resume", responses=_STEER)
def resume_federation(
    federation_id: FederationId, services: Services, caller: Operator, key: IdempotencyKey = None
) -> Federation:
    """Resume. After a failed round, that round is given up and the next one starts from the same models."""
    return _steer(
        services,
        caller,
        key,
        "resume",
        federation_id,
        lambda session: control.resume(session, federation_id),
    )


@router.post("/{federation_id}/cancel", responses=_STEER)
def cancel_federation(
    federation_id: FederationId, services: Services, caller: Operator, key: IdempotencyKey = None
) -> Federation:
    """End a federation for good. Its models stay."""
    return _steer(
        services, caller, key, "cancel", federation_id, lambda session: control.cancel(session, federation_id)
    )


@router.post("/{federation_id}/rollback", responses=_STEER | documented("invalid-field", "idempotency-conflict"))
def roll_back_federation(
    federation_id: FederationId,
    body: Annotated[Rollback, Body(openapi_examples=_ROLLBACKS)],
    services: Services,
    caller: Operator,
    key: IdempotencyKey = None,
) -> Federation:
    """Go back to the models after an earlier round, of all prototypes, with what the recipe keeps between rounds.

    Rounds are numbered on, and a round that collects begins again; while one is fused this is refused. Doing it twice
    is doing it once.
    """
    return _steer(
        services,
        caller,
        key,
        f"rollback {body.model_dump_json()}",
        federation_id,
        lambda session: rollback.rollback(session, federation_id, body),
    )


@router.patch("/{federation_id}/plan", responses=_STEER | documented("invalid-field"))
def change_plan(
    federation_id: FederationId,
    body: Annotated[PlanChange, Body(openapi_examples=_CHANGES)],
    services: Services,
    caller: Operator,
) -> Federation:
    """Change how devices train, how rounds go and how long students learn, from the next round on.

    What is left out stays as it is. A round that has opened goes on with the plan that it opened with, which it shows.
    The same change again changes nothing.
    """
    with services.store.write() as session:
        return federations.describe(session, plans.change(session, federation_id, body))


@router.delete("/{federation_id}", status_code=204, responses=_ONE | documented("invalid-transition", "in-use"))
def delete_federation(federation_id: FederationId, services: Services, caller: Operator) -> Response:
    """Delete a federation that has ended, with its clients' data, rounds and models; a line in the audit log stays."""
    with services.store.write() as session:
        erasure.delete_federation(session, federation_id)
    return Response(status_code=204)


@router.put("/{federation_id}/retention", responses=_ONE | documented("invalid-field"))
def change_retention(federation_id: FederationId, body: Retention, services: Services, caller: Operator) -> Retention:
    """Change what is kept of a federation; what the new plan does not keep is removed at once."""
    with services.store.write() as session:
        retention.change(session, federation_id, body)
        return body


@router.post("/{federation_id}/join-token", responses=_ONE)
def rotate_join_token(
    federation_id: FederationId, services: Services, caller: Operator, body: JoinLimits | None = None
) -> JoinToken:
    """Make a new join token; the one before stops working, enrolled devices go on. Without a body it lets in any
    number of devices for the service's default time.
    """
    settings = services.settings
    with services.store.write() as session:
        row = reading.get_locked(session, federation_id)
        token = joining.rotate(session, settings.key, row, body or JoinLimits())
        return JoinToken(join_token=token, max_uses=row.join_max_uses, expires_at=row.join_expires_at)


@router.get("/{federation_id}/card", tags=["devices"], responses=_ONE | documented("join-token-spent"))
def show_card(federation_id: FederationIdOrName, services: Services, caller: Candidate) -> FederationCard:
    """Show what a device must know before it enrols: the task that its data must fit, the networks there are, and what
    it will train.

    A federation's name does in place of its id.
    """
    with services.store.read() as session:
        own = reading.get(session, caller.federation_id or federation_id)
        caller.need_federation(own.id if federation_id == own.name else federation_id)  # of others nothing is told
        card = clients.card(session, own.id, caller)
        theirs = clients.models_of_their_own(session, own.id)
    return card.model_copy(update={"tensors": {name: _kinds(services, digests) for name, digests in theirs.items()}})


def _kinds(services: Parts, digests: list[str]) -> dict[str, TensorKind]:
    headers = [services.blobs.store.header(digest) for digest in digests]
    infos = [item for header in headers for item in header.tensors.items()]
    return {name: TensorKind(dtype=info.dtype, shape=list(info.shape)) for name, info in infos}


@router.post(
    "/{federation_id}/clients",
    status_code=201,
    tags=["devices"],
    responses=_STEER
    | documented("join-token-spent", "limit-reached", "name-taken", "idempotency-conflict", "invalid-field"),
)
def enrol_client(
    federation_id: FederationId, body: Enrolment, services: Services, caller: Joiner, key: IdempotencyKey = None
) -> Enrolled:
    """Enrol a device with the federation's join token. The answer holds the device's own token, shown only here."""
    caller.need_federation(federation_id)
    settings = services.settings

    def make() -> dict[str, Any]:
        row = clients.enrol(session, settings, caller, body)
        return {"client_id": row.id, "federation_id": federation_id, "prototype": row.prototype}

    with services.store.write() as session:
        answer = once(session, caller.id, key, f"enrol {body.model_dump_json()}", make)
        row = clients.still_enrolled(session, answer["client_id"])
        return Enrolled(**answer, token=clients.token_of(settings.keys, row), token_expires_at=row.expires_at)


@router.get("/{federation_id}/clients", responses=_ONE)
def list_clients(
    federation_id: FederationId, services: Services, caller: Viewer, limit: Limit = 100, after: After = None
) -> Page[ClientInfo]:
    """List a federation's clients, revoked ones included."""
    with services.store.read() as session:
        federation = reading.get(session, federation_id)
        items, following = clients.listing(session, federation, limit, after)
        return Page(items=items, next=following)


@router.delete(
    "/{federation_id}/clients/{client_id}",
    status_code=204,
    responses=_ONE | documented("in-use") | {200: {"model": Forgotten, "description": "with `forget`"}},
)
def revoke_client(
    federation_id: FederationId,
    client_id: Annotated[str, Path(max_length=64)],
    services: Services,
    caller: Operator,
    forget: Annotated[bool, Query(description="also delete what it sent; say what models it is in")] = False,
) -> Response:
    """Revoke a device: its token stops working at once and rounds no longer wait for it.

    With `forget` its updates, discriminator and scores are deleted; those that are not fused yet do not count any more.
    """
    with services.store.write() as session:
        if forget:
            told = erasure.forget_client(session, federation_id, client_id)
            return JSONResponse(told.model_dump(mode="json"))
        clients.revoke(session, federation_id, client_id)
    return Response(status_code=204)


@router.post("/{federation_id}/clients/{client_id}/token", responses=_ONE | documented("invalid-transition"))
def reissue_token(
    federation_id: FederationId,
    client_id: Annotated[str, Path(max_length=64)],
    services: Services,
    caller: Operator,
) -> Reissued:
    """Give an enrolled device a fresh token, because it lost its own, let it expire, or may have had it stolen. The one
    before stops working at once.
    """
    with services.store.write() as session:
        row, token = clients.reissue(session, services.settings, federation_id, client_id)
        return Reissued(client_id=row.id, token=token, token_expires_at=row.expires_at)


@router.put("/{federation_id}/clients/{client_id}/prototype", responses=_ONE | documented("invalid-field"))
def assign_prototype(
    federation_id: FederationId,
    client_id: Annotated[str, Path(max_length=64)],
    body: PrototypeChoice,
    services: Services,
    caller: Operator,
) -> PrototypeChoice:
    """Give a client another prototype, from the next round on."""
    with services.store.write() as session:
        return PrototypeChoice(prototype=clients.reassign(session, federation_id, client_id, body.prototype).prototype)


@router.get("/{federation_id}/rounds", tags=["rounds"], responses=_ONE)
def list_rounds(
    federation_id: FederationId,
    services: Services,
    caller: Viewer,
    limit: Limit = 100,
    after: After = None,
    newest_first: NewestFirst = False,
) -> Page[Round]:
    """List a federation's rounds, the first one first if not told otherwise."""
    with services.store.read() as session:
        items, following = rounds.listing(session, reading.get(session, federation_id), limit, after, newest_first)
        return Page(items=items, next=following)
