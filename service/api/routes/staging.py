"""Direct uploads: a device puts its file into the bucket, and then delivers it by name."""

from datetime import timedelta

from contract.wire.staging import StagedFile, StagingRequest
from service.api import guard
from service.api.deps import Device, Services
from service.api.problems import documented
from service.api.routing import router_of
from service.domain.errors import DomainError
from service.operations.ledger.clock import now

router = router_of("/v1/staging", tag="devices")


@router.post(
    "",
    status_code=201,
    responses=documented(
        "unauthorized", "forbidden", "not-found", "too-large", "invalid-field", "too-many-requests", "unavailable"
    ),
)
def stage_file(body: StagingRequest, services: Services, caller: Device) -> StagedFile:
    """Ask where to put a file without a detour over the service: `PUT` it there, then deliver it with an empty body and
    `?staged=` its name. It is read and checked like every other upload before it counts, and removed then.

    404 where the installation has no bucket or keeps it to itself: send the file as the body of the delivery.
    """
    staging, limit = services.blobs.links.staging(), services.settings.max_upload_bytes
    if staging is None:
        raise DomainError("not-found", "there are no direct uploads here: send the file as the body of the delivery")
    if body.size > limit:
        raise DomainError("too-large", f"the file may have {limit} bytes", expected=limit, actual=body.size)
    guard.check_bytes(services, caller.id, body.size)
    services.rates.spend(services.rates.bytes, caller.id, body.size)  # the service does not see them come
    name, url, headers, seconds = staging.open(caller.id, body.digest, body.size)
    return StagedFile(name=name, url=url, headers=headers, expires_at=now() + timedelta(seconds=seconds))
