"""Prometheus metrics of this process."""

import ipaddress
from typing import Annotated, Any

from fastapi import Depends, Request, Response

from service.api.deps import Credentials, Services, get_principal, need
from service.api.problems import documented
from service.api.routing import router_of

router = router_of(tag="health")
_EXAMPLE: dict[str, Any] = {"content": {"text/plain": {"example": 'potstill_jobs{state="queued"} 0.0\n'}}}
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


def _is_near(request: Request) -> bool:
    """Whether the caller is on this machine and no proxy speaks for somebody else."""
    if request.client is None or any(name in request.headers for name in _FORWARDED):
        return False
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False


async def may_scrape(request: Request, services: Services, credentials: Credentials) -> None:
    """Let in who has a viewer's token; where the settings say so, also whoever is on this machine."""
    if services.settings.metrics_open and credentials is None and _is_near(request):
        return
    await need("operator", "viewer")(await get_principal(request, services, credentials), services)


@router.head("/metrics", include_in_schema=False)
@router.get(
    "/metrics",
    response_class=Response,
    responses=documented("unauthorized", "forbidden") | {200: _EXAMPLE},
)
def metrics(services: Services, allowed: Annotated[None, Depends(may_scrape)]) -> Response:
    """Show this process's metrics in Prometheus' text format: requests, refusals, rounds, jobs, workers, disk.

    Each API process counts its own requests; scrape every one of them.
    """
    return Response(
        services.metrics.text(), headers={"Content-Type": services.metrics.CONTENT_TYPE, "Cache-Control": "no-store"}
    )
