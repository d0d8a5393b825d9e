"""Models: where they came from, and their weights."""

from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Body, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from contract import architectures
from contract.networks.document import PREFIX, name_of
from contract.wire.common import Page
from contract.wire.provenance import Provenance
from contract.wire.rounds import Model, Promotion
from service.api import wholes
from service.api.blobs import in_pieces, serve
from service.api.deps import After, Holder, IdempotencyKey, Limit, NewestFirst, Operator, Services, Viewer
from service.api.intake import BODY, REFUSALS, receive
from service.api.problems import documented
from service.api.received import Received
from service.api.routing import router_of
from service.api.services import Services as Parts
from service.api.source import Delivery
from service.api.telemetry import ACCOUNT
from service.domain.errors import invalid_field
from service.domain.principal import Principal
from service.operations.ledger.idempotency import once
from service.operations.steer import rollback
from service.operations.store import downloads, faults, models, networks, provenance

router = router_of("/v1/models", tag="models")
ModelId = Annotated[str, Path(max_length=64)]
_PROMOTIONS: dict[str, Any] = {
    "a model of the federation": {"value": {}},
    "an imported model": {"value": {"federation": "fed_01…", "prototype": "main"}},
}
_ONE = documented("unauthorized", "forbidden", "not-found")


@router.get("", responses=_ONE)
def list_models(
    services: Services,
    caller: Viewer,
    limit: Limit = 50,
    after: After = None,
    federation: Annotated[str | None, Query(max_length=64)] = None,
    prototype: Annotated[str | None, Query(max_length=100)] = None,
    newest_first: NewestFirst = False,
) -> Page[Model]:
    """List models, the oldest first if not told otherwise."""
    with services.store.read() as session:
        items, following = models.listing(session, limit, after, federation, prototype, newest_first)
        return Page(items=items, next=following)


def _import(services: Parts, caller: Principal, key: str | None, architecture: str | None, upload: Received) -> Model:
    def make() -> dict[str, Any]:
        for use in faults.uses(session, upload.digest) if lost else ():
            faults.note_restored(session, use.row, upload.digest)
        row = models.import_file(session, upload.digest, upload.size, architecture)
        upload.keep(session, services)
        return {"id": row.id}

    lost = upload.bring(services)
    with services.store.write() as session:
        answer = once(session, caller.id, key, f"model {architecture} {upload.digest}", make)
        model = models.describe(session, models.get(session, answer["id"]))
        upload.count(session, services, False, model)
        return model


def _named(services: Parts, architecture: str) -> str:
    """Return the name of an architecture; that of a network that is a document holds its digest.

    Raises:
        DomainError: invalid-field, there is none.
    """
    if architecture.startswith(PREFIX):
        with services.store.read() as session:
            row = networks.find(session, architecture)
        if row is None:
            raise invalid_field("architecture", f"there is no network {architecture!r}; register it first")
        return name_of(row.digest)
    try:
        return architectures.find(architecture).name
    except ValueError as error:
        raise invalid_field("architecture", str(error)) from None


@router.post(
    "",
    status_code=201,
    openapi_extra=BODY,
    responses=REFUSALS | documented("invalid-field", "limit-reached", "idempotency-conflict"),
)
async def import_model(
    source: Delivery,
    services: Services,
    caller: Operator,
    architecture: Annotated[str | None, Query(max_length=100, description="what it is the weights of")] = None,
    key: IdempotencyKey = None,
) -> Model:
    """Import weights as a starting point: name the answer's id as a prototype's `initial_model`."""
    if architecture is not None:
        architecture = await run_in_threadpool(_named, services, architecture)
    async with receive(source, lambda: None, models.check_header) as upload:
        return await run_in_threadpool(_import, services, caller, key, architecture, upload)


@router.get("/{model_id}", responses=_ONE)
def show_model(model_id: ModelId, services: Services, caller: Holder) -> Model:
    """Show a model: its round, its recipe, the digests of what it was made from."""
    with services.store.read() as session:
        return models.describe(session, models.readable(session, model_id, caller))


@router.post(
    "/{model_id}/promote",
    responses=_ONE
    | documented("removed", "invalid-transition", "invalid-field", "invalid-tensors", "idempotency-conflict"),
)
def promote_model(
    model_id: ModelId,
    services: Services,
    caller: Operator,
    body: Annotated[Promotion | None, Body(openapi_examples=_PROMOTIONS)] = None,
    key: IdempotencyKey = None,
) -> Model:
    """Make a model what devices get next: one of the federation's own, or an imported one with the same tensors.

    A round that collects begins again from it; while one is fused this is refused. Doing it twice is doing it once.
    """
    wish = body or Promotion()

    def make() -> dict[str, Any]:
        return {"id": rollback.promote(session, model_id, wish, services.blobs.store.header).id}

    with services.store.write() as session:
        answer = once(session, caller.id, key, f"promote {model_id} {wish.model_dump_json()}", make)
        return models.describe(session, models.get(session, answer["id"]))


@router.get("/{model_id}/provenance", responses=_ONE)
def show_model_provenance(model_id: ModelId, services: Services, caller: Viewer) -> Provenance:
    """Show what a model was made from: digests of all inputs, recipe, seeds, code and libraries, device, job.

    `spec` in the document is all that the job was told; `potstill replay` makes the same bytes from it again.
    """
    with services.store.read() as session:
        return provenance.describe(session, provenance.of_model(session, models.get(session, model_id)))


@router.head("/{model_id}/weights", response_class=Response, include_in_schema=False)
@router.get(
    "/{model_id}/weights",
    response_class=Response,
    responses=_ONE
    | documented("range-not-satisfiable", "removed", "blob-damaged", "blob-missing")
    | {
        200: {"content": {"application/octet-stream": {}}, "description": "the safetensors file"},
        206: {"description": "the part that Range asked for"},
        304: {"description": "If-None-Match names it"},
        307: {"description": "fetch it from `Location`, without the token (an installation with presigned links)"},
    },
)
async def get_weights(
    model_id: ModelId,
    request: Request,
    services: Services,
    caller: Holder,
    part: Annotated[
        Literal["whole", "trained"],
        Query(description="of a network with `trains` or `keeps`: all of it, or the tensors that rounds move"),
    ] = "whole",
) -> Response:
    """Download a model's safetensors file. `ETag` is its digest, `Range` goes on with a broken download."""
    found = await services.together.read(partial(downloads.find, model_id=model_id, caller=caller))
    request.scope[ACCOUNT] = found.account
    return await run_in_threadpool(_answer, services, found.digest, found.base if part == "whole" else None, request)


def _answer(services: Parts, digest: str, base: str | None, request: Request) -> Response:
    """Return the bytes of a model, of which `base` are the tensors that rounds leave alone."""
    blobs = services.blobs.store
    if base is None:
        return serve(blobs, services.blobs.links, digest, request)
    whole = wholes.lay_out(blobs, digest, base)
    return in_pieces(partial(whole.read, blobs), whole.size, wholes.digest_of(blobs, whole), request)
