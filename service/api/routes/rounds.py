"""Rounds, one by one."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import StreamingResponse

from contract.bundles import length, pieces
from contract.wire.provenance import Provenance
from contract.wire.rounds import RoundDetail
from service.api.deps import Operator, Services, Viewer
from service.api.problems import documented
from service.operations.progress import reading
from service.operations.steer import control
from service.operations.store import provenance
from service.operations.view import bundles, rounds

router = APIRouter(prefix="/v1/rounds", tags=["rounds"])
RoundId = Annotated[str, Path(max_length=64)]
_TAR = "application/x-tar"


@router.get("/{round_id}", responses=documented("unauthorized", "forbidden", "not-found"))
def show_round(round_id: RoundId, services: Services, caller: Viewer) -> RoundDetail:
    """Show a round: who was asked, who answered, each client's weight, the model's metrics, the phases."""
    with services.store.read() as session:
        return rounds.describe(session, reading.get_round(session, round_id))


@router.get("/{round_id}/provenance", responses=documented("unauthorized", "forbidden", "not-found"))
def show_round_provenance(round_id: RoundId, services: Services, caller: Viewer) -> Provenance:
    """Show what a published round's models were made from."""
    with services.store.read() as session:
        return provenance.describe(session, provenance.of_round(session, reading.get_round(session, round_id)))


@router.get(
    "/{round_id}/bundle",
    response_class=Response,
    responses=documented("unauthorized", "forbidden", "not-found", "removed", "blob-damaged")
    | {200: {"content": {_TAR: {}}, "description": "the document and all files that it names, a tar file"}},
)
def export_round(round_id: RoundId, services: Services, caller: Operator) -> Response:
    """Download a published round with all its inputs as one file; `potstill replay FILE` makes its models again.

    It holds the clients' updates: operators alone get it, and the audit log tells that they did.
    """
    with services.store.read() as session:
        bundle = bundles.of_round(session, round_id)
    sizes = bundles.sizes(services.blobs.store, bundle)
    with services.store.write() as session:
        bundles.record(session, round_id, bundle)
    document = bundle.document.encode()
    headers = {
        "Content-Length": str(length(document, sizes)),
        "Content-Disposition": f'attachment; filename="{round_id}.tar"',
        "Cache-Control": "no-store",
    }
    return StreamingResponse(pieces(document, sizes, services.blobs.store.read), 200, headers, _TAR)


@router.post(
    "/{round_id}/close",
    responses=documented("unauthorized", "forbidden", "not-found", "invalid-transition", "too-few-updates"),
)
def close_round(
    round_id: RoundId,
    services: Services,
    caller: Operator,
    force: Annotated[bool, Query(description="also with fewer than min_updates")] = False,
) -> RoundDetail:
    """Fuse a round now with the updates that are here."""
    with services.store.write() as session:
        row = control.close_round(session, round_id, force)
        session.flush()
        return rounds.describe(session, row)
