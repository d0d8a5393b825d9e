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

_DASHBOARD_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_DOCS = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Potstill API</title>
<link rel="icon" type="image/png" href="static/swagger/favicon-32x32.png">
<link rel="stylesheet" href="static/swagger/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="static/swagger/swagger-ui-bundle.js"></script>
<script src="static/docs.js"></script>
</body>
</html>
"""


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
    """The OpenAPI page."""
    return HTMLResponse(_DOCS)


@router.get("/", include_in_schema=False)
async def dashboard() -> HTMLResponse:
    """The operators' page. It holds nothing by itself: what it shows it asks for with the token that is typed in."""
    headers = {"Content-Security-Policy": _DASHBOARD_CSP, "Cache-Control": "no-cache"}
    return HTMLResponse(_dashboard(), headers=headers)


@cache
def _dashboard() -> str:
    return (files("service") / "static" / "dashboard" / "index.html").read_text(encoding="utf-8")
