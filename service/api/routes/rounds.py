"""Rounds, one by one."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import Path, Query, Response
from fastapi.responses import StreamingResponse

from contract.bundles import DOCUMENT, length, pieces
from contract.wire.ensembles import Ensemble
from contract.wire.explanations import Explanation
from contract.wire.provenance import Provenance
from contract.wire.rounds import RoundDetail
from service.api.deps import Operator, Services, Viewer
from service.api.problems import documented
from service.api.routing import router_of
from service.api.services import Services as Parts
from service.operations.progress import reading
from service.operations.steer import control
from service.operations.store import provenance
from service.operations.view import bundles, ensembles, explanations, rounds

router = router_of("/v1/rounds", tag="rounds")
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


@router.get("/{round_id}/explanation", responses=documented("unauthorized", "forbidden", "not-found"))
def explain_round(round_id: RoundId, services: Services, caller: Viewer) -> Explanation:
    """Show what each client did to a round: where its update points to, what its model says, who is trusted on what.

    Clients that are not like the others have `flags`, with the reason in words. `rounds.explain` of the plan says how
    much is looked at; nothing of it changes a model.
    """
    with services.store.read() as session:
        return explanations.describe(session, reading.get_round(session, round_id), images=caller.role == "operator")


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
    return _tar(services, f"{round_id}.tar", {DOCUMENT: bundle.document.encode()}, sizes)


def _tar(services: Parts, name: str, texts: Mapping[str, bytes], sizes: Mapping[str, int]) -> Response:
    headers = {
        "Content-Length": str(length(texts, sizes)),
        "Content-Disposition": f'attachment; filename="{name}"',
        "Cache-Control": "no-store",
    }
    return StreamingResponse(pieces(texts, sizes, services.blobs.store.read), 200, headers, _TAR)


@router.get("/{round_id}/ensemble", responses=documented("unauthorized", "forbidden", "not-found"))
def show_ensemble(round_id: RoundId, services: Services, caller: Viewer) -> Ensemble:
    """Show a round's ensemble, where its plan had `rounds.keep_ensemble`: members by digest, their weights, the rule.

    Members are the recipe's teachers; where nothing is distilled, the clients' models. Their files come in the bundle.
    """
    with services.store.read() as session:
        return ensembles.describe(session, reading.get_round(session, round_id))


@router.get(
    "/{round_id}/ensemble/bundle",
    response_class=Response,
    responses=documented("unauthorized", "forbidden", "not-found", "removed", "blob-damaged", "blob-missing")
    | {200: {"content": {_TAR: {}}, "description": "README.md, ensemble.json and the files it names, a tar file"}},
)
def export_ensemble(round_id: RoundId, services: Services, caller: Operator) -> Response:
    """Download a round's ensemble as one file; `potstill predict FILE DATA` predicts with it, without the service.

    It may hold clients' models: operators alone get it, and the audit log tells that they did.
    """
    with services.store.read() as session:
        bundle = ensembles.bundle(session, round_id)
    sizes = ensembles.sizes(services.blobs.store, bundle)
    with services.store.write() as session:
        ensembles.record(session, round_id, bundle)
    texts = {name: text.encode() for name, text in bundle.texts.items()}
    return _tar(services, f"{round_id}-ensemble.tar", texts, sizes)


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
