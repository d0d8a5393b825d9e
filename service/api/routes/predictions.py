"""Predictions of data sets: asked for, looked at, downloaded."""

from typing import Annotated, Any

from fastapi import Body, Path, Request, Response

from contract.wire.common import Page
from contract.wire.ensembles import Prediction, PredictionRequest
from service.api.blobs import serve
from service.api.deps import After, IdempotencyKey, Limit, Operator, Services, Viewer
from service.api.problems import documented
from service.api.routing import router_of
from service.operations.ledger.idempotency import once
from service.operations.progress import reading
from service.operations.steer import predicting
from service.operations.store import predictions as stored
from service.operations.view import predictions

router = router_of("/v1", tag="predictions")
FederationId = Annotated[str, Path(max_length=64, examples=["fed_01…"])]
PredictionId = Annotated[str, Path(max_length=64, examples=["prd_01…"])]
_ONE = documented("unauthorized", "forbidden", "not-found")
_WISHES: dict[str, Any] = {
    "with what devices get now": {"value": {"dataset": "digits-new"}},
    "with the newest ensemble": {"value": {"dataset": "digits-new", "ensemble": True}},
    "with a round's model of one prototype": {"value": {"dataset": "digits-new", "round": 3, "prototype": "small"}},
}


@router.post(
    "/federations/{federation_id}/predict",
    status_code=202,
    responses=_ONE | documented("invalid-field", "removed", "limit-reached", "idempotency-conflict"),
)
def predict(
    federation_id: FederationId,
    body: Annotated[PredictionRequest, Body(openapi_examples=_WISHES)],
    services: Services,
    caller: Operator,
    key: IdempotencyKey = None,
) -> Prediction:
    """Predict a registered data set with a global model or with a round's ensemble: a job of its own, also when the
    federation is over, that changes nothing of it. What it reads stays until it is made.
    """

    def make() -> dict[str, Any]:
        return {"id": predicting.ask(session, federation_id, body).id}

    with services.store.write() as session:
        answer = once(session, caller.id, key, f"predict {federation_id} {body.model_dump_json()}", make)
        session.flush()
        return predictions.describe(session, stored.get(session, answer["id"]))


@router.get("/federations/{federation_id}/predictions", responses=_ONE)
def list_predictions(
    federation_id: FederationId, services: Services, caller: Viewer, limit: Limit = 50, after: After = None
) -> Page[Prediction]:
    """List a federation's predictions, the oldest first."""
    with services.store.read() as session:
        items, following = predictions.listing(session, reading.get(session, federation_id), limit, after)
        return Page(items=items, next=following)


@router.get("/predictions/{prediction_id}", responses=_ONE)
def show_prediction(prediction_id: PredictionId, services: Services, caller: Viewer) -> Prediction:
    """Show a prediction: how far it is; then its accuracy, where the set has labels, and where its file is."""
    with services.store.read() as session:
        return predictions.describe(session, stored.get(session, prediction_id))


@router.head("/predictions/{prediction_id}/file", response_class=Response, include_in_schema=False)
@router.get(
    "/predictions/{prediction_id}/file",
    response_class=Response,
    responses=_ONE
    | documented("range-not-satisfiable", "removed", "blob-damaged", "blob-missing")
    | {
        200: {"content": {"application/octet-stream": {}}, "description": "a safetensors file"},
        206: {"description": "the part that Range asked for"},
        304: {"description": "If-None-Match names it"},
        307: {"description": "fetch it from `Location`, without the token (an installation with presigned links)"},
    },
)
def get_prediction(prediction_id: PredictionId, request: Request, services: Services, caller: Viewer) -> Response:
    """Download what was predicted: `logits` F32 [N, C], whose softmax are the probabilities, `predicted` I64 [N]."""
    with services.store.read() as session:
        digest = stored.digest_of_file(session, prediction_id)
    return serve(services.blobs.store, services.blobs.links, digest, request)
