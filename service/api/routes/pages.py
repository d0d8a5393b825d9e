"""Health, the dashboard, and the OpenAPI page; all assets are our own."""

from functools import cache
from importlib.resources import files
from typing import Annotated

from fastapi import Query, Response
from fastapi.responses import HTMLResponse

from contract import __version__
from contract.wire.catalogue import Check, Health, Readiness
from service.api.deps import Services
from service.api.routing import router_of
from service.operations.view import health

router = router_of(tag="health")

_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)


@router.get("/healthz")
async def healthz() -> Health:
    """Liveness: the process answers."""
    return Health(version=__version__)


@router.get("/readyz", responses={503: {"model": Readiness, "description": "something it depends on is not there"}})
def readyz(
    services: Services,
    response: Response,
    worker: Annotated[bool, Query(description="also ask for a live worker")] = True,
    pid: Annotated[
        int | None,
        Query(ge=1, le=(1 << 31) - 1, description="also ask for the worker of this process on the service's machine"),
    ] = None,
) -> Readiness:
    """Readiness by dependency: database, worker, queue, disk."""
    blobs = services.blobs
    found = health.checks(services.database, blobs.store, blobs.scratch, services.settings, worker, pid)
    checks = {name: Check(ok=ok, detail=detail) for name, (ok, detail) in found.items()}
    ready = all(check.ok for check in checks.values())
    if not ready:
        response.status_code = 503
    return Readiness(ready=ready, checks=checks)


@router.get("/docs", include_in_schema=False)
async def docs() -> HTMLResponse:
    """The page of the API, made in the browser from its document."""
    return _page("reference")


@router.get("/", include_in_schema=False)
async def dashboard() -> HTMLResponse:
    """The operators' page. It holds nothing by itself: what it shows it asks for as who is signed in."""
    return _page("dashboard")


def _page(folder: str) -> HTMLResponse:
    return HTMLResponse(_text(folder), headers={"Content-Security-Policy": _CSP, "Cache-Control": "no-cache"})


@cache
def _text(folder: str) -> str:
    return (files("service") / "static" / folder / "index.html").read_text(encoding="utf-8")
