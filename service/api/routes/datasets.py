"""Server data."""

from typing import Annotated

from fastapi import Path, Query, Response
from starlette.concurrency import run_in_threadpool

from contract.tensors import TensorFile
from contract.wire.common import Name, Page
from contract.wire.rounds import Dataset
from service.api.deps import After, Limit, Operator, Services, Viewer
from service.api.intake import BODY, REFUSALS, receive
from service.api.problems import documented
from service.api.received import Received, mends
from service.api.routing import router_of
from service.api.services import Services as Parts
from service.api.source import Delivery
from service.operations.store import datasets

router = router_of("/v1/datasets", tag="datasets")
DatasetId = Annotated[str, Path(max_length=100, description="id or name")]
_ONE = documented("unauthorized", "forbidden", "not-found")


def _register(services: Parts, name: str, upload: Received) -> Dataset:
    with TensorFile(upload.path) as file:
        classes, ids = datasets.num_classes(file), datasets.token_ids(file)
    lost = upload.bring(services)
    with services.store.write() as session:
        known = datasets.find(session, name) is not None
        row = datasets.register(session, name, upload.digest, upload.size, upload.header, classes, ids)
        answer = datasets.describe(row)
        mends(session, services, row, not known, lost)
        upload.count(session, services, True, answer)
        return answer


@router.post(
    "",
    status_code=201,
    openapi_extra=BODY,
    responses=REFUSALS | documented("name-taken", "limit-reached", "invalid-field"),
)
async def add_dataset(
    source: Delivery, services: Services, caller: Operator, name: Annotated[Name, Query(examples=["digits-server"])]
) -> Dataset:
    """Register server data: a safetensors body with `inputs` [N, ...] and, for validation and test, `labels` [N] (I64).

    Tasks of several labels or values a sample have `labels` [N, ...], I64, U8 or F32.

    The same name with the same bytes again gets the same answer.
    """
    async with receive(source, lambda: None, datasets.check_header) as upload:
        return await run_in_threadpool(_register, services, name, upload)


@router.get("", responses=documented("unauthorized", "forbidden"))
def list_datasets(services: Services, caller: Viewer, limit: Limit = 50, after: After = None) -> Page[Dataset]:
    """List data sets."""
    with services.store.read() as session:
        items, following = datasets.listing(session, limit, after)
        return Page(items=items, next=following)


@router.get("/{dataset_id}", responses=_ONE)
def show_dataset(dataset_id: DatasetId, services: Services, caller: Viewer) -> Dataset:
    """Show a data set."""
    with services.store.read() as session:
        return datasets.describe(datasets.get(session, dataset_id))


@router.delete("/{dataset_id}", status_code=204, responses=_ONE | documented("in-use"))
def delete_dataset(dataset_id: DatasetId, services: Services, caller: Operator) -> Response:
    """Remove a data set that no live federation uses."""
    with services.store.write() as session:
        datasets.delete(session, dataset_id)
    return Response(status_code=204)
