"""The service at a glance, for the dashboard."""

from contract.wire.catalogue import Check
from contract.wire.status import Status
from service.api.deps import Services, Viewer
from service.api.problems import documented
from service.api.routing import router_of
from service.operations.view import figures, health

router = router_of("/v1", tag="health")


@router.get("/status", responses=documented("unauthorized", "forbidden"))
def show_status(services: Services, caller: Viewer) -> Status:
    """Show whether all is well, dependency by dependency, and what role the token in use has."""
    found = health.checks(
        services.database, services.blobs.store, services.blobs.scratch, services.settings, worker=True
    )
    with services.store.read() as session:
        heard, waited = figures.ages(session)
    return Status(
        version=services.metrics.version,
        role="operator" if caller.role == "operator" else "viewer",
        ready=all(ok for ok, _ in found.values()),
        checks={name: Check(ok=ok, detail=detail) for name, (ok, detail) in found.items()},
        heartbeat_age_seconds=heard,
        oldest_queued_seconds=waited,
        free_bytes=services.blobs.scratch.free_bytes(),
    )
