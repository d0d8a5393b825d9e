"""Networks that are documents."""

from typing import Annotated, Any

from fastapi import Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from contract.networks import checks
from contract.networks.document import MAX_BYTES, Document, canonical
from contract.networks.errors import NetworkError
from contract.wire.common import Name, Page
from contract.wire.networks import RegisteredNetwork
from service.api.blobs import serve
from service.api.deps import After, Holder, Limit, Operator, Services, Viewer
from service.api.documents import Kept
from service.api.problems import documented
from service.api.routing import router_of
from service.api.services import Services as Parts
from service.domain.errors import invalid_field
from service.operations.store import networks

router = router_of("/v1/networks", tag="networks")
NetworkId = Annotated[str, Path(max_length=110, description="id, name or architecture")]
_ONE = documented("unauthorized", "forbidden", "not-found")
_FILE: dict[int | str, dict[str, Any]] = {
    304: {"description": "If-None-Match names it"},
    307: {"description": "fetch it from `Location`, without the token (an installation with presigned links)"},
}
_LAYER = {
    "nodes": [{"name": "y", "op": "aten.linear.default", "args": [{"node": "input"}, {"tensor": "fc.weight"}]}],
    "output": "y",
}
_EXAMPLE = {
    "input": {"shape": [4]},
    "output": [2],
    "tensors": [{"name": "fc.weight", "dtype": "float32", "shape": [2, 4], "kind": "parameter"}],
    "train": _LAYER,
    "eval": _LAYER,
}
_SCHEMA = {
    "type": "object",
    "maxProperties": len(Document.model_fields),
    "propertyNames": {"type": "string", "maxLength": max(map(len, Document.model_fields))},
}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": _SCHEMA, "examples": {"one layer": {"value": _EXAMPLE}}}},
        "description": "a document, as `potstill network export` writes it: JSON that names the network's tensors and, "
        "in `train` and `eval`, the calls of its forward pass (docs/architectures.md)",
    }
}


def _register(services: Parts, name: str, initial_model: str | None, text: bytes) -> RegisteredNetwork:
    try:
        document = checks.read(text)
    except NetworkError as error:
        raise invalid_field(error.field or "body", error.detail) from None
    if len(canonical(document)) > MAX_BYTES:
        raise invalid_field("body", f"has more than {MAX_BYTES} bytes; take a smaller network")
    kept = Kept(services, document)
    try:
        with services.store.write() as session:
            row, fresh = networks.register(session, name, document, initial_model, services.blobs.store.header)
            kept.count(session, row, fresh)
            return networks.describe(row)
    finally:
        kept.close()


@router.post(
    "",
    status_code=201,
    openapi_extra=_BODY,
    responses=_ONE | documented("name-taken", "limit-reached", "invalid-field", "removed"),
)
async def add_network(
    request: Request,
    services: Services,
    caller: Operator,
    name: Annotated[Name, Query(examples=["ward-net"])],
    initial_model: Annotated[
        str | None, Query(max_length=64, description="id of an imported model: the network's first weights")
    ] = None,
) -> RegisteredNetwork:
    """Register a network's document, as `potstill network export` writes it.

    It is checked without being run; what torch alone can tell is found by a federation's first job, before a device has
    trained. The same name with the same document again gets the same answer.
    """
    text = await request.body()
    return await run_in_threadpool(_register, services, name, initial_model, text)


@router.get("", responses=documented("unauthorized", "forbidden"))
def list_networks(
    services: Services, caller: Viewer, limit: Limit = 50, after: After = None
) -> Page[RegisteredNetwork]:
    """List networks that are documents."""
    with services.store.read() as session:
        items, following = networks.listing(session, limit, after)
        return Page(items=items, next=following)


@router.get("/{network_id}", responses=_ONE)
def show_network(network_id: NetworkId, services: Services, caller: Holder) -> RegisteredNetwork:
    """Show a network; a device sees those of its own federation."""
    with services.store.read() as session:
        return networks.describe(networks.readable(session, network_id, caller))


@router.get(
    "/{network_id}/document",
    response_class=Response,
    responses=_ONE
    | documented("blob-damaged", "blob-missing")
    | _FILE
    | {200: {"content": {"application/octet-stream": {}}, "description": "the document, in its one form"}},
)
def get_network_document(network_id: NetworkId, request: Request, services: Services, caller: Holder) -> Response:
    """Download a network's document. `ETag` is its digest."""
    with services.store.read() as session:
        digest = networks.readable(session, network_id, caller).digest
    return serve(services.blobs.store, services.blobs.links, digest, request)


@router.get(
    "/{network_id}/weights",
    response_class=Response,
    responses=_ONE
    | documented("removed", "blob-damaged", "blob-missing", "range-not-satisfiable")
    | _FILE
    | {
        200: {"content": {"application/octet-stream": {}}, "description": "the safetensors file"},
        206: {"description": "the part that Range asked for"},
    },
)
def get_network_weights(network_id: NetworkId, request: Request, services: Services, caller: Holder) -> Response:
    """Download a network's first weights, which a device's discriminator begins with."""
    with services.store.read() as session:
        digest = networks.weights(session, networks.readable(session, network_id, caller)).digest
    return serve(services.blobs.store, services.blobs.links, digest, request)


@router.delete("/{network_id}", status_code=204, responses=_ONE | documented("in-use"))
def delete_network(network_id: NetworkId, services: Services, caller: Operator) -> Response:
    """Remove a network that no federation names."""
    with services.store.write() as session:
        networks.delete(session, network_id)
    return Response(status_code=204)
