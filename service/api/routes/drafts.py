"""What a federation would be, before it is created."""

from typing import Annotated

from fastapi import Body

from contract.wire.federations import FederationCreate, FederationDraft
from service.api.deps import Operator, Services
from service.api.problems import documented
from service.api.routes.federations import NEW
from service.api.routing import router_of
from service.operations.steer import creation
from service.operations.view import federations

router = router_of("/v1/federations", tag="federations")
_REFUSED = documented("unauthorized", "forbidden", "name-taken", "limit-reached", "invalid-field")


@router.post("/draft", responses=_REFUSED)
def draft_federation(
    body: Annotated[FederationCreate, Body(openapi_examples=NEW)], services: Services, caller: Operator
) -> FederationDraft:
    """Say what a request would become, and change nothing: its recipe and plans in full, and in `notes` what would be
    left out, taken by default or changed, and why. What creation would refuse is refused alike.
    """
    with services.store.read() as session:
        config = creation.drafted(session, body, services.blobs.store.header)
        return federations.draft(session, body, config)
